// SPDX-License-Identifier: MIT
// report: https://github.com/microsoft/NetworkDirect/issues/20
// symptom: memory cannot be deregistered at the end; without a memory window it can
// cause: a memory window is still bound to the MR; it has to be freed or unbound before
// expect: window|\bMW\b|ibv_dealloc_mw
// kind: memory
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_mw *mw;
	struct end a, b;
	struct card c;

	opt.access |= IBV_ACCESS_MW_BIND;
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	mw = bind_window(&b, &c);
	must(post(&a, IBV_WR_RDMA_WRITE, 2, 1024, &c, IBV_SEND_SIGNALED),
	     "post");
	next(a.scq, "write");
	must(ibv_dereg_mr(b.mr), "giving the memory back");
	must(ibv_dealloc_mw(mw), "dealloc_mw");
	printf("clean\n");
	return 0;
}

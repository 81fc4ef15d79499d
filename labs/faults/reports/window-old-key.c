// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1777
// symptom: a bound memory window refuses the peer's access with a remote access error
// cause: the peer was given the rkey that the window had before it was bound; a type 2 bind by a work request sets a new one
// expect: (old|stale|former|previous|earlier).*key|rkey.*(old|stale|changed|bind|bound|window)|memory window
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
	c.rkey = mw->rkey; /* as it was allocated */
	must(post(&a, IBV_WR_RDMA_WRITE, 2, 1024, &c, IBV_SEND_SIGNALED),
	     "post");
	return next(a.scq, "write").status != IBV_WC_SUCCESS;
}

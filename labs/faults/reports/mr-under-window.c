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
	struct ibv_send_wr bind = { .wr_id = 1,
				    .opcode = IBV_WR_BIND_MW,
				    .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct end a, b;
	struct card c;

	opt.access |= IBV_ACCESS_MW_BIND;
	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&a);
	make_qp(&b);
	pair(&a, &b);
	bind.bind_mw.mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	must(bind.bind_mw.mw ? 0 : -1, "alloc_mw");
	c = card(&b);
	c.rkey = ibv_inc_rkey(bind.bind_mw.mw->rkey);
	bind.bind_mw.rkey = c.rkey;
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){ b.mr, c.addr, 4096,
					   IBV_ACCESS_REMOTE_WRITE };
	must(ibv_post_send(b.qp, &bind, &bad), "post");
	next(b.scq, "bind");
	must(post(&a, IBV_WR_RDMA_WRITE, 2, 1024, &c, IBV_SEND_SIGNALED),
	     "post");
	next(a.scq, "write");
	must(ibv_dereg_mr(b.mr), "giving the memory back");
	must(ibv_dealloc_mw(bind.bind_mw.mw), "dealloc_mw");
	printf("clean\n");
	return 0;
}

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
	c.rkey = bind.bind_mw.mw->rkey;
	bind.bind_mw.rkey = ibv_inc_rkey(bind.bind_mw.mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){ b.mr, c.addr, 4096,
					   IBV_ACCESS_REMOTE_WRITE };
	must(ibv_post_send(b.qp, &bind, &bad), "post");
	next(b.scq, "bind");
	must(post(&a, IBV_WR_RDMA_WRITE, 2, 1024, &c, IBV_SEND_SIGNALED),
	     "post");
	return next(a.scq, "write").status != IBV_WC_SUCCESS;
}

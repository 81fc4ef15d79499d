// SPDX-License-Identifier: MIT
// report: https://github.com/meta-pytorch/torchcomms/pull/3926
// symptom: WRITEs go through, the first READ never completes
// cause: nobody wrote max_rd_atomic, so the QP went to RTS with what the structure held, 0: it may have no READ or atomic outstanding
// expect: max_rd_atomic|rd_atom|outstanding (RDMA )?(READ|atomic)|(no|zero|0) (RDMA )?(READ|atomic)s?
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	static const int ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct end a, b;
	struct card ca, cb;

	opt.qp.rq_psn = opt.qp.sq_psn = 0;
	opt.qp.max_dest_rd_atomic = 16;
	opt.qp.max_rd_atomic = 0;
	opt.qp.retry_cnt = 7;
	open_both(&a, &b, argc, argv);
	make_qp(&a);
	make_qp(&b);
	ca = card(&a);
	cb = card(&b);
	connect_qp(&a, &cb);
	connect_qp(&b, &ca);
	for (int i = 0; i < 2; i++) {
		must(post(&a, ops[i], i, 64, &cb, IBV_SEND_SIGNALED), "post");
		next(a.scq, "request");
	}
	return 0;
}

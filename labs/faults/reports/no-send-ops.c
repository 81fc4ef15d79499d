// SPDX-License-Identifier: MIT
// report: https://github.com/RDMA-Rust/sideway/pull/101
// symptom: the first request posted by the extended calls crashes the program
// cause: the QP was made without IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, so ibv_qp_to_qp_ex gives NULL, which is not looked at
// expect: send_ops_flags|ibv_qp_to_qp_ex
// kind: extended
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_qp_ex *x;
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	make_qp(&b);
	make_qp_ex(&a, (struct ibv_qp_cap){ 8, 8, 1, 1, 0 }, 0);
	pair(&a, &b);
	to = card(&b);
	printf("connected\n");
	fflush(stdout);
	x = ibv_qp_to_qp_ex(a.qp);
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, to.rkey, to.addr);
	ibv_wr_set_sge(x, a.mr->lkey, (uintptr_t)a.buf, 64);
	must(ibv_wr_complete(x), "wr_complete");
	next(a.scq, "written");
	return 0;
}

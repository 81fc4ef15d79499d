// SPDX-License-Identifier: MIT
// report: https://github.com/meta-pytorch/torchcomms/pull/598
// symptom: after an update of the wrapper no extended QP can be made, each try is refused at once
// cause: the wrapper's own enum has one bit too many, so comp_mask carries a bit that libibverbs does not know
// expect: comp_mask
// kind: extended
// run: one
// half: tuned
#include "rep.h"

enum { /* copied to the wrapper */
	QP_INIT_PD = 1 << 0,
	QP_INIT_XRCD = 1 << 1,
	QP_INIT_RESERVED = 1 << 2,
	QP_INIT_CREATE_FLAGS = 1 << 3,
	QP_INIT_MAX_TSO_HEADER = 1 << 4,
	QP_INIT_IND_TABLE = 1 << 5,
	QP_INIT_RX_HASH = 1 << 6,
	QP_INIT_SEND_OPS_FLAGS = 1 << 7,
};

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = { 8, 8, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = QP_INIT_PD | QP_INIT_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE
	};
	struct end a;

	open_end(&a, device(argc, argv));
	init.send_cq = init.recv_cq = ibv_create_cq(a.ctx, 16, NULL, NULL, 0);
	init.pd = a.pd;
	a.qp = ibv_create_qp_ex(a.ctx, &init);
	must(a.qp ? 0 : -1, "ibv_create_qp_ex");
	printf("QP %u\n", a.qp->qp_num);
	return 0;
}

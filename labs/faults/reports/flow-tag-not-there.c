// SPDX-License-Identifier: MIT
// report: https://github.com/uccl-project/uccl/pull/765
// symptom: the program that runs on one vendor's card cannot make a CQ on another's
// cause: wc_flags asks for fields of the completion that this device does not have
// expect: wc_flags|not support|unsupported|does not (have|know|offer)|IBV_WC_EX|FLOW_TAG|cannot (give|report)
// kind: extended
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a;
	struct ibv_cq_init_attr_ex ask = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_FLOW_TAG
	};
	struct ibv_cq_ex *cq;

	open_end(&a, device(argc, argv));
	cq = ibv_create_cq_ex(a.ctx, &ask);
	must(cq ? 0 : -1, "create_cq_ex");
	a.scq = a.rcq = ibv_cq_ex_to_cq(cq);
	make_qp(&a);
	printf("QP %u\n", a.qp->qp_num);
	return 0;
}

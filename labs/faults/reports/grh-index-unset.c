// SPDX-License-Identifier: MIT
// report: https://github.com/SymbioticLab/Justitia/issues/3
// symptom: ported from InfiniBand to RoCE the program cannot connect: the step to RTR is refused
// cause: the GRH is filled with the peer's GID only, sgid_index stays 0, and the own GID of that index is of another address family than the peer's
// expect: sgid|gid[_ ]?index|index (0|of the GID)|(IPv6|link-local|fe80).*(IPv4|10\.99)|(IPv4|10\.99).*(IPv6|link-local|fe80)|(address )?famil(y|ies)|own GID
// kind: attributes
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&a);
	make_qp(&b);
	cb = card(&b);
	at.qp_access_flags = REMOTE;
	must(ibv_modify_qp(a.qp, &at, TO_INIT), "to INIT");
	at.qp_state = IBV_QPS_RTR;
	at.path_mtu = IBV_MTU_1024;
	at.dest_qp_num = cb.qpn;
	at.rq_psn = 77;
	at.max_dest_rd_atomic = 1;
	at.min_rnr_timer = 12;
	at.ah_attr.port_num = 1;
	at.ah_attr.is_global = 1; /* for RoCE */
	at.ah_attr.grh.dgid = cb.gid;
	at.ah_attr.grh.hop_limit = 64;
	must(ibv_modify_qp(a.qp, &at, TO_RTR), "to RTR");
	at.qp_state = IBV_QPS_RTS;
	at.timeout = 14;
	at.retry_cnt = 3;
	at.rnr_retry = 7;
	at.sq_psn = 77;
	at.max_rd_atomic = 1;
	must(ibv_modify_qp(a.qp, &at, TO_RTS), "to RTS");
	connect_qp(&b, &(struct card){ .qpn = a.qp->qp_num, .gid = cb.gid });
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 64, &cb, IBV_SEND_SIGNALED),
	     "post");
	return next(a.scq, "write").status != IBV_WC_SUCCESS;
}

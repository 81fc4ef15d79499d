// SPDX-License-Identifier: MIT
// report: https://github.com/ROCm/rocm-systems/pull/11183
// symptom: the QP that a process has with itself, to flush what came in, dies at its first request
// cause: the QP's access flags allow only READ, and the flush begins with a WRITE of a dummy
// expect: qp_access|access[_ ]flags?|REMOTE_WRITE|(QP|queue pair).*(not allow|permit|right|grant|refus|accept)|not allow
// kind: attributes
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a;
	struct card me;
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	open_end(&a, device(argc, argv));
	make_qp(&a);
	me = card(&a);
	at.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	must(ibv_modify_qp(a.qp, &at, TO_INIT), "to INIT");
	at.qp_state = IBV_QPS_RTR;
	at.path_mtu = IBV_MTU_1024;
	at.dest_qp_num = me.qpn; /* itself */
	at.max_dest_rd_atomic = at.max_rd_atomic = 1;
	at.min_rnr_timer = 12;
	at.ah_attr.port_num = 1;
	at.ah_attr.is_global = 1;
	at.ah_attr.grh = (struct ibv_global_route){ me.gid, 0, 1, 4, 0 };
	must(ibv_modify_qp(a.qp, &at, TO_RTR), "to RTR");
	at.qp_state = IBV_QPS_RTS;
	at.timeout = 14;
	at.retry_cnt = 3;
	at.rnr_retry = 7;
	must(ibv_modify_qp(a.qp, &at, TO_RTS), "to RTS");
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 8, &me, 0), "post");
	must(post(&a, IBV_WR_RDMA_READ, 2, 8, &me, IBV_SEND_SIGNALED), "post");
	return next(a.scq, "flush").status != IBV_WC_SUCCESS;
}

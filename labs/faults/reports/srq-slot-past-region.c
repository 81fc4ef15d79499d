// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/issues/308
// symptom: a UD test passes with a queue for each QP and fails with the shared one: the receive ends with an error
// cause: the receive's length has the 40 bytes of the GRH but the registered memory has not, so the receive reaches past its region
// expect: (beyond|past|outside|exceed|behind|not (in|within|inside|covered)|end of|range|bounds|longer|larger)|40[- ]byte|GRH
// kind: ud
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	static const int mask[] = {
		0, (TO_INIT ^ IBV_QP_ACCESS_FLAGS) | IBV_QP_QKEY, IBV_QP_STATE,
		IBV_QP_STATE | IBV_QP_SQ_PSN
	};
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { 8, 8, 1, 1, 0 } };
	struct ibv_qp_attr at = { .port_num = 1, .qkey = 7 };
	struct ibv_ah_attr ah = { .port_num = 1, .is_global = 1 };
	struct ibv_sge g;
	struct ibv_send_wr w = { .wr_id = 2,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_srq_init_attr si = { .attr = { 8, 1, 0 } };
	struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &g, .num_sge = 1 },
			   *badr;
	struct end e; /* sends to itself */

	opt.size = 1024;
	open_end(&e, device(argc, argv));
	init.srq = ibv_create_srq(e.pd, &si);
	must(init.srq ? 0 : -1, "create_srq");
	e.scq = ibv_create_cq(e.ctx, 16, NULL, NULL, 0);
	e.rcq = ibv_create_cq(e.ctx, 16, NULL, NULL, 0);
	init.send_cq = e.scq;
	init.recv_cq = e.rcq;
	e.qp = ibv_create_qp(e.pd, &init);
	must(e.qp ? 0 : -1, "create_qp");
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		at.qp_state = s;
		must(ibv_modify_qp(e.qp, &at, mask[s]), "modify_qp");
	}
	ah.grh = (struct ibv_global_route){ card(&e).gid, 0, 1, 4, 0 };
	w.wr.ud.ah = ibv_create_ah(e.pd, &ah);
	w.wr.ud.remote_qpn = e.qp->qp_num;
	w.wr.ud.remote_qkey = 7;
	g = (struct ibv_sge){ (uintptr_t)e.buf, 1024 + 40, e.mr->lkey };
	must(ibv_post_srq_recv(init.srq, &r, &badr), "post_srq_recv");
	g.length = 1024;
	must(ibv_post_send(e.qp, &w, &bad), "post_send");
	return next(e.rcq, "received").status != IBV_WC_SUCCESS;
}

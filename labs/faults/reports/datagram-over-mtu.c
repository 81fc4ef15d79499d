// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/fabtests/pull/280
// symptom: the ping-pong stops at a larger size: the message was sent, says its completion, and does not arrive
// cause: a UD message must fit into one packet, and this one is longer than the MTU
// expect: MTU|one packet|single packet|too (long|large|big)|(longer|larger|bigger|more) than
// kind: ud
// run: one
// half: unseen
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
	struct end e; /* sends to itself */

	open_end(&e, device(argc, argv));
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
	g = (struct ibv_sge){ (uintptr_t)e.buf + 16384, 512, e.mr->lkey };
	for (; g.length <= 8192; g.length *= 4) {
		must(post_recv(&e, g.length, 40 + 8192), "post_recv");
		must(ibv_post_send(e.qp, &w, &bad), "post_send");
		next(e.scq, "sent");
		printf("%u bytes\n", next(e.rcq, "received").byte_len);
	}
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1441
// symptom: all messages of the group arrive, with the right length, and their text is wrong
// cause: the sender's buffer keeps 40 bytes in front for a GRH, as the receiver's does, and the send begins at its start instead of behind them
// expect: 40[- ]byte|[^0-9]40 |GRH
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
	char *out, *in;
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
	in = e.buf;	    /* 40 bytes of room for the GRH, then the message */
	out = e.buf + 4096; /* the same */
	strcpy(out + 40, "tick 1");
	g = (struct ibv_sge){ (uintptr_t)out, 64, e.mr->lkey };
	must(post_recv(&e, 1, 40 + 64), "post_recv");
	must(ibv_post_send(e.qp, &w, &bad), "post_send");
	next(e.rcq, "received");
	printf("the message says \"%s\"\n", in + 40);
	return !!strcmp(in + 40, "tick 1");
}

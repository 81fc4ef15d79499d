// SPDX-License-Identifier: MIT
// report: https://github.com/gpudirect/libgdsync/issues/43
// symptom: with the receive buffer cut to the size of the message the wait for the message never ends well
// cause: a UD receive needs 40 bytes more than the message, for the GRH in front of it
// expect: \b40\b|GRH|global routing header
// kind: ud
// run: one
// half: tuned
#include "rep.h"

static void ready(struct end *e)
{
	struct ibv_qp_init_attr init = { .cap = { 8, 8, 1, 1, 0 },
					 .qp_type = IBV_QPT_UD };
	struct ibv_qp_attr a = { .port_num = 1, .qkey = 0x1111 };

	init.send_cq = e->scq = ibv_create_cq(e->ctx, 16, NULL, NULL, 0);
	init.recv_cq = e->rcq = ibv_create_cq(e->ctx, 16, NULL, NULL, 0);
	e->qp = ibv_create_qp(e->pd, &init);
	must(e->qp ? 0 : -1, "create_qp");
	a.qp_state = IBV_QPS_INIT;
	must(ibv_modify_qp(e->qp, &a,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				   IBV_QP_QKEY),
	     "to INIT");
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE), "to RTR");
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "to RTS");
}

int main(int argc, char **argv)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1 };
	struct end a, b;

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	ready(&a);
	ready(&b);
	to.grh = (struct ibv_global_route){ card(&b).gid, 0, 1, 8, 0 };
	must(post_recv(&b, 1, 512), "post_recv");
	struct ibv_sge g = { (uintptr_t)a.buf, 512, a.mr->lkey };
	struct ibv_send_wr w = { .wr_id = 2,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	w.wr.ud.ah = ibv_create_ah(a.pd, &to);
	w.wr.ud.remote_qpn = b.qp->qp_num;
	w.wr.ud.remote_qkey = 0x1111;
	must(w.wr.ud.ah ? 0 : -1, "create_ah");
	must(ibv_post_send(a.qp, &w, &bad), "post");
	next(a.scq, "sent");
	return next(b.rcq, "received").status != IBV_WC_SUCCESS;
}

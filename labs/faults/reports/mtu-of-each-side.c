// SPDX-License-Identifier: MIT
// report: https://github.com/kvcache-ai/Mooncake/issues/3868
// symptom: small transfers work, the first large WRITE between two machines with different ports ends with an invalid request
// cause: each side sets path_mtu from its own port, nobody exchanges it, and packets of 1024 bytes come to a QP that has 512
// expect: mtu
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

static void up(struct end *e, const struct card *peer, int mtu)
{
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	at.qp_access_flags = REMOTE;
	must(ibv_modify_qp(e->qp, &at, TO_INIT), "to INIT");
	at.qp_state = IBV_QPS_RTR;
	at.path_mtu = mtu;
	at.dest_qp_num = peer->qpn;
	at.max_dest_rd_atomic = at.max_rd_atomic = 1;
	at.min_rnr_timer = 12;
	at.ah_attr.port_num = 1;
	at.ah_attr.is_global = 1;
	at.ah_attr.grh = (struct ibv_global_route){ peer->gid, 0, 1, 4, 0 };
	must(ibv_modify_qp(e->qp, &at, TO_RTR), "to RTR");
	at.qp_state = IBV_QPS_RTS;
	at.timeout = 14;
	at.retry_cnt = 3;
	at.rnr_retry = 7;
	must(ibv_modify_qp(e->qp, &at, TO_RTS), "to RTS");
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct card ca, cb;

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&a);
	make_qp(&b);
	ca = card(&a);
	cb = card(&b);
	up(&a, &cb, IBV_MTU_1024);
	up(&b, &ca, IBV_MTU_512);
	for (int len = 64; len <= 16384; len *= 16) {
		must(post(&a, IBV_WR_RDMA_WRITE, len, len, &cb,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(a.scq, "write").status != IBV_WC_SUCCESS)
			return 1;
	}
	return 0;
}

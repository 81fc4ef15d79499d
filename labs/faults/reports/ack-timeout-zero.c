// SPDX-License-Identifier: MIT
// report: https://github.com/ydb-platform/nbs/issues/2258
// symptom: after the other side was gone a request neither completes nor fails, for minutes
// cause: timeout stays 0 in ibv_modify_qp, which is no timeout at all: the QP never gives the request up although its peer's QP was destroyed
// expect: (timeout|timer).*(0|zero|infinit|never|no |off|unset)|(zero|infinit|no|never)[a-z ]*(timeout|timer|retransmi|retr)|(peer|remote|destination|other)[a-z ]*(QP|side|end)?.*(gone|destroyed|no longer|closed)
// kind: attributes
// run: one
// half: unseen
#include "rep.h"

static void up(struct end *e, const struct card *peer)
{
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	at.qp_access_flags = REMOTE;
	must(ibv_modify_qp(e->qp, &at, TO_INIT), "to INIT");
	at.qp_state = IBV_QPS_RTR;
	at.path_mtu = IBV_MTU_1024;
	at.dest_qp_num = peer->qpn;
	at.max_dest_rd_atomic = at.max_rd_atomic = 1;
	at.min_rnr_timer = 12;
	at.ah_attr.port_num = 1;
	at.ah_attr.is_global = 1;
	at.ah_attr.grh = (struct ibv_global_route){ peer->gid, 0, 1, 4, 0 };
	must(ibv_modify_qp(e->qp, &at, TO_RTR), "to RTR");
	at.qp_state = IBV_QPS_RTS;
	at.retry_cnt = 7;
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
	up(&a, &cb);
	up(&b, &ca);
	for (int i = 0; i < 3; i++) {
		if (i == 2)
			must(ibv_destroy_qp(b.qp), "destroy_qp");
		must(post(&a, IBV_WR_RDMA_WRITE, i, 64, &cb, IBV_SEND_SIGNALED),
		     "post");
		next(a.scq, "write");
	}
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/meta-pytorch/torchcomms/pull/3926
// symptom: WRITEs go through, the first READ never completes
// cause: nobody wrote max_rd_atomic, so the QP went to RTS with what the structure held, 0: it may have no READ or atomic outstanding
// expect: max_rd_atomic|rd_atom|outstanding (RDMA )?(READ|atomic)|(no|zero|0) (RDMA )?(READ|atomic)s?
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

static void up(struct end *e, const struct card *peer)
{
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	at.qp_access_flags = REMOTE;
	must(ibv_modify_qp(e->qp, &at, TO_INIT), "to INIT");
	at.qp_state = IBV_QPS_RTR;
	at.path_mtu = IBV_MTU_1024;
	at.dest_qp_num = peer->qpn;
	at.max_dest_rd_atomic = 16;
	at.min_rnr_timer = 12;
	at.ah_attr.port_num = 1;
	at.ah_attr.is_global = 1;
	at.ah_attr.grh = (struct ibv_global_route){ peer->gid, 0, 1, 4, 0 };
	must(ibv_modify_qp(e->qp, &at, TO_RTR), "to RTR");
	at.qp_state = IBV_QPS_RTS;
	at.timeout = 14;
	at.retry_cnt = 7;
	at.rnr_retry = 7;
	must(ibv_modify_qp(e->qp, &at, TO_RTS), "to RTS");
}

int main(int argc, char **argv)
{
	static const int ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
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
	for (int i = 0; i < 2; i++) {
		must(post(&a, ops[i], i, 64, &cb, IBV_SEND_SIGNALED), "post");
		next(a.scq, "request");
	}
	return 0;
}

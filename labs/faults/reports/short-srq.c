// SPDX-License-Identifier: MIT
// report: https://github.com/openucx/ucx/pull/10505
// symptom: with a short shared receive queue the senders hang, no error ever comes
// cause: the SRQ is refilled only when a whole batch is full, and its few receives run out before, so senders get RNR NAKs without end
// expect: no receive|(SRQ|shared receive queue).*(empty|ran out|run out|refill|drained)|(ran|run|runs) out of|receiver.not.ready|RNR
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

enum {
	SLOTS = 6,
	BATCH = 8
};

static void refill(struct end *e, int n)
{
	struct ibv_sge g = { (uintptr_t)e->buf, 256, e->mr->lkey };
	struct ibv_recv_wr w = { .sg_list = &g, .num_sge = 1 }, *bad;

	for (; n > 0; n--)
		must(ibv_post_srq_recv(e->srq, &w, &bad), "post_srq_recv");
}

int main(int argc, char **argv)
{
	struct ibv_srq_init_attr attr = { .attr = { SLOTS, 1, 0 } };
	struct end a, b;
	int got = 0;

	open_both(&a, &b, argc, argv);
	a.srq = ibv_create_srq(a.pd, &attr);
	a.scq = a.rcq = ibv_create_cq(a.ctx, 32, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .cap = { 4, 0, 1, 0, 0 },
					 .qp_type = IBV_QPT_RC };
	must(a.srq ? 0 : -1, "SRQ");
	make_qp_as(&a, &init);
	pair(&a, &b);
	refill(&a, SLOTS);
	for (int i = 0; i < 12; i++)
		must(post(&b, IBV_WR_SEND, i, 200, NULL, IBV_SEND_SIGNALED),
		     "post");
	while (got < 12) {
		next(a.rcq, "got");
		if (++got % BATCH == 0)
			refill(&a, BATCH);
	}
	return 0;
}

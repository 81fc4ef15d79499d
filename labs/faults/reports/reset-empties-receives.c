// SPDX-License-Identifier: MIT
// report: https://github.com/kvcache-ai/Mooncake/pull/1567
// symptom: after a reconnection the first notification never arrives, its sender waits for ever
// cause: the QPs were reconnected through RESET, which throws away the posted receives, and nobody posted them again
// expect: reset|(no|without a|without any|zero|missing|none)[a-z ]*(receive|recv)|(receive|recv)[a-z ]*(queue)?.*(empty|gone|thrown|discard|not posted|again)|RNR|receiver not ready
// kind: order
// run: one
// half: unseen
#include "rep.h"

static void reset(struct end *e)
{
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_RESET };

	must(ibv_modify_qp(e->qp, &at, IBV_QP_STATE), "to RESET");
}

static void notify(struct end *from, struct end *to, int id)
{
	must(post(from, IBV_WR_SEND, id, 64, NULL, IBV_SEND_SIGNALED), "post");
	next(from->scq, "sent");
	next(to->rcq, "notified");
}

int main(int argc, char **argv)
{
	struct end a, b;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	for (int i = 0; i < 8; i++)
		must(post_recv(&b, i, 256), "post_recv");
	notify(&a, &b, 100);
	printf("connecting again\n");
	reset(&a);
	reset(&b);
	pair(&a, &b);
	notify(&a, &b, 101);
	return 0;
}

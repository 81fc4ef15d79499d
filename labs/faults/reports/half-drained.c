// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/issues/137
// symptom: with several messages in flight the receiver stops half way and sleeps for ever, the sender is content
// cause: after a wake-up it polls once for at most four completions and sleeps again, though more lay in the CQ
// expect: (still|left|remains?|remaining|lies?|lay|waiting)[a-z0-9 ]* (in|on) (the |its |this |that |a )?(CQ|completion queue)|not (been )?(polled|drained|emptied|taken)|unread|poll[a-z_ ]*(again|once more|until|in a loop)|(drain|empty) (the|it)
// kind: balance
// run: one
// half: tuned
#include "rep.h"

static void drain(struct end *a, int *got)
{
	struct ibv_wc wc[4];
	struct ibv_cq *cq;
	void *ctx;

	must(ibv_get_cq_event(a->ch, &cq, &ctx), "get_cq_event");
	ibv_ack_cq_events(cq, 1);
	must(ibv_req_notify_cq(cq, 0), "arm");
	*got += ibv_poll_cq(cq, 4, wc);
	printf("%d messages so far\n", *got);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct end a, b;
	int got = 0;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	for (int i = 0; i < 10; i++)
		must(post_recv(&a, i, 512), "post_recv");
	must(ibv_req_notify_cq(a.rcq, 0), "arm");
	for (int i = 0; i < 10; i++)
		must(post(&b, IBV_WR_SEND, i, 512, NULL, IBV_SEND_SIGNALED),
		     "post");
	for (int i = 0; i < 10; i++)
		next(b.scq, "sent");
	while (got < 10)
		drain(&a, &got);
	return 0;
}

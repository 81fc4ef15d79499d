// SPDX-License-Identifier: MIT
// report: https://github.com/openucx/ucx/issues/1492
// symptom: the process sleeps on the channel's descriptor although the message it waits for has long been there
// cause: the wait for a send's completion took the receive's completion from the CQ too and put it on a list; no receive is outstanding, so no event can come
// expect: (nothing|none|no (receive|request|work request|WR))[a-z ]*(outstanding|posted)|(all|every)[a-z0-9 ]*(completion|request|receive)s?.*(taken|polled|completed|come|came|done)|already (been )?(taken|polled|read|completed)
// kind: nothing-outstanding
// run: one
// half: tuned
#include "rep.h"

static int unexpected;

static void wait_sent(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while ((wc = next(cq, "progress")).wr_id != 100)
		unexpected++;
}

static void wait_message(struct end *a)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *ctx;

	for (;;) {
		must(ibv_req_notify_cq(a->rcq, 0), "arm");
		if (ibv_poll_cq(a->rcq, 1, &wc) > 0)
			return;
		printf("sleep\n");
		fflush(stdout);
		must(ibv_get_cq_event(a->ch, &cq, &ctx), "get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
}

int main(int argc, char **argv)
{
	struct end a, b;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	a.scq = a.rcq = ibv_create_cq(a.ctx, 32, NULL, a.ch, 0);
	pair(&a, &b);
	must(post_recv(&a, 1, 300), "post_recv");
	must(post_recv(&b, 2, 300), "post_recv");
	must(post(&b, IBV_WR_SEND, 3, 200, NULL, IBV_SEND_SIGNALED), "post");
	next(b.scq, "peer sent");
	must(post(&a, IBV_WR_SEND, 100, 200, NULL, IBV_SEND_SIGNALED), "post");
	wait_sent(a.scq);
	wait_message(&a);
	return 0;
}

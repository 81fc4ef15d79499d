// SPDX-License-Identifier: MIT
// report: https://github.com/valkey-io/libvalkey/pull/301
// symptom: a client that writes and reads at the same time sleeps in its event loop, although the reply has been there for long
// cause: the write had to wait for the peer and took the event and both completions from the CQ, also that of the reply; the event loop waits for an event of the channel, and nothing is outstanding that could make one
// expect: (nothing|none|no (receive|request|work request|WR))[a-z ]*(outstanding|posted)|(all|every)[a-z0-9 ]*(completion|request|receive)s?.*(taken|polled|completed|come|came|done)|already (been )?(taken|polled|read|completed)
// kind: nothing-outstanding
// run: one
// half: tuned
#include "rep.h"

static int room, replies;

static void handle(struct end *a)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *ctx;

	must(ibv_get_cq_event(a->ch, &cq, &ctx), "get_cq_event");
	ibv_ack_cq_events(cq, 1);
	must(ibv_req_notify_cq(cq, 0), "arm");
	while (ibv_poll_cq(cq, 1, &wc) > 0) {
		if (wc.wr_id == 1)
			room = 1;
		else
			replies++;
	}
}

int main(int argc, char **argv)
{
	struct end a, b;

	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	must(post_recv(&a, 1, 64), "post_recv");
	must(post_recv(&a, 2, 512), "post_recv");
	must(ibv_req_notify_cq(a.rcq, 0), "arm");
	must(post(&b, IBV_WR_SEND, 1, 64, NULL, IBV_SEND_SIGNALED), "post");
	must(post(&b, IBV_WR_SEND, 2, 512, NULL, IBV_SEND_SIGNALED), "post");
	next(b.scq, "peer: room");
	next(b.scq, "peer: reply");
	while (!room) /* before it writes */
		handle(&a);
	printf("written, wait for an event\n");
	for (int before = replies; replies == before;)
		handle(&a);
	printf("reply\n");
	return 0;
}

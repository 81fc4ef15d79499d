// SPDX-License-Identifier: MIT
// report: https://github.com/apache/brpc/pull/3425
// symptom: now and then a request that has arrived is not handled until something else happens on the connection
// cause: both CQs are armed once both are empty, but then only the send CQ is polled again; a message that came before the receive CQ was armed makes no event
// expect: (still|left|remains?|remaining|lies?|lay|waiting)[a-z0-9 ]* (in|on) (the |its |this |that |a )?(receive |recv )?(CQ|completion queue)|not (been )?(polled|drained|emptied|taken)|unread|poll[a-z_ ]*(again|once more)|armed[a-z ]*(after|too late|late)
// kind: order
// run: one
// half: tuned
#include "rep.h"

static struct end a, b;

static void poll_cqs(void)
{
	struct ibv_cq *cq = a.rcq;
	struct ibv_wc wc;
	int armed = 0;

	for (;;) {
		if (ibv_poll_cq(cq, 1, &wc) > 0) {
			printf("request %d is done\n", (int)wc.wr_id);
		} else if (cq == a.rcq) {
			cq = a.scq;
		} else if (!armed) {
			usleep(100000); /* scheduled away */
			must(ibv_req_notify_cq(a.rcq, 1), "arm");
			must(ibv_req_notify_cq(a.scq, 0), "arm");
			armed = 1;
		} else {
			return;
		}
	}
}

static void *client(void *arg)
{
	usleep(arg ? 0 : 50000);
	must(post(&b, IBV_WR_SEND, 5, 900, NULL,
		  IBV_SEND_SIGNALED | IBV_SEND_SOLICITED),
	     "post");
	next(b.scq, "client sent");
	return NULL;
}

int main(int argc, char **argv)
{
	struct ibv_cq *cq;
	pthread_t t;
	void *ctx;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	must(post_recv(&a, 1, 1024), "post_recv");
	must(pthread_create(&t, NULL, client, NULL), "thread");
	poll_cqs();
	return ibv_get_cq_event(a.ch, &cq, &ctx);
}

// SPDX-License-Identifier: MIT
// report: https://github.com/apache/brpc/issues/3132
// symptom: the sender waits for room in its send queue on the channel and is never woken, although the peer has everything
// cause: the CQ is armed with solicited_only = 1; a completion of an own send is not solicited and makes no event, it lies in the CQ
// expect: solicited
// kind: order
// run: one
// half: tuned
#include "rep.h"

enum {
	WINDOW = 8
};

int main(int argc, char **argv)
{
	int unfinished = 0;
	struct ibv_cq *cq;
	struct end a, b;
	struct ibv_wc wc;
	void *ctx;

	open_both(&a, &b, argc, argv);
	opt.depth = WINDOW;
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	must(ibv_req_notify_cq(a.scq, 1), "arm");
	for (int i = 0; i < 40; i++) {
		while (unfinished == WINDOW) {
			printf("the window is full\n");
			fflush(stdout);
			must(ibv_get_cq_event(a.ch, &cq, &ctx), "event");
			ibv_ack_cq_events(cq, 1);
			must(ibv_req_notify_cq(cq, 1), "arm");
			while (ibv_poll_cq(cq, 1, &wc) > 0)
				unfinished--;
		}
		must(post_recv(&b, i, 128), "post_recv");
		must(post(&a, IBV_WR_SEND, i, 128, NULL, IBV_SEND_SIGNALED),
		     "post");
		unfinished++;
	}
	printf("done\n");
	return 0;
}

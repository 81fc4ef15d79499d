// SPDX-License-Identifier: MIT
// report: https://github.com/Mellanox/libvma/pull/866
// symptom: none: events are taken one by one and acknowledged all at once at the end, and the CQ is destroyed at once
// cause: innocent: acknowledgements may be put together, they only have to be complete before ibv_destroy_cq
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	int events = 0;
	void *ctx;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	for (int got = 0, i = 0; i < 30; i++) {
		must(post_recv(&a, i, 700), "post_recv");
		must(ibv_req_notify_cq(a.rcq, 0), "arm");
		must(post(&b, IBV_WR_SEND, i, 700, NULL, IBV_SEND_SIGNALED),
		     "post");
		while (got <= i) {
			must(ibv_get_cq_event(a.ch, &cq, &ctx), "event");
			events++;
			must(ibv_req_notify_cq(cq, 0), "arm");
			while (ibv_poll_cq(cq, 1, &wc) > 0)
				got += !wc.status;
		}
		next(b.scq, "sent");
	}
	ibv_ack_cq_events(a.rcq, events);
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	must(ibv_destroy_cq(a.rcq), "destroy_cq");
	must(ibv_destroy_cq(a.scq), "destroy_cq");
	must(ibv_destroy_comp_channel(a.ch), "destroy_comp_channel");
	printf("%d events\n", events);
	return 0;
}

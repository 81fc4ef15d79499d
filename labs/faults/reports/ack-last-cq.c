// SPDX-License-Identifier: MIT
// report: https://github.com/openucx/ucx/issues/1039
// symptom: messages go both ways, but at the end the process sits in ibv_destroy_cq and never leaves it
// cause: events of two CQs come on one channel, and all of them are acknowledged on the CQ that came last
// expect: acknowledg|unacked|ibv_ack_cq_events
// kind: balance
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_cq *cq = NULL;
	struct end a, b;
	void *ctx;
	int events;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	must(post_recv(&a, 1, 256), "post_recv");
	must(post_recv(&b, 2, 256), "post_recv");
	must(ibv_req_notify_cq(a.scq, 0), "arm");
	must(ibv_req_notify_cq(a.rcq, 0), "arm");
	must(post(&a, IBV_WR_SEND, 3, 64, NULL, IBV_SEND_SIGNALED), "post");
	must(post(&b, IBV_WR_SEND, 4, 64, NULL, IBV_SEND_SIGNALED), "post");
	for (events = 0; events < 2; events++)
		must(ibv_get_cq_event(a.ch, &cq, &ctx), "get_cq_event");
	ibv_ack_cq_events(cq, events);
	next(a.scq, "sent");
	next(a.rcq, "received");
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	printf("destroying the CQs\n");
	fflush(stdout);
	must(ibv_destroy_cq(a.scq), "destroy_cq");
	must(ibv_destroy_cq(a.rcq), "destroy_cq");
	printf("done\n");
	return 0;
}

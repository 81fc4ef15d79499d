// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/795
// symptom: the first wait on the completion channel never returns, though the peer's message has been delivered
// cause: a CQ gives no event until ibv_req_notify_cq has been called, and nobody calls it before the first wait
// expect: (never|not|un)[ -]?(been )?armed|arm (it|the|a|this)|ibv_req_notify_cq
// kind: balance
// run: server/client
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's', fd = meet(server, 7001);
	struct card me, peer;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct end e;
	void *ctx;

	open_end(&e, device(argc, argv));
	if (server)
		e.ch = ibv_create_comp_channel(e.ctx);
	join(fd, &e, &me, &peer);
	must(post_recv(&e, 1, 1024), "post_recv");
	swap(fd, "r", &ctx, 1);
	if (!server) {
		must(post(&e, IBV_WR_SEND, 2, 1024, NULL, IBV_SEND_SIGNALED),
		     "post");
		next(e.scq, "sent");
		swap(fd, "x", &ctx, 1);
		return 0;
	}
	printf("waiting for a message\n");
	must(ibv_get_cq_event(e.ch, &cq, &ctx), "get_cq_event");
	ibv_ack_cq_events(cq, 1);
	must(ibv_req_notify_cq(cq, 0), "arm");
	while (ibv_poll_cq(cq, 1, &wc) > 0)
		printf("message %d\n", (int)wc.wr_id);
	swap(fd, "x", &ctx, 1);
	return 0;
}

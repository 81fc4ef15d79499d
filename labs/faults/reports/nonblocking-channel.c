// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1564
// symptom: none: ibv_get_cq_event fails with EAGAIN again and again
// cause: innocent: the channel is set to O_NONBLOCK and waited for with poll and a timeout, EAGAIN says that nothing has come yet
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

#include <fcntl.h>
#include <poll.h>

static int wait_event(struct end *e, int ms)
{
	struct pollfd p = { e->ch->fd, POLLIN, 0 };
	struct ibv_cq *cq;
	void *ctx;

	while (ibv_get_cq_event(e->ch, &cq, &ctx)) {
		if (errno != EAGAIN)
			must(-1, "get_cq_event");
		if (poll(&p, 1, ms) < 1)
			return 0;
	}
	ibv_ack_cq_events(cq, 1);
	must(ibv_req_notify_cq(cq, 0), "arm");
	return 1;
}

int main(int argc, char **argv)
{
	int got = 0, idle = 0;
	struct end a, b;
	struct ibv_wc wc;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	fcntl(a.ch->fd, F_SETFL, fcntl(a.ch->fd, F_GETFL) | O_NONBLOCK);
	pair(&a, &b);
	must(post_recv(&a, 1, 900), "post_recv");
	must(ibv_req_notify_cq(a.rcq, 0), "arm");
	while (!got) {
		idle += !wait_event(&a, 200);
		got = ibv_poll_cq(a.rcq, 1, &wc);
		if (idle == 5 && !got++) /* somebody sends at last */
			got = post(&b, IBV_WR_SEND, 2, 900, NULL,
				   IBV_SEND_SIGNALED);
	}
	printf("received after %d idle rounds\n", idle);
	return wc.status != IBV_WC_SUCCESS;
}

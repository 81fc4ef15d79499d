// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/657
// symptom: a test that fails in the middle does not end, it hangs while its objects are destroyed
// cause: the error path leaves before the CQ event is acknowledged, and ibv_destroy_cq waits for that
// expect: acknowledg|unacked|ibv_ack_cq_events
// kind: balance
// run: one
// half: tuned
#include "rep.h"

static int take(struct end *e, int len)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *ctx;

	must(ibv_get_cq_event(e->ch, &cq, &ctx), "get_cq_event");
	if (ibv_poll_cq(cq, 1, &wc) != 1 || (int)wc.byte_len != len) {
		fprintf(stderr, "%u bytes, not %d\n", wc.byte_len, len);
		return 1;
	}
	ibv_ack_cq_events(cq, 1);
	return 0;
}

int main(int argc, char **argv)
{
	struct end a, b;
	int failed = 0;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	for (int i = 0; i < 4 && !failed; i++) {
		must(post_recv(&a, i, 1000), "post_recv");
		must(ibv_req_notify_cq(a.rcq, 0), "arm");
		must(post(&b, IBV_WR_SEND, i, i < 2 ? 1000 : 999, NULL,
			  IBV_SEND_SIGNALED),
		     "post");
		next(b.scq, "sent");
		failed = take(&a, 1000);
	}
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	must(ibv_destroy_cq(a.rcq), "destroy_cq");
	must(ibv_destroy_cq(a.scq), "destroy_cq");
	printf("torn down\n");
	return failed;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1470
// symptom: a first look at an empty extended CQ is followed by a completion that nobody made, and the peer's sends fail
// cause: ibv_end_poll is called although ibv_start_poll found nothing (ENOENT); it may be called only after a start that succeeded
// expect: ibv_end_poll|end_poll|ibv_start_poll|start_poll
// kind: extended
// run: one
// half: tuned
#include "rep.h"

static int one(struct ibv_cq_ex *cq, uint64_t *id)
{
	int got = 0, ret = ibv_start_poll(cq, &(struct ibv_poll_cq_attr){ 0 });

	if (!ret) {
		*id = cq->wr_id;
		printf("request %d: %s\n", (int)*id,
		       ibv_wc_status_str(cq->status));
		got = 1;
	}
	ibv_end_poll(cq);
	return got;
}

int main(int argc, char **argv)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 15,
					    .wc_flags =
						    IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *cq;
	struct end a, b;
	uint64_t id;

	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(&a, &b, argc, argv);
	cq = ibv_create_cq_ex(a.ctx, &attr);
	must(cq ? 0 : -1, "create_cq_ex");
	a.scq = a.rcq = ibv_cq_ex_to_cq(cq);
	pair(&a, &b);
	for (int i = 0; i < 4; i++)
		must(post_recv(&a, 10 + i, 128), "post_recv");
	one(cq, &id); /* nothing there yet */
	for (int i = 0; i < 4; i++) {
		must(post(&b, IBV_WR_SEND, i, 128, NULL, IBV_SEND_SIGNALED),
		     "post");
		next(b.scq, "peer sent");
		while (!one(cq, &id))
			usleep(1000);
		if (id != 10 + (unsigned)i)
			must(EBADMSG, "another message was expected");
	}
	printf("four messages\n");
	return 0;
}

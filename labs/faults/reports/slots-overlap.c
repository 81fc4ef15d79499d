// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/338
// symptom: of a round of messages the first one is lost: its place holds the last one
// cause: a wrong index in the cycle of addresses gives the last receive of the round the buffer of the first one
// expect: (same|overlap|two|twice|shared?).*(buffer|address|memory|slot|place|bytes)|(buffer|slot|place) of (the|another|receive)|overwr|overlap|(buffer|address|memory|slot).*(twice|same|overlap|shared|again)
// kind: memory
// run: one
// half: tuned
#include "rep.h"

enum {
	SLOTS = 4,
	MSG = 1024
};

static int post_slot(struct end *e, int id, int slot)
{
	struct ibv_sge g = { (uintptr_t)e->buf + slot * MSG, MSG, e->mr->lkey };
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &g, .num_sge = 1 },
			   *bad;

	return ibv_post_recv(e->qp, &w, &bad);
}

int main(int argc, char **argv)
{
	struct end a, b;
	int slot = 0;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	for (int i = 0; i < SLOTS; i++) {
		must(post_slot(&b, i, slot), "post_recv");
		slot = (i + 2) % SLOTS ? slot + 1 : 0;
	}
	for (int i = 0; i < SLOTS; i++) {
		memset(a.buf, 'A' + i, MSG);
		must(post(&a, IBV_WR_SEND, i, MSG, NULL, IBV_SEND_SIGNALED),
		     "post");
		next(a.scq, "sent");
		next(b.rcq, "received");
	}
	printf("the first message says %c\n", b.buf[0]);
	return b.buf[0] != 'A';
}

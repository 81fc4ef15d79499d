// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/10150
// symptom: a sender that ran out of send credits spins at full load and never gets one back
// cause: to win credits back it polls the receive CQ, but the completions of sends are in the send CQ
// expect: send.?cq|(other|another|different|wrong|second) (CQ|completion queue)|never polled|not (been )?polled|nobody polls|unread
// kind: balance
// run: one
// half: tuned
#include "rep.h"

static int credits = 8;

static void reclaim(struct ibv_cq *cq)
{
	struct ibv_wc wc[8];
	int n;

	while (!credits) {
		n = ibv_poll_cq(cq, 8, wc);
		if (n < 0)
			must(-1, "poll_cq");
		credits += n;
	}
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	opt.depth = credits;
	pair(&a, &b);
	to = card(&b);
	for (int i = 0; i < 100; i++, credits--) {
		if (!credits) {
			printf("out of credits after %d writes\n", i);
			fflush(stdout);
			reclaim(a.rcq);
		}
		must(post(&a, IBV_WR_RDMA_WRITE, i, 4096, &to,
			  IBV_SEND_SIGNALED),
		     "post");
	}
	printf("done\n");
	return 0;
}

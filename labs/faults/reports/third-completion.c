// SPDX-License-Identifier: MIT
// report: https://github.com/ROCm/rccl/pull/1374
// symptom: under load some completions never show up and the transfer stands still
// cause: the CQ is sized for two completions for each request, but a request makes three, so the CQ overruns
// expect: overr[au]n|overflow|(CQ|completion queue).*(too small|room for|is full|was full|holds)
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

enum {
	REQUESTS = 15
};

int main(int argc, char **argv)
{
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	opt.depth = 2 * REQUESTS;
	make_qp(&b);
	a.scq = a.rcq = ibv_create_cq(a.ctx, 2 * REQUESTS, NULL, NULL, 0);
	make_qp(&a);
	pair(&a, &b);
	to = card(&b);
	for (int i = 0; i < REQUESTS; i++) {
		must(post_recv(&a, 100 + i, 64), "post_recv");
		must(post_recv(&b, i, 64), "post_recv");
		must(post(&a, IBV_WR_RDMA_WRITE, 200 + i, 512, &to,
			  IBV_SEND_SIGNALED),
		     "post");
		must(post(&a, IBV_WR_SEND, 300 + i, 64, NULL,
			  IBV_SEND_SIGNALED),
		     "post");
		must(post(&b, IBV_WR_SEND, i, 64, NULL, IBV_SEND_SIGNALED),
		     "post");
	}
	usleep(300000); /* the application computes */
	for (int i = 0; i < 3 * REQUESTS; i++)
		next(a.scq, "completed");
	printf("all requests are done\n");
	return 0;
}

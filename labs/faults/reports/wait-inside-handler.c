// SPDX-License-Identifier: MIT
// report: https://github.com/open-mpi/ompi/issues/3616
// symptom: a one-sided program with locks stops for ever inside its progress function, its network idle
// cause: a completion's handler posts a request and waits for it through the progress function, which does nothing while a handler runs: the completion lies in the CQ and nobody takes it
// expect: (completion|CQ).*(not (taken|read|polled|picked|fetched)|unread|unpolled|untaken|lies|waits|waiting|ready|there|left|stays)|(not|never|nobody|stopped|no longer|without)[a-z ]*(poll|ibv_poll)|recurs|handler|callback
// kind: order
// run: one
// half: tuned
#include "rep.h"

static struct end a, b;
static struct card cb;
static int in_handler, unlocked, finished;

static void progress(void);

static void handle(const struct ibv_wc *wc)
{
	printf("completion %d\n", (int)wc->wr_id);
	fflush(stdout);
	if (wc->wr_id == 1) { /* the data is there: release the lock */
		must(post(&a, IBV_WR_RDMA_WRITE, 2, 8, &cb, IBV_SEND_SIGNALED),
		     "post");
		while (!unlocked)
			progress();
		finished = 1;
	} else {
		unlocked = 1;
	}
}

static void progress(void)
{
	struct ibv_wc wc;

	usleep(200);
	if (in_handler)
		return;
	in_handler = 1;
	if (ibv_poll_cq(a.scq, 1, &wc) > 0)
		handle(&wc);
	in_handler = 0;
}

int main(int argc, char **argv)
{
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 4096, &cb, IBV_SEND_SIGNALED),
	     "post");
	while (!finished)
		progress();
	return 0;
}

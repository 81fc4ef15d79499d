// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/7961
// symptom: closing a connection waits for its receive buffers to come back, and they never do
// cause: the QP is destroyed with receives posted; only a move to ERR before that would have flushed them into the CQ
// expect: destroy[a-z_]*.*(outstanding|still posted|never complete|lost|went away|vanish|without)|(outstanding|requests?|receives?).*(destroyed|went away|are gone|lost|never complete)|(ERR|error state).*(before|first)
// kind: order
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	int home = 0;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	for (int i = 0; i < 12; i++)
		must(post_recv(&a, i, 1024), "post_recv");
	for (int i = 0; i < 3; i++) {
		must(post(&b, IBV_WR_SEND, i, 1000, NULL, IBV_SEND_SIGNALED),
		     "post");
		next(b.scq, "sent");
		next(a.rcq, "received");
		home++;
	}
	printf("close\n");
	fflush(stdout);
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	while (home < 12) {
		next(a.rcq, "flushed");
		home++;
	}
	must(ibv_dereg_mr(a.mr), "dereg_mr");
	printf("all buffers are back\n");
	return 0;
}

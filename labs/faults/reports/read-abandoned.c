// SPDX-License-Identifier: MIT
// report: https://github.com/novitalabs/pegaflow/issues/403
// symptom: after a transfer has timed out its memory is given up, and the next completions are local protection errors
// cause: the MR is deregistered while READs into it are still outstanding; the QP was not moved to ERR and drained before
// expect: (deregister|ibv_dereg_mr)[a-z_]*.*(outstanding|while|before|still|in flight|under way|earlier|ago|too early)|(MR|memory region|lkey).*(deregistered|no longer|gone)
// kind: order
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct card from, me;
	struct end a, b;
	int bad = 0;

	open_both(&a, &b, argc, argv);
	make_qp(&a);
	make_qp(&b);
	me = card(&a);
	from = card(&b);
	connect_qp(&a, &from);
	for (int i = 0; i < 8; i++)
		must(post(&a, IBV_WR_RDMA_READ, i, opt.size, &from,
			  IBV_SEND_SIGNALED),
		     "post");
	printf("too slow: give the buffer up\n");
	fflush(stdout);
	must(ibv_dereg_mr(a.mr), "dereg_mr");
	free(a.buf);
	connect_qp(&b, &me); /* now it answers */
	for (int i = 0; i < 8; i++)
		bad |= next(a.scq, "read").status;
	return !!bad;
}

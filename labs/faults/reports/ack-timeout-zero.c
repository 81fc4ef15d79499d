// SPDX-License-Identifier: MIT
// report: https://github.com/ydb-platform/nbs/issues/2258
// symptom: after the other side was gone a request neither completes nor fails, for minutes
// cause: timeout stays 0 in ibv_modify_qp, which is no timeout at all: the QP never gives the request up although its peer's QP was destroyed
// expect: (timeout|timer).*(0|zero|infinit|never|no |off|unset)|(zero|infinit|no|never)[a-z ]*(timeout|timer|retransmi|retr)|(peer|remote|destination|other)[a-z ]*(QP|side|end)?.*(gone|destroyed|no longer|closed)
// kind: attributes
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card ca, cb;

	opt.qp.rq_psn = opt.qp.sq_psn = 0;
	opt.qp.max_dest_rd_atomic = opt.qp.max_rd_atomic = 1;
	opt.qp.retry_cnt = 7;
	opt.qp.timeout = 0;
	open_both(&a, &b, argc, argv);
	make_qp(&a);
	make_qp(&b);
	ca = card(&a);
	cb = card(&b);
	connect_qp(&a, &cb);
	connect_qp(&b, &ca);
	for (int i = 0; i < 3; i++) {
		if (i == 2)
			must(ibv_destroy_qp(b.qp), "destroy_qp");
		must(post(&a, IBV_WR_RDMA_WRITE, i, 64, &cb, IBV_SEND_SIGNALED),
		     "post");
		next(a.scq, "write");
	}
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ska-sa/spead2/pull/134
// symptom: the memory of the completion queues is never given back, and freeing one says it is busy
// cause: the CQ is destroyed before the QP that uses it
// expect: \bQP\b.*(still|uses|using|use|refer|belong|attached)|(destroy|ibv_destroy_qp).*\bQP.*(first|before)
// kind: order
// run: one
// half: tuned
#include "rep.h"

struct stream {
	struct end e;
	int open;
};

static int close_stream(struct stream *s)
{
	int cq = ibv_destroy_cq(s->e.rcq), qp = ibv_destroy_qp(s->e.qp);
	int mr = ibv_dereg_mr(s->e.mr);

	printf("CQ: %s\nQP: %s\nMR: %s\n", strerror(cq), strerror(qp),
	       strerror(mr));
	s->open = 0;
	return cq || qp || mr;
}

int main(int argc, char **argv)
{
	struct stream in = { .open = 1 }, out = { .open = 1 };

	open_both(&in.e, &out.e, argc, argv);
	pair(&in.e, &out.e);
	must(post_recv(&in.e, 5, 2048), "post_recv");
	must(post(&out.e, IBV_WR_SEND, 6, 2048, NULL, IBV_SEND_SIGNALED),
	     "post");
	next(out.e.scq, "sent");
	next(in.e.rcq, "received");
	return close_stream(&in);
}

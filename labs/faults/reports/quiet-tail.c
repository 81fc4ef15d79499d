// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/4474
// symptom: the last requests of a program have no completions
// cause: nothing: they are unsignaled, the data has been seen at the peer before the QP is destroyed
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;
	volatile char *last;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	last = b.buf + 255;
	for (int i = 1; i <= 27; i++) {
		memset(a.buf, i, 256);
		must(post(&a, IBV_WR_RDMA_WRITE, i, 256, &cb,
			  i % 8 ? 0 : IBV_SEND_SIGNALED),
		     "post");
		if (i % 8 == 0 &&
		    next(a.scq, "eight writes").status != IBV_WC_SUCCESS)
			return 1;
		while (*last != i)
			usleep(100);
	}
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	must(ibv_destroy_qp(b.qp), "destroy_qp");
	printf("the peer has %d\n", *last);
	return 0;
}

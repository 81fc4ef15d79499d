// SPDX-License-Identifier: MIT
// report: https://github.com/NVIDIA/nccl/issues/954
// symptom: a process uses the CPU for seconds and does not ask for its completions
// cause: nothing: it computes between the post and the poll, the CQ has room for all
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;
	volatile double sum = 0;
	time_t until;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 12; i++)
			must(post(&a, IBV_WR_RDMA_WRITE, i, 4096, &cb,
				  IBV_SEND_SIGNALED),
			     "post");
		until = time(NULL) + 2;
		for (long i = 1; time(NULL) < until; i++)
			sum += 1.0 / i;
		for (int i = 0; i < 12; i++)
			if (next(a.scq, "write").status != IBV_WC_SUCCESS)
				return 1;
	}
	printf("sum %f\n", sum);
	return 0;
}

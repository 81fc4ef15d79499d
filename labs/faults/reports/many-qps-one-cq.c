// SPDX-License-Identifier: MIT
// report: https://github.com/ROCm/TransferBench/pull/239
// symptom: with few QPs a transfer ends, with many it hangs: the last completions never come
// cause: all QPs share one CQ of a fixed size, and with many QPs it has more outstanding requests than entries: it overruns
// expect: overr[au]n|overflow|(CQ|completion queue).*(too small|room for|is full|was full|holds|entries)
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

enum {
	QPS = 12,
	EACH = 8,
	ENTRIES = 63
};

int main(int argc, char **argv)
{
	static struct end mine[QPS], theirs[QPS];
	struct ibv_cq *cq = NULL;
	struct card to;
	int done = 0;

	opt.size = 8192;
	for (int i = 0; i < QPS; i++) {
		open_both(&mine[i], &theirs[i], argc, argv);
		if (i) { /* all of them on the first one's context and CQ */
			mine[i].ctx = mine[0].ctx;
			mine[i].pd = mine[0].pd;
			mine[i].mr = mine[0].mr;
			mine[i].buf = mine[0].buf;
		}
		cq = cq ?: ibv_create_cq(mine[0].ctx, ENTRIES, NULL, NULL, 0);
		mine[i].scq = mine[i].rcq = cq;
		pair(&mine[i], &theirs[i]);
	}
	for (int i = 0; i < QPS; i++)
		for (int n = 0; n < EACH; n++) {
			to = card(&theirs[i]);
			must(post(&mine[i], IBV_WR_RDMA_WRITE, i * EACH + n,
				  1024, &to, IBV_SEND_SIGNALED),
			     "post");
		}
	sleep(1); /* the GPU is busy */
	while (done < QPS * EACH) {
		next(cq, "write");
		done++;
	}
	return 0;
}

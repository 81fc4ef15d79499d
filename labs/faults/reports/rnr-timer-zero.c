// SPDX-License-Identifier: MIT
// report: https://github.com/ydb-platform/nbs/issues/5790
// symptom: as soon as there are more requests than receives at the peer, each takes more than half a second
// cause: min_rnr_timer was left at 0, which is the longest wait (655 ms), and rnr_retry 7 hides it
// expect: min_rnr_timer|655|RNR.*(timer|wait|delay|ms)|receiver.not.ready
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	struct end a, b;
	double start;

	setvbuf(stdout, NULL, _IOLBF, 0);
	opt.qp.min_rnr_timer = 0;
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	start = now();
	for (int i = 0; i < 6; i++) {
		must(post(&b, IBV_WR_SEND, i, 1024, NULL, IBV_SEND_SIGNALED),
		     "post");
		usleep(2000);
		must(post_recv(&a, i, 1024), "post_recv");
		next(a.rcq, "request");
		next(b.scq, "sent");
		printf("%.0f ms\n", (now() - start) * 1e3);
		start = now();
	}
	return 0;
}

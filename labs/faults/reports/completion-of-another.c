// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/7627
// symptom: with one server thread all is well, with two each soon waits for its message for ever
// cause: the threads post to and poll the same queue, so a thread often takes the completion of a receive that another one posted, and throws it away
// expect: (other|another|two|different|second|both|several) threads?|threads?.*(took|taken|polled|polls|consum)|already (been )?(taken|polled)
// kind: threads
// run: one
// half: tuned
#include "rep.h"

static struct end a;

static void *serve(void *arg)
{
	int mine = (uintptr_t)arg;
	struct ibv_wc wc;

	for (int i = 0; i < 50; i++) {
		must(post_recv(&a, mine, 256), "post_recv");
		do {
			while (!ibv_poll_cq(a.rcq, 1, &wc))
				usleep(500);
			if ((int)wc.wr_id != mine)
				printf("thread %d: not mine\n", mine);
		} while ((int)wc.wr_id != mine);
	}
	printf("thread %d is done\n", mine);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[2];
	struct end b;

	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	for (uintptr_t i = 0; i < 2; i++)
		must(pthread_create(&t[i], NULL, serve, (void *)(i + 1)),
		     "thread");
	for (int i = 0; i < 100; i++) {
		must(post(&b, IBV_WR_SEND, i, 256, NULL, IBV_SEND_SIGNALED),
		     "post");
		while (!ibv_poll_cq(b.scq, 1, &(struct ibv_wc){ 0 }))
			usleep(500);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("done\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/hellas-ai/thunderbolt-ibverbs/pull/71
// symptom: the sends of a program take long, again and again the receiver is not ready
// cause: nothing: the receiver posts a receive when it has time, the sender's QP tries again without limit, as it was told to
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

static void *reader(void *arg)
{
	struct end *b = arg;

	for (int i = 0; i < 14; i++) {
		usleep(150000); /* works on the last one */
		must(post_recv(b, i, 1024), "post_recv");
		next(b->rcq, "received");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct end a, b;
	pthread_t t;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	must(pthread_create(&t, NULL, reader, &b), "thread");
	for (int i = 0; i < 14; i++)
		must(post(&a, IBV_WR_SEND, i, 1024, NULL, IBV_SEND_SIGNALED),
		     "post");
	for (int i = 0; i < 14; i++)
		if (next(a.scq, "sent").status != IBV_WC_SUCCESS)
			return 1;
	pthread_join(t, NULL);
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ceph/ceph/pull/17016
// symptom: at its end the program hangs, the poller and the one who stops it both wait
// cause: the stopping function holds the lock while it joins the poller, and the poller needs the lock for its next round
// expect: lock|mutex|join|deadlock
// kind: threads
// run: one
// half: tuned
#include "rep.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct end a, b;
static int done, got;

static void *poller(void *arg)
{
	struct ibv_wc wc;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&lock);
		if (done) {
			pthread_mutex_unlock(&lock);
			return NULL;
		}
		got += ibv_poll_cq(a.scq, 1, &wc);
		pthread_mutex_unlock(&lock);
		usleep(1000);
	}
}

static void stop(pthread_t t)
{
	pthread_mutex_lock(&lock);
	done = 1;
	pthread_join(t, NULL);
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
	struct card cb;
	pthread_t t;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	must(pthread_create(&t, NULL, poller, NULL), "thread");
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 64, &cb, IBV_SEND_SIGNALED),
	     "post");
	sleep(1);
	printf("%d completions, stopping\n", got);
	fflush(stdout);
	stop(t);
	return 0;
}

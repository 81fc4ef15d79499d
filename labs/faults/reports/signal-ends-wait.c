// SPDX-License-Identifier: MIT
// report: https://github.com/jsgilmore/ib/pull/3
// symptom: now and then the program ends while it waits for a message, nothing is wrong with the connection
// cause: a signal interrupted the wait in ibv_get_cq_event, and EINTR is taken for a failure
// expect: signal|EINTR|interrupt
// kind: threads
// run: one
// half: unseen
#include "rep.h"

#include <signal.h>
#include <sys/time.h>

static void tick(int sig)
{
	(void)sig;
}

static void *late(void *b)
{
	sleep(2);
	must(post(b, IBV_WR_SEND, 2, 64, NULL, IBV_SEND_SIGNALED), "post");
	return NULL;
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct sigaction act = { .sa_handler = tick };
	struct itimerval each = { { 0, 500000 }, { 0, 500000 } };
	struct ibv_cq *cq;
	pthread_t t;
	sigset_t set;
	void *ctx;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	must(post_recv(&a, 1, 256), "post_recv");
	must(ibv_req_notify_cq(a.rcq, 0), "arm");
	sigfillset(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	must(pthread_create(&t, NULL, late, &b), "thread");
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &each, NULL); /* a statistics timer */
	must(ibv_get_cq_event(a.ch, &cq, &ctx), "get_cq_event");
	ibv_ack_cq_events(cq, 1);
	next(a.rcq, "received");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/dmf-mxl/mxl/pull/628
// symptom: a process sits in epoll for seconds, signals wake it for nothing
// cause: nothing: it is idle until the message comes, and EINTR is tried again
// expect: ^$
// kind: innocent
// run: one
// half: unseen
#include "rep.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>

static void tick(int sig)
{
	(void)sig;
}

static void *late(void *b)
{
	sleep(3);
	must(post(b, IBV_WR_SEND, 2, 64, NULL, IBV_SEND_SIGNALED), "post");
	next(((struct end *)b)->scq, "sent");
	return NULL;
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct itimerval each = { { 0, 400000 }, { 0, 400000 } };
	struct epoll_event ev = { .events = EPOLLIN };
	int ep = epoll_create1(0), n;
	struct ibv_cq *cq;
	pthread_t t;
	void *ctx;

	open_both(&a, &b, argc, argv);
	a.ch = ibv_create_comp_channel(a.ctx);
	pair(&a, &b);
	must(post_recv(&a, 1, 256), "post_recv");
	must(ibv_req_notify_cq(a.rcq, 0), "arm");
	must(epoll_ctl(ep, EPOLL_CTL_ADD, a.ch->fd, &ev), "epoll_ctl");
	must(pthread_create(&t, NULL, late, &b), "thread");
	signal(SIGALRM, tick);
	setitimer(ITIMER_REAL, &each, NULL);
	do
		n = epoll_wait(ep, &ev, 1, -1);
	while (n < 0 && errno == EINTR);
	must(ibv_get_cq_event(a.ch, &cq, &ctx), "get_cq_event");
	ibv_ack_cq_events(cq, 1);
	next(a.rcq, "received");
	pthread_join(t, NULL);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * event_loop.c —— 一个线程，同时等许多 fd 和许多 deadline
 *
 * 每个 client 一个线程也能写，但 session、QP、计数器就都要上锁；而这里没有一件事会
 * 真的“算很久”，等的都是 fd：socket 有字节了、CQ 有 event 了。epoll 把它们放在一起等。
 */
#include "event_loop.h"

#include "call_failed.h"
#include "deadline.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define BATCH	   64
#define LONGEST_MS 60000 /* 没有更近的 deadline 时，也隔一阵看一眼 */

/*
 * “看一眼停止标志，然后睡下”之间若来了信号，就会睡过头。所以把 SIGINT、SIGTERM 挡住，
 * 让它们积在 signalfd 里，成为 epoll 的又一个事件。
 */
static void on_stop_signal(void *owner, uint32_t events)
{
	struct event_loop *loop = owner;

	(void)events;
	/* 放行：积着的信号此刻送达，deadline.c 的处理函数立起那个标志。*/
	pthread_sigmask(SIG_SETMASK, &loop->mask_outside, NULL);
}

static int watch_stop_signals(struct event_loop *loop)
{
	sigset_t stop;
	int fd, rc;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	fd = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return call_failed(errno, "signalfd()");
	loop->stop = (struct event_source){ on_stop_signal, loop, -1, 0 };
	rc = event_loop_add(loop, &loop->stop, fd, EPOLLIN);
	if (rc) {
		close(fd);
		return call_failed(-rc, "epoll_ctl(signalfd)");
	}
	pthread_sigmask(SIG_BLOCK, &stop, &loop->mask_outside);
	return 0;
}

int event_loop_open(struct event_loop *loop)
{
	int rc;

	*loop = (struct event_loop){ .epoll = epoll_create1(EPOLL_CLOEXEC) };
	if (loop->epoll < 0)
		return call_failed(errno, "epoll_create1()");
	loop->batch = calloc(BATCH, sizeof(*loop->batch));
	rc = loop->batch ? watch_stop_signals(loop)
			 : call_failed(ENOMEM, "calloc(%d)", BATCH);
	if (rc) {
		free(loop->batch);
		close(loop->epoll);
	}
	return rc;
}

void event_loop_close(struct event_loop *loop)
{
	pthread_sigmask(SIG_SETMASK, &loop->mask_outside, NULL);
	close(loop->stop.fd);
	close(loop->epoll);
	free(loop->batch);
	timers_free(&loop->timers);
}

int event_loop_add(struct event_loop *loop, struct event_source *source, int fd,
		   uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = source };

	source->fd = -1;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &e))
		return -errno;
	source->fd = fd;
	source->events = events;
	return 0;
}

void event_loop_change(struct event_loop *loop, struct event_source *source,
		       uint32_t events)
{
	struct epoll_event e = { .events = events, .data.ptr = source };

	if (source->fd < 0 || source->events == events)
		return;
	/* 已在册的 fd，MOD 只会因参数错而失败。*/
	epoll_ctl(loop->epoll, EPOLL_CTL_MOD, source->fd, &e);
	source->events = events;
}

/*
 * 一次 epoll_wait 带回一批事件。处理前面的事件时，可能顺手关掉了后面某个事件的主人
 * （例如一条 link 断了，牵连几个 client）：它的事件还在批里，指针却已失效。
 */
void event_loop_remove(struct event_loop *loop, struct event_source *source)
{
	if (source->fd < 0)
		return;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
	source->fd = -1;
	for (int i = 0; i < loop->batch_count; i++)
		if (loop->batch[i].data.ptr == source)
			loop->batch[i].data.ptr = NULL;
}

static void dispatch(struct event_loop *loop)
{
	for (int i = 0; i < loop->batch_count && !loop->done; i++) {
		struct event_source *source = loop->batch[i].data.ptr;

		if (source)
			source->ready(source->owner, loop->batch[i].events);
	}
	loop->batch_count = 0;
}

void event_loop_end(struct event_loop *loop)
{
	loop->done = true;
}

int event_loop_turn(struct event_loop *loop, int most_ms)
{
	int n, wait_ms = most_ms;

	if (loop->timers.count)
		wait_ms = timers_wait_ms(&loop->timers, now_ns(), most_ms);
	n = epoll_wait(loop->epoll, loop->batch, BATCH, wait_ms);
	if (n < 0 && errno != EINTR)
		return call_failed(errno, "epoll_wait()");
	loop->batch_count = n > 0 ? n : 0;
	dispatch(loop);
	if (loop->timers.count)
		timers_fire(&loop->timers, now_ns());
	return 0;
}

int event_loop_run(struct event_loop *loop)
{
	int rc = 0;

	while (!rc && !stop_requested() && !loop->done)
		rc = event_loop_turn(loop, LONGEST_MS);
	return rc;
}

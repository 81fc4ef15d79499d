// SPDX-License-Identifier: MIT
/*
 * last_wqe.c —— LD_PRELOAD：IBV_EVENT_QP_LAST_WQE_REACHED 来几次，由我们说了算
 *
 * 第 13 课“The crash”的预言。内核的异步事件一概扣下，换成这一种：
 *
 *	LAST_WQE=never   一次也不来：Linux 6.4 及以前的 rxe
 *	LAST_WQE=once    带 SRQ 的 QP 进 ERR，来一次：物理网卡
 *	LAST_WQE=again   进 ERR 之后一来再来，直到 QP 被销毁：6.5 起的 rxe，每次 modify
 *	                 到 ERR、每个还寄来的包，都来一次
 *
 * UCX 用 epoll 等 context->async_fd。这个数字内核还要用，不能换；换的是它交给 epoll
 * 的那一个。libibverbs 销毁 QP 时会等程序 ack 完它的事件；这里从 get 到 ack 一直拿着
 * 锁，销毁也就得等。为什么要 dlopen，见 set_sl.c。
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define MOST_QPS 256
#define MOST_FDS 1024

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_qp *in_error[MOST_QPS]; /* 还有事件要说的 */
static int event_fd[MOST_FDS]; /* async_fd 的替身；0：不是 async_fd */

static void find(void *function, const char *name)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	void *symbol = library ? dlvsym(library, name, "IBVERBS_1.1") : NULL;

	if (!symbol) {
		fprintf(stderr, "last_wqe: no %s: %s\n", name, dlerror());
		abort();
	}
	memcpy(function, &symbol, sizeof(symbol));
}

static bool mode_is(const char *mode)
{
	const char *chosen = getenv("LAST_WQE");

	return chosen && !strcmp(chosen, mode);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*real)(struct ibv_device *);
	struct ibv_context *context;

	find(&real, "ibv_open_device");
	context = real(device);
	if (context && context->async_fd < MOST_FDS)
		event_fd[context->async_fd] =
			eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return context;
}

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	int (*real)(int, int, int, struct epoll_event *);
	void *symbol = dlsym(RTLD_NEXT, "epoll_ctl");

	memcpy(&real, &symbol, sizeof(symbol));
	if (fd >= 0 && fd < MOST_FDS && event_fd[fd])
		fd = event_fd[fd];
	return real(epoll, op, fd, event);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int);
	bool enters = (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR &&
		      qp->state != IBV_QPS_ERR && qp->srq;
	int i = 0, err;

	find(&real, "ibv_modify_qp");
	err = real(qp, attr, mask);
	if (err || !enters || mode_is("never"))
		return err;
	pthread_mutex_lock(&lock);
	while (i < MOST_QPS - 1 && in_error[i])
		i++;
	in_error[i] = qp;
	eventfd_write(event_fd[qp->context->async_fd], 1);
	pthread_mutex_unlock(&lock);
	return 0;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	eventfd_t ignored;

	pthread_mutex_lock(&lock);
	eventfd_read(event_fd[context->async_fd], &ignored);
	for (int i = 0; i < MOST_QPS; i++) {
		if (!in_error[i] || in_error[i]->context != context)
			continue;
		event->element.qp = in_error[i];
		event->event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
		if (!mode_is("again"))
			in_error[i] = NULL;
		eventfd_write(event_fd[context->async_fd], 1);
		return 0; /* ack 放开 lock */
	}
	pthread_mutex_unlock(&lock);
	errno = EAGAIN;
	return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	pthread_mutex_unlock(&lock);
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*real)(struct ibv_qp *);

	find(&real, "ibv_destroy_qp");
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MOST_QPS; i++)
		if (in_error[i] == qp)
			in_error[i] = NULL;
	pthread_mutex_unlock(&lock);
	return real(qp);
}

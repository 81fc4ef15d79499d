// SPDX-License-Identifier: MIT
/*
 * event.c —— 控制路径上一次调用的开始与结束
 *
 * 控制路径慢（进内核，几十微秒到一秒），多花几微秒看不出来，所以直接拼好一行、拿
 * 锁、写出；快路径（fast.c）才需要环。
 */
#include "event.h"

#include "objects.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* 在别的调用里的（rdma_create_qp 里的 ibv_create_qp），还算在那一个里。*/
static const char *enters(const char *name)
{
	struct ring *ring = ring_mine();
	const char *outer = ring->in;

	if (!outer)
		ring_enters(ring, name);
	return outer;
}

static void leaves(const char *outer)
{
	struct ring *ring = ring_mine();

	if (ring->in != outer)
		ring_enters(ring, outer);
}

/*
 * libibverbs 的函数会互相调用（ibv_reg_mr 调 ibv_reg_mr_iova2），解释器自己也要
 * ibv_query_qp：只记录最外面的一层。
 */
bool event_begin(struct event *event, const char *name)
{
	if (recorder_inside || !recorder_ready())
		return false;
	recorder_inside++;
	event->err = 0;
	event->why.id = NULL;
	event->tells = false;
	event->end = 0;
	event->saved_errno = errno;
	line_start(&event->line, name);
	event->outer = enters(name);
	event->stamp = ring_stamp();
	return true;
}

void event_drop(struct event *event)
{
	leaves(event->outer);
	recorder_inside--;
	errno = event->saved_errno;
}

void event_returned(struct event *event, int err)
{
	event->end = ring_stamp();
	leaves(event->outer);
	event->saved_errno = errno;
	event->err = err;
}

void event_made(struct event *event, const void *made)
{
	event_returned(event, made ? 0 : errno ? errno : EIO);
}

void event_explain(struct event *event, struct explanation why, const char *fmt,
		   ...)
{
	char call[384];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	if (!why.id && event->err == EMFILE)
		why = because("no-descriptors");
	event->why = why;
	LINE_TEXT(&event->line, "call", call);
	if (!why.id && event->err)
		LINE_TEXT(&event->line, "cause", strerror(event->err));
	event->tells = true;
}

void event_warn(enum object_kind kind, const void *pointer,
		struct explanation why)
{
	struct line line;

	line_start(&line, "warning");
	line_add_why(&line, &why);
	writer_lock();
	if (pointer)
		line_add_object(&line, kind, pointer);
	if (pointer && kind == OBJECT_QP)
		LINE_NUMBER(&line, "qpn",
			    ((const struct ibv_qp *)pointer)->qp_num);
	writer_add_now(&line);
	writer_unlock();
}

void event_end(struct event *event)
{
	struct line *line = &event->line;

	LINE_NUMBER(line, "err", event->err);
	line_add_why(line, &event->why);
	leaves(event->outer);
	writer_add(event->stamp, event->end, line);
	writer_unlock();
	if (event->tells)
		writer_tell(TOLD_FAILURE, false);
	recorder_inside--;
	errno = event->saved_errno;
}

void event_ends_of(struct event *event, enum object_kind kind,
		   const void *pointer)
{
	writer_lock();
	line_add_object(&event->line, kind, pointer);
	event_end(event);
}

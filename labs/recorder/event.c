// SPDX-License-Identifier: MIT
/*
 * event.c —— 控制路径上一次调用的开始与结束
 *
 * 控制路径慢（进内核，几十微秒到一秒），多花几微秒看不出来，所以直接拼好一行、拿
 * 锁、写出；快路径（fast.c）才需要环。
 */
#include "event.h"

#include "format.h"
#include "objects.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define SAY_AT_MOST 3

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
	event->end = 0;
	event->saved_errno = errno;
	line_start(&event->line, name);
	event->outer = event_enters(name);
	event->stamp = ring_stamp();
	return true;
}

const char *event_enters(const char *name)
{
	struct ring *ring = ring_mine();
	const char *outer;

	if (!ring)
		return NULL;
	outer = atomic_load_explicit(&ring->in, memory_order_relaxed);
	if (!outer)
		event_leaves(name);
	return outer;
}

void event_leaves(const char *outer)
{
	struct ring *ring = ring_mine();

	if (ring)
		atomic_store_explicit(&ring->in, outer, memory_order_relaxed);
}

void event_drop(struct event *event)
{
	event_leaves(event->outer);
	recorder_inside--;
	errno = event->saved_errno;
}

void event_returned(struct event *event, int err)
{
	event->end = ring_stamp();
	event_leaves(event->outer);
	event->saved_errno = errno;
	event->err = err;
}

void event_made(struct event *event, const void *made)
{
	event_returned(event, made ? 0 : errno ? errno : EIO);
}

/* 有的库靠“试一试、失败了再换”探测能力：同样的话不说第四遍，文件里照记。*/
static bool say_again(const char *call, int err)
{
	static atomic_uchar said[256];
	unsigned int hash = (unsigned int)err * 31;

	for (; *call && *call != '('; call++)
		hash = hash * 31 + (unsigned char)*call;
	return atomic_fetch_add(&said[hash % 256], 1) < SAY_AT_MOST;
}

/* 坏的 completion 没有错误码，它的 status 已经在 @fmt 里了。*/
static const char *how_failed(char *out, size_t size, int err)
{
	const char *name = strerrorname_np(err);

	out[0] = '\0';
	if (err)
		snprintf(out, size,
			 IN_WORDS(" failed: %s (%d)", " 失败：%s (%d)"),
			 name ? name : IN_WORDS("unknown error", "未知的错误"),
			 err);
	return out;
}

void event_explain(struct event *event, struct explanation why, const char *fmt,
		   ...)
{
	char call[384], how[64], text[3072];
	struct explain_words words;
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	explain_in_words(&words, &why, recorder.chinese);
	event->why = why;
	LINE_TEXT(&event->line, "call", call);
	if (!why.id && event->err) {
		snprintf(words.cause, sizeof(words.cause), "%s",
			 strerror(event->err));
		LINE_TEXT(&event->line, "cause", words.cause);
	}
	if (recorder.quiet || !say_again(call, event->err))
		return;
	n = (size_t)snprintf(text, sizeof(text), "qptrace: %s%s%s%s\n", call,
			     how_failed(how, sizeof(how), event->err),
			     words.cause[0] ? IN_WORDS(": ", "：") : "",
			     words.cause);
	n += next_as_text(text + n, sizeof(text) - n, "qptrace:", &words);
	recorder_say(text, n);
}

void event_end(struct event *event)
{
	struct line *line = &event->line;

	LINE_NUMBER(line, "err", event->err);
	format_why(line, &event->why);
	objects_called(writer_time(event->stamp));
	event_leaves(event->outer);
	writer_add(event->stamp, event->end, line);
	writer_unlock();
	recorder_inside--;
	errno = event->saved_errno;
}

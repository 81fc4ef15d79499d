// SPDX-License-Identifier: MIT
/*
 * event.c —— 控制路径上一次调用的开始与结束
 *
 * 控制路径慢（进内核，几十微秒到一秒），多花几微秒看不出来，所以直接拼好一行、拿
 * 锁、写出；快路径（fast.c）才需要环。
 */
#include "event.h"

#include "ring.h"
#include "writer.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define SAY_AT_MOST 3

__thread int recorder_inside;

static bool same_library(void *a, void *b)
{
	Dl_info x, y;

	return dladdr(a, &x) && dladdr(b, &y) && x.dli_fbase == y.dli_fbase;
}

/*
 * 版本要对：libibverbs 里同一个名字有 1.0 与 1.1 两个版本，结构体布局都不同，拿错就
 * 崩溃。但排在我们后面的另一个 preload 多半没有版本，dlvsym 会跳过它：那是别人的
 * 东西，不能绕开，所以先看下一个是谁。
 * UCX 用 dlopen(RTLD_LOCAL) 载入插件，libibverbs 因此不在全局的查找范围里，
 * RTLD_NEXT 找不到它；但它已经在进程里，RTLD_NOLOAD 取得到句柄。
 */
void *real_symbol(const char *name, const char *version)
{
	void *next = dlsym(RTLD_NEXT, name);
	void *exact = dlvsym(RTLD_NEXT, name, version);
	void *library;

	if (next && !(exact && same_library(next, exact)))
		return next;
	if (!exact) {
		library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (library)
			exact = dlvsym(library, name, version);
	}
	if (!exact)
		errno = ENOSYS;
	return exact;
}

/*
 * libibverbs 的函数会互相调用（ibv_reg_mr 调 ibv_reg_mr_iova2），解释器自己也要
 * ibv_query_qp：只记录最外面的一层。
 */
bool event_begin(struct event *event, const char *name)
{
	if (recorder_inside || !writer_ready())
		return false;
	recorder_inside++;
	event->err = 0;
	event->why.cause[0] = '\0';
	event->why.next[0] = '\0';
	event->end = 0;
	event->saved_errno = errno;
	line_start(&event->line, name);
	event->stamp = ring_stamp();
	return true;
}

void event_returned(struct event *event, int err)
{
	event->end = ring_stamp();
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
		snprintf(out, size, " failed: %s (%d)",
			 name ? name : "unknown error", err);
	return out;
}

void event_explain(struct event *event, struct explanation why, const char *fmt,
		   ...)
{
	char call[384], how[64], text[1200];
	va_list ap;
	int n;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	if (!why.cause[0])
		snprintf(why.cause, sizeof(why.cause), "%s",
			 strerror(event->err));
	event->why = why;
	LINE_TEXT(&event->line, "call", call);
	if (recorder.quiet || !say_again(call, event->err))
		return;
	n = snprintf(text, sizeof(text), "qptrace: %s%s: %s\n%s%s%s", call,
		     how_failed(how, sizeof(how), event->err), why.cause,
		     why.next[0] ? "qptrace:  next: " : "", why.next,
		     why.next[0] ? "\n" : "");
	writer_say(text, (size_t)n);
}

void event_end(struct event *event)
{
	struct line *line = &event->line;
	const char *name;

	LINE_NUMBER(line, "err", event->err);
	if (event->err) {
		name = strerrorname_np(event->err);
		LINE_TEXT(line, "errname", name ? name : "unknown");
	}
	if (event->why.cause[0]) {
		LINE_TEXT(line, "cause", event->why.cause);
		LINE_TEXT(line, "next", event->why.next);
	}
	if (event->end)
		LINE_NUMBER(line, "dur",
			    writer_time(event->end) -
				    writer_time(event->stamp));
	writer_add(event->stamp, line);
	writer_commit();
	recorder_inside--;
	errno = event->saved_errno;
}

// SPDX-License-Identifier: MIT
/*
 * failure.c —— 一个调用失败了：说出调用、errno 的名字与数字、原因、下一步
 *
 * errno 的名字（ENOMEM）比它的文字更有用：手册、内核源码与搜索引擎认的都是名字。
 */
#include "failure.h"

#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int failed(int err, const char *cause, const char *next, const char *fmt,
		  va_list ap)
{
	const char *name;
	char call[512];

	if (err <= 0)
		err = EIO;
	/* 哪个调用都可能遇到，缺的总是同一样东西 */
	if (err == EMFILE && !next)
		next = "raise the limit of open files: ulimit -n";
	name = strerrorname_np(err);
	vsnprintf(call, sizeof(call), fmt, ap);
	return fail(-err, next, "%s failed: %s (%d): %s", call,
		    name ? name : "unknown error", err,
		    cause ? cause : strerror(err));
}

int call_failed(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err = failed(err, NULL, NULL, fmt, ap);
	va_end(ap);
	return err;
}

int call_failed_for(int err, const char *cause, const char *next,
		    const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err = failed(err, cause, next, fmt, ap);
	va_end(ap);
	return err;
}

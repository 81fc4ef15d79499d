// SPDX-License-Identifier: MIT
/*
 * call_failed.c —— 一个调用失败了：说出调用、errno 的名字与数字、原因、下一步
 *
 * errno 的名字（ENOMEM）比它的文字更有用：手册、内核源码与搜索引擎认的都是名字。
 */
#include "call_failed.h"

#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int call_failed_for(int err, const char *cause, const char *next,
		    const char *fmt, ...)
{
	const char *name;
	char call[512];
	va_list ap;

	if (err <= 0)
		err = EIO;
	/* 哪个调用都可能遇到，要做的总是同一件事 */
	if (err == EMFILE && !next)
		next = "raise the limit of open files: ulimit -n";
	if (err == ENOTDIR && !next)
		next = "give a folder where this names a file";
	if (err == EISDIR && !next)
		next = "give a file where this names a folder";
	name = strerrorname_np(err);
	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	return fail(-err, next, "%s failed: %s (%d): %s", call,
		    name ? name : "unknown error", err,
		    cause ? cause : strerror(err));
}

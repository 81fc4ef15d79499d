// SPDX-License-Identifier: MIT
/*
 * report.c —— 全项目唯一的输出出口
 *
 * 把输出集中在一处，有三个好处：(1) stdout 只放结果与步骤，stderr 只放错误，
 * 脚本才能可靠地重定向；(2) 错误格式统一为“原因 + 下一步”；(3) --quiet 只需
 * 改一个级别，而不是散落各处的 if。
 */
#include "report.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

static enum report_level level = REPORT_NORMAL;

void report_set_level(enum report_level new_level)
{
	level = new_level;
}

/*
 * 先在内存里拼好，再一次写出。stderr 没有缓冲，分几次写的话，两个进程（或两个
 * 流）的输出会在一行中间互相插进来。
 * stdout 接到管道时默认是全缓冲：程序若卡在某一步，学习者看到的最后一行会远远早于
 * 真正卡住的地方。所以每次都 flush，输出才等于进度。
 */
static void print_line(FILE *to, const char *prefix, const char *next,
		       const char *fmt, va_list ap)
{
	char text[1024];

	vsnprintf(text, sizeof(text), fmt, ap);
	fflush(stdout);
	fprintf(to, "%s%s\n%s%s%s", prefix, text, next ? " next: " : "",
		next ? next : "", next ? "\n" : "");
	fflush(to);
}

/* 在参数以 fmt 与 ... 结尾的函数里：印出它们。*/
#define PRINT(to, prefix, next)                        \
	do {                                           \
		va_list ap;                            \
		va_start(ap, fmt);                     \
		print_line(to, prefix, next, fmt, ap); \
		va_end(ap);                            \
	} while (0)

void report_step(const char *fmt, ...)
{
	static int step;
	char prefix[32];

	step++;
	if (level < REPORT_NORMAL)
		return;
	snprintf(prefix, sizeof(prefix), "[Step %d] ", step);
	PRINT(stdout, prefix, NULL);
}

void report_fact(const char *fmt, ...)
{
	if (level < REPORT_NORMAL)
		return;
	PRINT(stdout, "    ", NULL);
}

void report_line(const char *fmt, ...)
{
	if (level < REPORT_NORMAL)
		return;
	PRINT(stdout, "", NULL);
}

void report_result(const char *fmt, ...)
{
	PRINT(stdout, "", NULL);
}

/* 磁盘满、管道另一头已经走了：结果没写出去，就不能说“成功”。*/
int report_flush(void)
{
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	return fail(-EIO, "is the disk full, or the reader of the pipe gone?",
		    "the result could not be written to stdout");
}

void report_error(const char *next, const char *fmt, ...)
{
	PRINT(stderr, "error: ", next);
}

int fail(int rc, const char *next, const char *fmt, ...)
{
	PRINT(stderr, "error: ", next);
	return rc;
}

void report_warning(const char *next, const char *fmt, ...)
{
	PRINT(stderr, "warning: ", next);
}

void report_remark(const char *who, const char *fmt, ...)
{
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "[%s] ", who);
	PRINT(stderr, prefix, NULL);
}

/* 一个字符原样可印则返回它的字节数，否则返回 0（由调用者按 \\xNN 转义）。*/
static size_t printable_char(const char *p, size_t len)
{
	mbstate_t state = { 0 };
	wchar_t wide;
	size_t n = mbrtowc(&wide, p, len, &state);

	/* (size_t)-1 是非法序列，(size_t)-2 是被截断的多字节字符。*/
	if (n == 0 || n > len || !iswprint((wint_t)wide))
		return 0;
	return n;
}

const char *printable_text(char *out, size_t size, const void *data, size_t len)
{
	const char *p = data;
	size_t used = 0;

	/*
	 * 对端发来的字节不可信：可能没有结尾的 NUL，可能含终端转义序列。
	 * 直接 printf("%s") 会越过 buffer 末尾，或让别人改写你的终端标题。
	 * 一步最多写 MB_LEN_MAX 字节，另留 4 字节给 "..." 和 NUL。
	 */
	for (size_t i = 0; i < len && p[i];) {
		size_t n = printable_char(p + i, len - i);

		if (used + MB_LEN_MAX + 4 > size) {
			memcpy(out + used, "...", 4);
			return out;
		}
		if (n) {
			memcpy(out + used, p + i, n);
			used += n;
			i += n;
		} else {
			used += (size_t)sprintf(out + used, "\\x%02x",
						(unsigned char)p[i++]);
		}
	}
	out[used] = '\0';
	return out;
}

// SPDX-License-Identifier: MIT
/*
 * recorder.c —— 记录器被吩咐了什么，以及它怎样开口
 *
 * 载入时只读环境变量，别的什么也不做：`qptrace ls` 里的 ls 不用 verbs，就既没有多的
 * 线程、fd，也没有换过的信号处理。第一次用到 verbs 时才真正开始（start.c）。
 */
#include "recorder.h"

#include "explain/explain.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_LAST (64u << 20)

struct recorder_config recorder;
__thread int recorder_inside;

__attribute__((constructor)) static void read_environment(void)
{
	const char *path = getenv("QPTRACE_FILE");
	const char *stall = getenv("QPTRACE_STALL");
	const char *last = getenv("QPTRACE_LAST");

	recorder.control_only = getenv("QPTRACE_CONTROL_ONLY") != NULL;
	recorder.quiet = getenv("QPTRACE_QUIET") != NULL;
	recorder.chinese = explain_speaks_chinese(getenv("QPTRACE_LANG"));
	recorder.last = last ? strtoull(last, NULL, 10) : DEFAULT_LAST;
	if (stall)
		recorder.stall_ns = (uint64_t)(strtod(stall, NULL) * 1e9);
	if (path && strlen(path) < sizeof(recorder.file))
		memcpy(recorder.file, path, strlen(path) + 1);
}

/* 直接向内核要内存：traced 程序可能带着自己的 malloc，也可能正在 malloc 里崩溃。*/
void *recorder_pages(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void write_all(const char *text, size_t len)
{
	ssize_t rc;

	do {
		rc = write(STDERR_FILENO, text, len);
	} while (rc < 0 && errno == EINTR);
}

/* 也许在 signal handler 的小栈上：译一行是一行，攒到放不下就写出去。*/
void recorder_say(const char *text, size_t len)
{
	char out[3 * 1024], line[1024];
	size_t used = 0;

	if (!recorder.chinese) {
		write_all(text, len);
		return;
	}
	for (const char *end = text + len; text < end;) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((stop ? stop : end) - text);

		n = n < sizeof(line) - 1 ? n : sizeof(line) - 1;
		if (used + 2 * n + 1 > sizeof(out)) {
			write_all(out, used);
			used = 0;
		}
		memcpy(line, text, n);
		line[n] = '\0';
		explain_in_chinese(out + used, sizeof(out) - used - 1, line);
		used += strlen(out + used);
		text += n;
		if (text == stop)
			out[used++] = *text++;
	}
	write_all(out, used);
}

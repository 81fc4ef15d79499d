// SPDX-License-Identifier: MIT
/*
 * recorder.c —— 记录器被吩咐了什么
 *
 * 载入时只读环境变量，别的什么也不做：`qptrace ls` 里的 ls 不用 verbs，就既没有多的
 * 线程、fd，也没有换过的信号处理。第一次用到 verbs 时才真正开始（start.c）。
 */
#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEFAULT_LAST (64u << 20)

struct recorder_config recorder;
__thread int recorder_inside;

__attribute__((constructor)) static void read_environment(void)
{
	const char *path = getenv("QPTRACE_FILE");
	const char *watcher = getenv("QPTRACE_WATCHER");
	const char *last = getenv("QPTRACE_LAST");

	recorder.control_only = getenv("QPTRACE_CONTROL_ONLY") != NULL;
	recorder.last = last ? strtoull(last, NULL, 10) : DEFAULT_LAST;
	recorder.watcher = watcher ? atoi(watcher) : 0;
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

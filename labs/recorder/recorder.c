// SPDX-License-Identifier: MIT
/*
 * recorder.c —— 记录器被吩咐了什么，以及它怎样开口
 *
 * 载入时只读环境变量，别的什么也不做：`qptrace ls` 里的 ls 不用 verbs，就既没有多的
 * 线程、fd，也没有换过的信号处理。第一次用到 verbs 时才真正开始（start.c）。
 */
#include "recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct recorder_config recorder;
__thread int recorder_inside;

__attribute__((constructor)) static void read_environment(void)
{
	const char *path = getenv("QPTRACE_FILE");
	const char *stall = getenv("QPTRACE_STALL");

	recorder.control_only = getenv("QPTRACE_CONTROL_ONLY") != NULL;
	recorder.quiet = getenv("QPTRACE_QUIET") != NULL;
	if (stall)
		recorder.stall_ns = (uint64_t)(strtod(stall, NULL) * 1e9);
	if (path && strlen(path) < sizeof(recorder.file))
		memcpy(recorder.file, path, strlen(path) + 1);
}

void recorder_say(const char *text, size_t len)
{
	ssize_t rc;

	do {
		rc = write(STDERR_FILENO, text, len);
	} while (rc < 0 && errno == EINTR);
}

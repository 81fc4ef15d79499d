// SPDX-License-Identifier: MIT
/*
 * start.c —— 库被载入时、收到信号时、进程退出时做什么
 *
 * 载入时只读环境变量，别的什么也不做：`qptrace ls` 里的 ls 不用 verbs，就既没有多的
 * 线程、fd，也没有换过的信号处理。第一次用到 verbs 时才真正开始（writer.c）。
 */
#include "event.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct recorder_config recorder;

/*
 * 崩溃前把环里的写出去，再照默认的方式死：退出状态、core 与没有记录器时一样。
 * 同步的信号（SIGSEGV）返回后会在原来的指令上再发生一次；异步的则要再发一次。
 */
static void last_words(int sig)
{
	struct sigaction standard = { .sa_handler = SIG_DFL };
	int saved_errno = errno;

	writer_last_words(NULL);
	sigaction(sig, &standard, NULL);
	raise(sig);
	errno = saved_errno;
}

static void why(int sig)
{
	int saved_errno = errno;

	(void)sig;
	writer_ask_why();
	errno = saved_errno;
}

/* 程序自己处理或忽略的信号不碰；它以后要装自己的，照样装得上。*/
static void catch_default(int sig, void (*handler)(int), int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags };
	struct sigaction now;

	if (!sigaction(sig, NULL, &now) && !(now.sa_flags & SA_SIGINFO) &&
	    now.sa_handler == SIG_DFL)
		sigaction(sig, &act, NULL);
}

void recorder_catch_signals(void)
{
	static const int fatal[] = { SIGSEGV, SIGBUS,  SIGILL,	SIGFPE,
				     SIGABRT, SIGTERM, SIGINT,	SIGHUP,
				     SIGPIPE, SIGALRM, SIGXCPU, SIGSYS };

	for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
		catch_default(fatal[i], last_words, SA_ONSTACK);
	catch_default(SIGQUIT, why, SA_ONSTACK | SA_RESTART);
}

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

__attribute__((destructor)) static void leave(void)
{
	struct line line;

	if (!recorder.file[0] || !writer_started())
		return;
	line_start(&line, "exit");
	writer_lock();
	writer_add(ring_stamp(), &line);
	writer_unlock();
	writer_flush();
}

/*
 * _exit 不运行 destructor，fork 出来的子进程又多半这样结束。它可以在 signal handler
 * 里，也可以在 vfork 的子进程里被调用：后者用着父进程的内存，不是记录结束的时候。
 */
static _Noreturn void leave_at_once(int status)
{
	struct line line;

	if (writer_owns_process()) {
		line_start(&line, "exit");
		writer_last_words(&line);
	}
	for (;;)
		syscall(SYS_exit_group, status);
}

EXPORTED _Noreturn void _exit(int status)
{
	leave_at_once(status);
}

EXPORTED _Noreturn void _Exit(int status)
{
	leave_at_once(status);
}

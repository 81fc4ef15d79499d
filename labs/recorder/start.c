// SPDX-License-Identifier: MIT
/*
 * start.c —— 第一次用到 verbs 时、收到信号时、fork 时、进程退出时做什么
 */
#include "event.h"
#include "recorder.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int state; /* 0 没开始，1 可以记，-1 不记 */

static bool is_recording(void)
{
	return atomic_load(&state) > 0;
}

/* ---- 信号 ----------------------------------------------------------------- */

static bool can_wait(int sig)
{
	return sig == SIGTERM || sig == SIGINT || sig == SIGHUP ||
	       sig == SIGALRM || sig == SIGXCPU;
}

/*
 * 崩溃前把环里的写出去，再照默认的方式死：退出状态、core 与没有记录器时一样。
 * 同步的信号（SIGSEGV）返回后会在原来的指令上再发生一次；异步的则要再发一次。来的时候若正
 * 在写记录（忙着发的程序常常如此：环满了，它自己写），就写完再死。
 */
static void last_words(int sig, siginfo_t *info, void *at)
{
	struct sigaction standard = { .sa_handler = SIG_DFL };
	struct line line;

	(void)at;
	if (sig == SIGQUIT) { /* Ctrl-\：看着的人来说它在等什么，程序接着跑 */
		if (is_recording())
			writer_tell(TOLD_ASKED, false);
		return;
	}
	if (is_recording() && can_wait(sig) && writer_puts_off(sig))
		return;
	if (is_recording()) {
		line_start(&line, "signal");
		LINE_NUMBER(&line, "signal", sig);
		if (!can_wait(sig) && info->si_code > 0)
			LINE_HEX(&line, "fault", (uintptr_t)info->si_addr);
		if (!can_wait(sig) && ring_of_thread.slot)
			LINE_HEX(&line, "polled",
				 atomic_load(&ring_of_thread.slot->polled));
		writer_last_words(&line);
		writer_tell(TOLD_OVER, true);
	}
	sigaction(sig, &standard, NULL);
	raise(sig);
}

/* 程序自己处理或忽略的信号不碰；它以后要装自己的，照样装得上。*/
static void catch_default(int sig, int flags)
{
	struct sigaction act = { .sa_sigaction = last_words,
				 .sa_flags = flags | SA_SIGINFO };
	struct sigaction now;

	if (!sigaction(sig, NULL, &now) && !(now.sa_flags & SA_SIGINFO) &&
	    now.sa_handler == SIG_DFL)
		sigaction(sig, &act, NULL);
}

static void catch_signals(void)
{
	static const int fatal[] = { SIGSEGV, SIGBUS,  SIGILL,	SIGFPE,
				     SIGABRT, SIGTERM, SIGINT,	SIGHUP,
				     SIGPIPE, SIGALRM, SIGXCPU, SIGSYS };

	for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
		catch_default(fatal[i], SA_ONSTACK);
	catch_default(SIGQUIT, SA_ONSTACK | SA_RESTART);
}

/* ---- 开始 ----------------------------------------------------------------- */

/* @out 里放得下的，最后是 NUL。返回读到几个字节。*/
static size_t read_text(const char *path, char *out, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	n = n < 0 ? 0 : n;
	out[n] = '\0';
	return (size_t)n;
}

static void add_start(bool child)
{
	char text[1024], host[256] = "";
	struct line line;
	size_t n;

	line_start(&line, "start");
	LINE_NUMBER(&line, "version", 2);
	LINE_NUMBER(&line, "ppid", getppid());
	LINE_NUMBER(&line, "forked", child);
	LINE_NUMBER(&line, "control_only", recorder.control_only);
	LINE_TEXT(&line, "program", program_invocation_short_name);
	n = read_text("/proc/self/cmdline", text, sizeof(text));
	for (size_t i = 0; i + 1 < n; i++)
		if (!text[i])
			text[i] = ' ';
	LINE_TEXT(&line, "command", text);
	gethostname(host, sizeof(host) - 1);
	LINE_TEXT(&line, "host", host);
	/* 同一次开机的两份记录可以直接按 monotonic 时间合并。*/
	n = read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	text[strcspn(text, "\n")] = '\0';
	LINE_TEXT(&line, "boot", text);
	writer_put(&line);
}

static bool forked;

/* 子进程第一次用到 verbs 时再开始，写自己的文件。*/
static void after_fork_child(void)
{
	forked = true;
	atomic_store(&state, 0);
	writer_after_fork_child();
}

static int exit_status = -1;

/* 程序自己说的结果。它自己的 atexit 在我们之后装的，先运行完了。*/
static void keep_status(int status, void *arg)
{
	(void)arg;
	exit_status = status & 0xff; /* exit(-1) 是 255 */
}

static int start(void)
{
	static bool hooked_fork;

	if (writer_open(forked))
		return -1;
	if (!hooked_fork)
		pthread_atfork(writer_before_fork, writer_after_fork,
			       after_fork_child);
	if (!hooked_fork)
		on_exit(keep_status, NULL);
	hooked_fork = true;
	catch_signals();
	add_start(forked);
	return 1;
}

bool recorder_ready(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int now = atomic_load(&state);

	if (now)
		return now > 0;
	if (!recorder.file[0])
		return false;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&state))
		atomic_store(&state, start());
	pthread_mutex_unlock(&lock);
	return is_recording();
}

/* ---- 结束 ----------------------------------------------------------------- */

static void say_end(void (*put)(const struct line *line))
{
	struct line line;

	line_start(&line, "exit");
	if (exit_status >= 0)
		LINE_NUMBER(&line, "code", exit_status);
	put(&line);
	writer_tell(TOLD_OVER, exit_status > 0);
}

__attribute__((destructor)) static void leave(void)
{
	if (is_recording())
		say_end(writer_put);
}

/*
 * 它不运行 destructor，fork 出来的子进程又多半这样结束。它可以在 signal handler 里，也可以在
 * vfork 的子进程里被调用：后者用着父进程的内存，不是记录结束的时候。
 */
EXPORTED _Noreturn void _exit(int status)
{
	if (is_recording() && writer_owns_process()) {
		exit_status = status & 0xff;
		say_end(writer_last_words);
	}
	for (;;)
		syscall(SYS_exit_group, status);
}

EXPORTED _Noreturn void _Exit(int status)
{
	_exit(status);
}

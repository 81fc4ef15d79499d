// SPDX-License-Identifier: MIT
/*
 * crash.c —— 链接进被评分的程序：崩溃时说出信号与调用栈上的地址
 *
 * 评分器据此（addr2line）说出是哪一行；之后信号照旧杀死进程。记录器在第一个 verb 时才开始，
 * 看到这里已有处理函数，就不装自己的：等它的线程（一秒醒来十次）把记下的写完再死。
 * backtrace() 第一次调用要装载 libgcc_s，所以事先叫它一次；在信号处理函数里装载库是不安全的。
 */
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 24

static struct sigaction before[NSIG];
static char own_stack[64 << 10]; /* 栈溢出时，原来的栈已不能用 */

static void on_crash(int sig)
{
	const struct timespec written = { .tv_nsec = 250000000 };
	void *frames[DEPTH];
	int n = backtrace(frames, DEPTH);
	char line[1024];
	int used = snprintf(line, sizeof(line), "crash: signal %d at", sig);

	for (int i = 1; i < n; i++)
		used += snprintf(line + used, sizeof(line) - (size_t)used,
				 " %p", frames[i]);
	line[used++] = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)used);
	nanosleep(&written, NULL);
	sigaction(sig, &before[sig], NULL);
	raise(sig);
}

__attribute__((constructor)) static void watch_for_crashes(void)
{
	const int fatal[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
	const stack_t stack = { .ss_sp = own_stack,
				.ss_size = sizeof(own_stack) };
	struct sigaction act = { .sa_handler = on_crash,
				 .sa_flags = (int)(SA_ONSTACK | SA_RESETHAND) };
	void *first[1];

	backtrace(first, 1);
	sigaltstack(&stack, NULL);
	for (size_t i = 0; i < sizeof(fatal) / sizeof(*fatal); i++)
		sigaction(fatal[i], &act, &before[fatal[i]]);
}

// SPDX-License-Identifier: MIT
/*
 * deadline.c —— 所有“等待”的共同底座：期限（deadline）与 Ctrl-C
 *
 * RDMA 程序里到处都在等：等 TCP 对端、等 completion、等 CQ event。任何一处没有
 * 期限，对端一旦消失，程序就永远挂住，QP/MR 也就永远占着网卡资源。所以本项目
 * 规定：每一次等待都带一个绝对时刻作为期限，由这里统一实现。
 */
#include "deadline.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#define NS_PER_MS  INT64_C(1000000)
#define SPIN_POLLS 16
#define SPIN_NS	   (2 * NS_PER_MS)
#define NAP_NS	   50000

/*
 * 信号处理函数里只允许做 async-signal-safe 的事，最稳妥的就是写一个
 * sig_atomic_t 标志。全项目除日志级别外，文件级的可变状态只有这里的两个。
 */
static volatile sig_atomic_t stop_signal;
static bool expected; /* 停下是正常的结束：main 开始时说一次 */

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

int64_t deadline_in_ms(int64_t ms)
{
	return now_ns() + ms * NS_PER_MS;
}

bool deadline_passed(int64_t deadline)
{
	return now_ns() >= deadline;
}

static void on_stop_signal(int sig)
{
	stop_signal = sig;
}

void catch_stop_signals(void)
{
	/*
	 * 不设 SA_RESTART：我们希望 poll()/read() 被打断后返回 EINTR，好让等待
	 * 立即结束。SA_RESETHAND：第二次 Ctrl-C 恢复默认动作，即直接终止——
	 * 万一清理过程本身卡住，用户仍有办法退出。
	 */
	struct sigaction stop = { .sa_handler = on_stop_signal,
				  .sa_flags = SA_RESETHAND };
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGTERM, &stop, NULL);
	/* 对端消失后再写 socket，默认会收到 SIGPIPE 而被杀；改为拿到 EPIPE。*/
	sigaction(SIGPIPE, &ignore, NULL);
}

bool stop_requested(void)
{
	return stop_signal != 0;
}

void expect_stop(void)
{
	expected = true;
}

bool stop_is_expected(void)
{
	return expected;
}

/* poll() 的超时以毫秒计且向上取整，否则最后不足 1 ms 时会变成空转。*/
static int slice_ms(int64_t deadline, int longest)
{
	int64_t left = (deadline - now_ns() + NS_PER_MS - 1) / NS_PER_MS;

	if (left < 0)
		return 0;
	return left < longest ? (int)left : longest;
}

int deadline_sleep_ms(int ms, int64_t deadline)
{
	poll(NULL, 0, slice_ms(deadline, ms));
	return stop_requested() ? -EINTR : 0;
}

int pause_between_polls(struct poll_pause *pause, int64_t deadline,
			int64_t stall_ms)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	int64_t now;

	if (stop_requested())
		return -EINTR;
	/*
	 * 先空转几次：答案往往几微秒内就到，而看一次钟、让一次 CPU 也要零点几微秒。
	 */
	if (++pause->polls < (pause->napped ? 1 : SPIN_POLLS))
		return 0;
	pause->polls = 0;
	now = now_ns();
	if (!pause->began)
		pause->began = now;
	if (now >= deadline ||
	    (stall_ms && now - pause->began > stall_ms * NS_PER_MS))
		return -ETIMEDOUT;
	/*
	 * 让出 CPU：对端可能正等着这个核。两毫秒还没有结果，就小睡；睡得很短，
	 * socket buffer 不会因此见底，所以吞吐不受影响，CPU 却空出来了。
	 */
	pause->napped = now - pause->began > SPIN_NS;
	if (pause->napped)
		nanosleep(&nap, NULL);
	else
		sched_yield();
	return 0;
}

int wait_fd(int fd, short events, int64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };

	for (;;) {
		if (stop_requested())
			return -EINTR;
		/*
		 * 信号可能恰好落在上面的检查与 poll() 之间而不打断 poll()，
		 * 所以一次最多睡 500 ms 就回来再看一眼标志。
		 */
		int n = poll(&p, 1, slice_ms(deadline, 500));
		/* POLLERR/POLLHUP 也算“就绪”：随后的 read/write 会给出真正的 errno。*/
		if (n > 0)
			return 0;
		/* EINTR 不是错误：SIGCHLD、SIGALRM、调试器附着都会造成它，继续等即可。*/
		if (n < 0 && errno != EINTR)
			return -errno;
		if (deadline_passed(deadline))
			return -ETIMEDOUT;
	}
}

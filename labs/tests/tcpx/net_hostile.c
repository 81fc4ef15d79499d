// SPDX-License-Identifier: MIT
/*
 * net_hostile.c —— libnccl-net-lab.so 的对端：字节由我们自己拼，每个字段都可以是错的
 *
 *	net_hostile PLUGIN.so     每个 CASE 一行：ok 或 FAIL；有 FAIL 则退出码 1
 *
 * 插件替训练任务在端口上听，谁都连得到；frame 里的 offset 与 length 决定收到的字节写到
 * 哪里。所以要证明的是：错的 hello 只丢掉它自己的 socket；错的 frame、错的 credit 结束
 * comm，说出错在哪里；缓冲区之外一个字节都没有动；关闭之后一个 fd 都不剩。
 *
 * 插件（v8 的表）与对端在同一个进程里，一步一步轮流走，没有时钟可赛。每个 CASE 是一个
 * 子进程：崩溃也只是一行 FAIL。线上的格式照 net_lab.h 的说明在这里另写一遍，不用它的
 * 结构：共用的话，两边会错得一样。
 */
#include "net_hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define WAIT_MS 20000

const ncclNet_v8_t *net;
const char *title;
char logged[65536];
alignas(16) char storage[NCCL_NET_DEV_HANDLE_SIZE];

static __attribute__((format(printf, 5, 6))) void
keep_log(int level, unsigned long flags, const char *file, int line,
	 const char *fmt, ...)
{
	size_t n = strlen(logged);
	va_list ap;

	(void)flags, (void)file, (void)line;
	if (level != NCCL_LOG_WARN || n + 2 > sizeof(logged))
		return;
	va_start(ap, fmt);
	vsnprintf(logged + n, sizeof(logged) - n, fmt, ap);
	va_end(ap);
	n = strlen(logged);
	snprintf(logged + n, sizeof(logged) - n, "\n");
}

void start(void)
{
	CHECK(!net->init(keep_log), "init");
}

unsigned int count(const char *text)
{
	unsigned int n = 0;

	for (const char *at = logged; (at = strstr(at, text)); at++)
		n++;
	return n;
}

void pause_for(const char *what, int *rounds)
{
	CHECK(++*rounds < WAIT_MS, "waited %d s for %s", WAIT_MS / 1000, what);
	poll(NULL, 0, 1);
}

/* ---- 字节 ----------------------------------------------------------------- */

char *put(char *at, uint64_t value, int width)
{
	for (int i = width - 1; i >= 0; i--)
		*at++ = (char)(value >> (8 * i));
	return at;
}

uint64_t get(const char *at, int width)
{
	uint64_t value = 0;

	for (int i = 0; i < width; i++)
		value = value << 8 | (uint8_t)at[i];
	return value;
}

char *put_frame(char *at, uint32_t magic, uint32_t seq, uint32_t slot,
		uint32_t total, uint32_t offset, uint32_t length)
{
	const uint32_t fields[] = { magic, seq, slot, total, offset, length };

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		at = put(at, fields[i], 4);
	return at;
}

void say(int fd, const char *bytes, size_t n)
{
	ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

	CHECK(sent == (ssize_t)n, "send: %zd of %zu: %s", sent, n,
	      strerror(errno));
}

void hear(int fd, char *bytes, size_t n)
{
	ssize_t got = recv(fd, bytes, n, MSG_WAITALL);

	CHECK(got == (ssize_t)n, "recv: %zd of %zu: %s", got, n,
	      strerror(errno));
}

void end(int fd, bool reset)
{
	const struct linger now = { .l_onoff = 1 };

	if (reset)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

uint8_t pattern(uint32_t slot, uint32_t offset)
{
	return (uint8_t)(slot * 101 + offset * 7 + (offset >> 8) + 1);
}

/* ---- main ----------------------------------------------------------------- */

static struct {
	pid_t pid;
	const char *name;
} children[2];
static unsigned int running, failures, cases;

/* 盖住 libc 的。这里没有别的线程，用不着锁：只看有没有配对。*/
static int locked;

int pthread_mutex_lock(pthread_mutex_t *lock)
{
	(void)lock;
	return locked++, 0;
}

int pthread_mutex_unlock(pthread_mutex_t *lock)
{
	(void)lock;
	return locked--, 0;
}

static void reap(void)
{
	int status;
	pid_t pid = wait(&status);
	unsigned int i = pid == children[0].pid ? 0 : 1;

	if (WIFSIGNALED(status))
		printf("FAIL %s: signal %d\n", children[i].name,
		       WTERMSIG(status));
	failures += status != 0;
	children[i] = children[--running];
}

void in_child(const char *name, void (*run)(const void *), const void *arg)
{
	cases++;
	title = name;
	if (running == 2)
		reap();
	fflush(stdout);
	children[running].name = name;
	children[running].pid = fork();
	if (children[running++].pid)
		return;
	alarm(60);
	run(arg);
	CHECK(!locked, "%d locks are held", locked);
	printf("ok %s\n", name);
	fflush(stdout);
	exit(0); /* LeakSanitizer 在这里看 */
}

int main(int argc, char *argv[])
{
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;

	net = lib ? dlsym(lib, "ncclNetPlugin_v8") : NULL;
	if (!net) {
		fprintf(stderr, "usage: net_hostile PLUGIN.so\n");
		return 2;
	}
	listener_cases();
	receiver_cases();
	sender_cases();
	device_cases();
	while (running)
		reap();
	printf("%u cases, %u failed\n", cases, failures);
	return failures || cases < 110;
}

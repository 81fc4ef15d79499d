// SPDX-License-Identifier: MIT
/*
 * spy.c —— LD_PRELOAD 的“间谍”：记录程序对 libibverbs（spy_verbs.c）与 socket 的
 * 调用，按吩咐让其中一个失败，或者让设备说谎
 *
 *	SPY_LOG=FILE            每次调用追加一行（"modify_qp state=2 …"）
 *	SPY_FAIL=NAME:N:ERRNO   第 N 次调用 NAME 时失败（0：每次），ERRNO 是数字；可用逗号
 *	                        分隔。NAME 也指它的变体：ibv_create_cq_ex 算 ibv_create_cq
 *	SPY_STOP=NAME:N         第 N 次调用 NAME 之前停下（SIGSTOP），等人来杀或叫醒；可用逗号分隔
 *	SPY_LIE=WORD,…          no_device   设备列表是空的
 *	                        gid_v1      每个 GID 都自称 RoCE v1
 *	                        gid_order   槽 0、1 自称 RoCE v1，原来的 1 搬到槽 5
 *	                        wr_id opcode status   completion 里的这一项是错的
 *	                        short       recv/send 与写 stdout 每次只动 1 个字节
 *	                        eintr       recv/send/connect/poll 每隔一次 EINTR
 *	                        again       send 每隔一次 EAGAIN
 *	                        alarm       每 2 ms 一个 SIGALRM，不带 SA_RESTART
 *	                        small_port  端口的 max_msg_sz 是 8 MiB（6.1 的 rxe 真是这样）
 *	                        lost        poll_cq 永远说 CQ 是空的
 *	                        ready       poll_cq 等到有了才返回（至多 10 s）
 *	                        broken      poll_cq 返回 -2，errno 是别人留下的
 *	                        twice       RECV 的 completion 来两次，然后才是 SEND 的
 *	                        early       RECV 的 completion 先来，然后才是 SEND 的
 *	                        late        每个 SEND 晚 300 ms 才交给设备
 *	                        between     arm 之前先过 500 ms：该来的都已经来了
 *	                        no_nul      每个 SEND 的内容都是 'x'，没有 NUL
 *	                        rkey        每个 READ 用的都是一个没有人的 rkey
 *	                        stuck       拆除永远不返回
 *	                        patient     7 次重传要 7 s，而不是半秒：机器忙不是网络断了
 *	                        poison      poll_cq 先说三次没有；返回 0 时，wc 里是垃圾
 *
 * 结束时还有一行：poll_cq、req_notify_cq、get_cq_event 各几次，用了多少 CPU 时间。
 * 内存还注册着就 free 了，记 "free registered"。
 */
#include "spy.h"

#include "real.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MAX_NAMES 32

void note(const char *fmt, ...)
{
	static FILE *log;
	const char *path = getenv("SPY_LOG");
	va_list ap;

	if (!path)
		return;
	if (!log)
		log = fopen(path, "a");
	if (!log)
		abort();
	flockfile(log); /* 两个线程的行不混在一起 */
	va_start(ap, fmt);
	vfprintf(log, fmt, ap);
	va_end(ap);
	fputc('\n', log);
	fflush(log);
	funlockfile(log);
}

bool lies(const char *word)
{
	const char *list = getenv("SPY_LIE");
	size_t len = strlen(word);

	for (; list && *list; list += strcspn(list, ",")) {
		list += *list == ',';
		if (!strncmp(list, word, len) && strchr(",", list[len]))
			return true;
	}
	return false;
}

/* NAME 的第几次调用，从 1 数起。*/
static int count_call(const char *name)
{
	static struct {
		const char *name;
		int calls;
	} seen[MAX_NAMES];

	for (int i = 0; i < MAX_NAMES; i++) {
		if (!seen[i].name)
			seen[i].name = name;
		if (!strcmp(seen[i].name, name))
			return ++seen[i].calls;
	}
	abort();
}

/* 停在 verbs 的两次调用之间：测试由此拿到“任何时刻”里的每一个。*/
static void stop_at(const char *name, int call)
{
	const char *list = getenv("SPY_STOP");
	char want[64];
	int n;

	for (; list && *list; list += strcspn(list, ",")) {
		list += *list == ',';
		if (sscanf(list, "%63[^:]:%d", want, &n) == 2 &&
		    !strcmp(want, name) && n == call)
			raise(SIGSTOP);
	}
}

/* 这一次调用应当失败吗？是则返回 errno 的值，否则 0。*/
int must_fail(const char *name)
{
	const char *list = getenv("SPY_FAIL");
	int call = count_call(name);
	char want[64];
	int n, err;

	stop_at(name, call);
	for (; list && *list; list += strcspn(list, ",")) {
		list += *list == ',';
		if (sscanf(list, "%63[^:]:%d:%d", want, &n, &err) == 3 &&
		    !strcmp(want, name) && (!n || n == call)) {
			note("fail %s %d", name, err);
			return err;
		}
	}
	return 0;
}

/* ---- socket ------------------------------------------------------------- */

static bool interrupted(const char *name)
{
	if (!lies("eintr") || count_call(name) % 2 == 0)
		return false;
	errno = EINTR;
	return true;
}

ssize_t recv(int sock, void *data, size_t size, int flags)
{
	REAL(recv);
	if (interrupted("recv"))
		return -1;
	/* 偷看拿不走什么，总能看到全部。*/
	if (lies("short") && size > 1 && !(flags & MSG_PEEK))
		size = 1;
	note("recv");
	return real(sock, data, size, flags);
}

ssize_t send(int sock, const void *data, size_t size, int flags)
{
	REAL(send);
	if (interrupted("send"))
		return -1;
	if (lies("again") && count_call("send") % 2) {
		errno = EAGAIN;
		return -1;
	}
	if (lies("short") && size > 1)
		size = 1;
	note("send");
	return real(sock, data, size, flags);
}

/* 只是 stdout：rxe 的 post_send 也是一个 write。*/
ssize_t write(int fd, const void *data, size_t size)
{
	REAL(write);
	bool out = lies("short") && fd == STDOUT_FILENO;

	return real(fd, data, out && size > 1 ? 1 : size);
}

/* connect 被信号打断后，连接仍在后台建立：先真的开始，再说 EINTR。*/
int connect(int sock, const struct sockaddr *addr, socklen_t len)
{
	REAL(connect);
	int rc = real(sock, addr, len);

	if ((rc == 0 || errno == EINPROGRESS) && interrupted("connect"))
		return -1;
	return rc;
}

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	REAL(poll);
	return interrupted("poll") ? -1 : real(fds, n, timeout);
}

/* 敲门的人还在门口：下一次就接得到。*/
int accept4(int sock, struct sockaddr *addr, socklen_t *len, int flags)
{
	REAL(accept4);
	int err = must_fail("accept4");

	if (!err)
		return real(sock, addr, len, flags);
	errno = err;
	return -1;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
		   void *(*begin)(void *), void *context)
{
	REAL(pthread_create);
	int err = must_fail("pthread_create");

	return err ? err : real(thread, attr, begin, context);
}

/* 写错了，就什么也不会失败，测试却照样通过：不许。*/
static void check_words(const char *variable, const char *known)
{
	const char *list = getenv(variable);
	char word[64];

	for (; list && *list; list += strcspn(list, ",")) {
		list += *list == ',';
		snprintf(word, sizeof(word), " %.*s ", (int)strcspn(list, ",:"),
			 list);
		if (strstr(known, word))
			continue;
		fprintf(stderr, "spy: %s has an unknown word:%s\n", variable,
			word);
		_exit(99);
	}
}

__attribute__((constructor)) static void check_what_is_asked(void)
{
	static const char calls[] =
		" ibv_get_device_list ibv_open_device ibv_query_gid_ex "
		"ibv_query_device ibv_query_port ibv_alloc_pd "
		"ibv_dealloc_pd ibv_reg_mr ibv_dereg_mr "
		"ibv_create_comp_channel ibv_destroy_comp_channel "
		"ibv_create_cq ibv_destroy_cq ibv_create_qp ibv_destroy_qp "
		"ibv_modify_qp ibv_post_send ibv_post_recv accept4 "
		"pthread_create ";

	check_words("SPY_FAIL", calls);
	check_words("SPY_STOP", calls);
	check_words(
		"SPY_LIE",
		" no_device gid_v1 gid_order wr_id old opcode status short "
		"eintr again alarm small_port lost ready broken twice early "
		"late between no_nul rkey stuck patient poison ");
}

static void on_alarm(int sig)
{
	(void)sig;
}

__attribute__((constructor)) static void start_alarms(void)
{
	const struct itimerval every = { { 0, 2000 }, { 0, 2000 } };
	struct sigaction act = { .sa_handler = on_alarm };

	if (!lies("alarm"))
		return;
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

// SPDX-License-Identifier: MIT
/*
 * ctl.c - lab 脚本对一个 VM 说的几句话。
 *
 *	ctl ping|setup|off RUNDIR PID SECONDS [KEY=VALUE...]
 *		经 ctl.sock 问 guest 的 agent，直到它回答、PID (qemu) 死掉，或者
 *		过了 SECONDS 秒。setup 自己补上 time= 和 seed=。
 *	ctl busy RUNDIR
 *		打印正在使用的会话数
 *	ctl tie PARENT CMD...
 *		执行 CMD，并与父进程同生共死
 *	ctl alone CMD...
 *		执行 CMD，只带着 stdin、stdout、stderr
 *
 * 同一个请求每半秒重发一次：qemu 刚恢复时，字节可能落在 guest 还没醒来的缝里。
 * 回答里带着我们的 nonce，所以对上一次请求迟到的回答不会被当成这一次的。
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

#define RESEND_MS 500

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "lab: %s: %s\n", what, why);
	return 1;
}

static void hex_random(char *text, size_t bytes)
{
	unsigned char raw[64];

	if (getrandom(raw, bytes, 0) != (ssize_t)bytes)
		abort();
	for (size_t i = 0; i < bytes; i++)
		sprintf(text + 2 * i, "%02x", raw[i]);
}

/* 僵尸也算活着 (kill 0 成功)，所以要看 /proc 里的状态。 */
static bool alive(pid_t pid)
{
	char path[64], line[512] = "";
	const char *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	state = strrchr(line, ')');
	return state && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X';
}

struct question {
	char type;
	char nonce[17];
	struct wire_buf list; /* nonce 和 KEY=VALUE */
};

static void compose(struct question *q, const char *verb, char **pairs)
{
	char seed[129], text[160];
	struct timespec t;

	q->type = *verb == 'p' ? W_PING : *verb == 's' ? W_SETUP : W_OFF;
	hex_random(q->nonce, 8);
	wire_str(&q->list, q->nonce);
	for (; *pairs; pairs++)
		wire_str(&q->list, *pairs);
	if (q->type != W_SETUP)
		return;
	hex_random(seed, 64);
	snprintf(text, sizeof(text), "seed=%s", seed);
	wire_str(&q->list, text);
	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(text, sizeof(text), "time=%lld.%09ld", (long long)t.tv_sec,
		 t.tv_nsec);
	wire_str(&q->list, text);
}

static void send_question(int fd, const struct question *q)
{
	struct wire_buf out = { 0 };

	wire_put(&out, q->type, wire_head(&q->list), wire_len(&q->list));
	if (send(fd, wire_head(&out), wire_len(&out), MSG_NOSIGNAL) < 0)
		usleep(10000);
	free(out.data);
}

/* 一个 frame：是给我们的回答就返回 0 (好) 或 1 (不好)，否则 -1。 */
static int judge(const struct question *q, const struct wire_in *in)
{
	char *v[3];

	if (wire_list(in, v, 2) != 2 || strcmp(v[0], q->nonce))
		return -1;
	return wire_type(in) == W_DONE ? 0 : fail("the VM says", v[1]);
}

/* 在已连上的 socket 上等半秒。-1：还没有回答；-2：断了。 */
static int listen_once(int fd, const struct question *q, struct wire_in *in)
{
	long end = now_ms() + RESEND_MS;
	unsigned char bytes[4096];

	while (now_ms() < end) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (poll(&p, 1, (int)(end - now_ms())) <= 0)
			continue;
		n = recv(fd, bytes, sizeof(bytes), 0);
		if (n <= 0)
			return -2;
		for (size_t i = 0; i < (size_t)n;) {
			int rc;

			i += wire_take(in, bytes + i, (size_t)n - i);
			rc = in->whole ? judge(q, in) : -1;
			if (rc >= 0)
				return rc;
		}
	}
	return -1;
}

static int ask(const char *verb, const char *dir, pid_t qemu, long seconds,
	       char **pairs)
{
	long end = now_ms() + seconds * 1000;
	struct question q = { 0 };
	struct wire_in in = { 0 };
	char path[128];
	int fd = -1, rc;

	/* lab 被 kill -9 时不要替它握着继承来的锁。 */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	compose(&q, verb, pairs);
	snprintf(path, sizeof(path), "%s/ctl.sock", dir);
	while (now_ms() < end) {
		if (!alive(qemu))
			return fail(verb, "QEMU ended");
		if (fd < 0)
			fd = connect_to(path);
		if (fd < 0) {
			usleep(5000);
			continue;
		}
		send_question(fd, &q);
		rc = listen_once(fd, &q, &in);
		if (rc >= 0)
			return rc;
		if (rc == -2) {
			close(fd);
			fd = -1;
		}
	}
	return fail(verb, "the VM did not answer in time");
}

/* sN.lock 被 flock 着 = 有一个 attach 在用 sN。 */
static int busy(const char *dir)
{
	int n = 0;

	for (int i = 0; i < WIRE_SESSIONS; i++) {
		char path[128];
		int fd;

		snprintf(path, sizeof(path), "%s/s%d.lock", dir, i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		n += flock(fd, LOCK_EX | LOCK_NB) != 0;
		close(fd);
	}
	printf("%d\n", n);
	return 0;
}

/*
 * 父进程一死 (哪怕是 kill -9，来不及跑任何 trap)，内核就替它杀掉 CMD。prctl 之
 * 后再核对一次 getppid：父进程可能死在 fork 和 prctl 之间，那就不会有信号了。
 */
static int tie(pid_t parent, char **cmd)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		return fail("tie", "the parent is gone");
	execvp(*cmd, cmd);
	return fail(*cmd, strerror(errno));
}

/*
 * VM 比启动它的命令活得久。它若还握着那边的 pipe，等这个 pipe 读到头的人 (例如
 * bash 的 >(tee)) 就要等到 VM 结束。
 */
static int alone(char **cmd)
{
	close_range(3, ~0u, 0);
	execvp(*cmd, cmd);
	return fail(*cmd, strerror(errno));
}

int main(int argc, char **argv)
{
	const char *verb = argc > 2 ? argv[1] : "";

	if (!strcmp(verb, "busy"))
		return busy(argv[2]);
	if (!strcmp(verb, "alone"))
		return alone(argv + 2);
	if (!strcmp(verb, "tie") && argc > 3)
		return tie(atoi(argv[2]), argv + 3);
	if (argc > 4 && (!strcmp(verb, "ping") || !strcmp(verb, "setup") ||
			 !strcmp(verb, "off")))
		return ask(verb, argv[2], atoi(argv[3]), atol(argv[4]),
			   argv + 5);
	fprintf(stderr, "usage: ctl ping|setup|off RUNDIR PID SECONDS [K=V...]"
			" | busy RUNDIR | tie PARENT CMD... | alone CMD...\n");
	return 2;
}

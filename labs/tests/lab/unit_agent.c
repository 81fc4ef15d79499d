// SPDX-License-Identifier: MIT
/*
 * unit_agent.c —— agent.c 在 host 上：问它的有多长，fork 不成时 port 还归它看
 *
 * 关机、挂载之类都换成空的：它以为自己是 1 号进程。
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define fork()		 (-1)
#define main		 agent_main
#define mkdir(...)	 ((void)0)
#define mount(...)	 (-1)
#define reboot(...)	 abort()
#define sethostname(...) ((void)0)
#include "agent.c"
#undef main

#include "../unit.h"

enum session_end session_serve(int port, bool keep_clock)
{
	(void)port, (void)keep_clock;
	abort();
}

void clock_follow(const char *host_time)
{
	(void)host_time;
}

void oom_score(const char *score)
{
	(void)score;
}

int watch_children(void)
{
	return -1;
}

/* 这么多个字符串的 W_PING，有没有人回答。*/
static bool answered(struct agent *a, int host, int strings)
{
	struct wire_buf list = { 0 }, out = { 0 };
	char answer[64];

	for (int i = 0; i < strings; i++)
		wire_str(&list, "x");
	wire_put_list(&out, W_PING, &list);
	wire_flush(host, &out);
	free(list.data);
	free(out.data);
	read_control(a);
	return recv(host, answer, sizeof(answer), MSG_DONTWAIT) > 0;
}

int main(void)
{
	struct agent a = { .epoll = epoll_create1(0) };
	struct epoll_event event;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
		abort();
	a.control = a.port[0] = pair[0];
	CHECK(answered(&a, pair[1], MOST_STRINGS), "as many as it takes");
	CHECK(!answered(&a, pair[1], MOST_STRINGS + 1), "one more");

	if (watch(&a, a.port[0], 0) || write(pair[1], "x", 1) != 1)
		abort();
	serve(&a, 0);
	CHECK(!a.server[0] && epoll_wait(a.epoll, &event, 1, 0) == 1,
	      "a port that nobody could be made to serve");
	free(a.in.frame.data);
	free(a.list.data);
	free(a.out.data);
	return unit_result("agent");
}

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
#include "../open_files.h"
#include "tcpx/nccl_net.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A row of a table says what is not 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define WAIT_MS	   20000
#define HELLO	   0x4c414248u
#define FRAME	   0x4c414246u
#define CREDIT	   0x4c414243u
#define COOKIE	   0x1122334455667788u
#define ARENA	   (1 << 16)
#define SHADE	   0x5a
#define PART(rows) (sizeof(rows) / sizeof(*(rows)))

static const ncclNet_v8_t *net;
static const char *title;
static char logged[65536]; /* 插件的警告，一行一个 */

#define CHECK(ok, ...)                                         \
	do {                                                   \
		if (ok)                                        \
			break;                                 \
		printf("FAIL %s: line %d: ", title, __LINE__); \
		printf(__VA_ARGS__);                           \
		printf("\n  log: %s\n", logged);               \
		fflush(stdout);                                \
		_exit(3);                                      \
	} while (0)

static __attribute__((format(printf, 5, 6))) void
keep_log(int level, unsigned long flags, const char *file, int line,
	 const char *fmt, ...)
{
	size_t n = strlen(logged);
	va_list ap;

	(void)flags, (void)file, (void)line;
	if (level != NCCL_LOG_WARN)
		return;
	va_start(ap, fmt);
	vsnprintf(logged + n, sizeof(logged) - n - 1, fmt, ap);
	va_end(ap);
	strcat(logged, "\n");
}

/* 日志里说了几次。*/
static unsigned int count(const char *text)
{
	unsigned int n = 0;

	for (const char *at = logged; (at = strstr(at, text)); at++)
		n++;
	return n;
}

/* 让另一边走一毫秒；第 20,000 轮就是失败。*/
static void pause_for(const char *what, int *rounds)
{
	CHECK(++*rounds < WAIT_MS, "waited %d s for %s", WAIT_MS / 1000, what);
	poll(NULL, 0, 1);
}

/* ---- 一步：在 @on 上说几个 32 位的数，大端 -------------------------------- */

/* 最后一个字节之后，socket 怎样；DRIP：一个字节一个字节地说。*/
enum after {
	ON,
	CLOSE,
	RESET,
	DRIP
};

struct step {
	int on;		  /* frame 的 data socket，1 或 2 */
	uint32_t word[6]; /* hello 的 2、3 是 cookie，异或在真的上面 */
	size_t cut;	  /* 非零：只说这么多字节 */
	enum after after;
};

struct hostile {
	const char *name, *fault; /* fault 为 NULL：没有错，只是少见 */
	struct step step[5];	  /* word[0] 为 0 结束 */
};

// clang-format off
#define H(version, index, count, ...) \
	{ 0, { HELLO, (version) << 16 | (index) << 8 | (count), __VA_ARGS__ } }
#define F(on, ...) { on, { FRAME, __VA_ARGS__ } }  /* seq slot total offset length */
#define CUT(n, how, ...) { 1, { FRAME, __VA_ARGS__ }, n, how }
#define C(...) { 0, { CREDIT, __VA_ARGS__, 9 } }  /* seq n size */
#define REST F(1, 0, 1, 100, 0, 100), F(2, 1, 0, 50, 0, 50)

static const struct hostile hellos[] = {
	{ "another magic", "does not say hello", { { 0, { FRAME, 1 << 16 | 3 } } } },
	{ "version 257", "another version", { H(257, 0, 3, 0) } },
	{ "cookie, highest bit", "cookie is not", { H(1, 0, 3, 1u << 31) } },
	{ "count 1", "index or count", { H(1, 0, 1, 0) } },
	{ "count 10", "index or count", { H(1, 0, 10, 0) } },
	{ "index is count", "index or count", { H(1, 3, 3, 0) } },
	{ "index twice", "has a socket of that index", { H(1, 1, 3, 0), H(1, 1, 3, 0) } },
	{ "two counts", "has another count", { H(1, 1, 9, 0), H(1, 0, 2, 0) } },
	{ "closed a byte too soon", "closed before its hello",
	  { { 0, { HELLO, 1 << 16 | 3 }, 23, CLOSE } } },
	{ "most sockets, not all", NULL, { H(1, 8, 9, 0), H(1, 1, 9, 0) } },
	{ "index 0 without the others", NULL, { H(1, 0, 2, 0) } },
};

static const struct hostile frames[] = {
	{ "magic", "no frame begins so", { { 1, { HELLO, 0, 0, 1000, 0, 1000 } } } },
	{ "the next seq", "no such receive", { F(1, 2, 0, 50, 0, 50) } },
	{ "a seq in the same place", "no such receive", { F(1, 16, 0, 1000, 0, 1000) } },
	{ "one slot too many", "has no such slot", { F(1, 0, 2, 0, 0, 0) } },
	{ "slot -1", "has no such slot", { F(1, 0, -1u, 0, 0, 0) } },
	{ "a byte too long", "longer than the buffer", { F(1, 0, 0, 1001, 0, 1001) } },
	{ "total -1", "longer than the buffer", { F(1, 0, 0, -1u, 0xffffff00, 0xff) } },
	{ "last byte outside", "ends beyond", { F(1, 0, 0, 1000, 999, 2) } },
	{ "begins behind the end", "ends beyond", { F(1, 0, 0, 1000, 1001, 0) } },
	{ "offset + length is 16", "ends beyond", { F(1, 0, 0, 1000, 0xffffff00, 272) } },
	{ "an empty piece", "empty piece", { F(1, 0, 0, 1000, 0, 0) } },
	{ "two totals", "differs from the first",
	  { F(1, 0, 0, 1000, 0, 500), F(1, 0, 0, 999, 500, 499) } },
	{ "pieces that overlap", "more than the message",
	  { F(1, 0, 0, 1000, 0, 600), F(2, 0, 0, 1000, 400, 600) } },
	{ "the whole again while it comes", "message already",
	  { CUT(900, ON, 0, 0, 1000, 0, 1000), F(2, 0, 0, 1000, 0, 1000) } },
	{ "nothing, again", "message already", { F(1, 0, 0, 0, 0, 0), F(2, 0, 0, 0, 0, 0) } },
	{ "closed before its last byte", "in the middle",
	  { CUT(1023, CLOSE, 0, 0, 1000, 0, 1000) } },
	{ "closed behind what is only peeked at", "with 1 receives outstanding",
	  { F(1, 0, 0, 1000, 0, 1000), CUT(0, CLOSE, 0, 1, 100, 0, 100),
	    { 2, { FRAME, 1, 0, 50, 0, 1 }, 0, CLOSE } } },
	{ "reset", "receiving failed", { CUT(500, RESET, 0, 0, 1000, 0, 1000) } },
	{ "byte by byte", NULL,
	  { CUT(0, DRIP, 0, 0, 1000, 0, 300), CUT(0, DRIP, 0, 0, 1000, 300, 700), REST } },
	{ "pieces backwards", NULL,
	  { F(2, 0, 0, 1000, 700, 300), F(1, 0, 0, 1000, 1, 699), F(2, 0, 0, 1000, 0, 1), REST } },
	{ "one socket closes, its work done", NULL,
	  { F(1, 0, 0, 1000, 0, 1000), CUT(0, CLOSE, 0, 1, 100, 0, 100), F(2, 1, 0, 50, 0, 50) } },
};

static const struct hostile credits[] = {
	{ "magic", "not a credit", { { 0, { FRAME, 0, 1, 500 } } } },
	{ "the next seq", "not a credit", { C(1, 1, 500) } },
	{ "seq twice", "not a credit", { C(0, 1, 5), C(0, 1, 500) } },
	{ "no slot", "not a credit", { C(0, 0, 500) } },
	{ "9 slots", "not a credit", { C(0, 9, 500) } },
	{ "closed in its slot", "closed the connection", { { 0, { CREDIT, 0, 1, 500 }, 19, CLOSE } } },
	{ "reset", "reading credits failed", { { 0, { CREDIT, 0, 1, 500 }, 12, RESET } } },
	{ "17 receives", "more than 16 receives", { { 0, { 0 } } } },
};
// clang-format on

/* 那个 slot 的消息，从头数第 offset 个字节。*/
static uint8_t pattern(uint32_t slot, uint32_t offset)
{
	return (uint8_t)(slot * 101 + offset * 7 + (offset >> 8) + 1);
}

/* frame 后面有 payload，credit 只有五个数。*/
static size_t build(char *bytes, const struct step *s, uint64_t cookie)
{
	uint32_t n = s->word[5] < 4096 ? s->word[5] : 4096;

	for (int i = 0; i < 6; i++) {
		uint64_t mask = i == 2 ? cookie >> 32 : i == 3 ? cookie : 0;
		uint32_t word = htonl(s->word[i] ^ (uint32_t)mask);

		memcpy(bytes + 4 * i, &word, 4);
	}
	if (!s->on)
		return s->word[0] == CREDIT ? 20 : 24;
	for (uint32_t i = 0; i < n; i++)
		bytes[24 + i] = (char)pattern(s->word[1] ? 2 : s->word[2],
					      s->word[4] + i);
	return 24 + n;
}

static void say(int fd, const char *bytes, size_t n)
{
	CHECK(send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n, "send: %s",
	      strerror(errno));
}

static void end(int *fd, enum after after)
{
	const struct linger now = { .l_onoff = 1 };

	if (after == CLOSE)
		shutdown(*fd, SHUT_WR);
	if (after != RESET)
		return;
	setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(*fd);
	*fd = 0;
}

/* ---- 插件的一个 comm，与它的对端 ------------------------------------------ */

struct pair {
	void *listen, *comm; /* 插件的 */
	struct sockaddr_in addr;
	uint64_t cookie; /* addr 与它：插件的 listener 的 */
	int listener;	 /* 我们的，插件连过来 */
	char handle[NCCL_NET_HANDLE_MAXSIZE];
	int fd[3]; /* 对端的，按 index；0 是 control */
	int fds;   /* 之前开着的 */
};

static alignas(16) char storage[NCCL_NET_DEV_HANDLE_SIZE];
static ncclNetDeviceHandle_t *device_handle = (void *)storage;

/* 插件在听。句柄里我们要的：8 ip，12 port，24 起是 cookie。*/
static void listen_on(struct pair *p)
{
	CHECK(!net->init(keep_log), "init");
	p->fds = open_files();
	memset(p->handle, 0xee, sizeof(p->handle));
	CHECK(!net->listen(0, p->handle, &p->listen), "listen");
	p->addr.sin_family = AF_INET;
	memcpy(&p->addr.sin_addr, p->handle + 8, 4);
	memcpy(&p->addr.sin_port, p->handle + 12, 2);
	memcpy(&p->cookie, p->handle + 24, 8);
	for (size_t i = 40; i < sizeof(p->handle); i++)
		CHECK(!p->handle[i], "byte %zu of the handle is stale", i);
}

static int knock(const struct pair *p)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	CHECK(!connect(fd, (const struct sockaddr *)&p->addr, sizeof(p->addr)),
	      "connect: %s", strerror(errno));
	return fd;
}

/* 问一次，不许出错：有 comm 了吗？*/
static bool accepted(struct pair *p)
{
	p->comm = p; /* 上一次留下的：没有人来，也不该还在 */
	CHECK(!net->accept(p->listen, &p->comm, &device_handle), "accept");
	return p->comm;
}

/* 守规矩的一个连接的第 @index 个 socket，一字节一字节地说。*/
static void greet(struct pair *p, uint32_t index)
{
	const struct step s = H(1, index, 3, 0, 0, 7);
	char bytes[24];

	build(bytes, &s, p->cookie);
	p->fd[index] = knock(p);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		CHECK(!accepted(p), "too early, at byte %zu", i);
		say(p->fd[index], bytes + i, 1);
	}
}

static void await_comm(struct pair *p)
{
	int rounds = 0;

	while (!accepted(p))
		pause_for("a comm", &rounds);
}

/* 都来，次序反着。*/
static void join(struct pair *p)
{
	for (uint32_t i = 3; i--;)
		greet(p, i);
	await_comm(p);
}

/* 我们听；句柄照插件的样子做：magic，version，api，ip，port，cookie。*/
static void make_handle(struct pair *p)
{
	const struct {
		uint32_t magic;
		uint16_t version, api;
	} mine = { 0x4c414e44, 1, 8 };
	struct sockaddr *addr = (struct sockaddr *)&p->addr;
	socklen_t len = sizeof(p->addr);

	CHECK(!net->init(keep_log), "init");
	p->fds = open_files();
	p->addr.sin_family = AF_INET;
	p->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p->cookie = COOKIE;
	p->listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(p->listener, addr, len) && !listen(p->listener, 9) &&
		      !getsockname(p->listener, addr, &len),
	      "my listener");
	memcpy(p->handle, &mine, 8);
	memcpy(p->handle + 8, &p->addr.sin_addr, 4);
	memcpy(p->handle + 12, &p->addr.sin_port, 2);
	memcpy(p->handle + 24, &p->cookie, 8);
}

static void connect_to_me(struct pair *p)
{
	char hello[24], want[24];
	int rounds = 0;

	make_handle(p);
	while (!p->comm) {
		CHECK(!net->connect(0, p->handle, &p->comm, &device_handle),
		      "connect");
		pause_for("connect", &rounds);
	}
	for (int i = 0; i < 3; i++) {
		const struct step s = { 0, { HELLO, 1 << 16 | 3 } };
		int fd = accept(p->listener, NULL, NULL), index;

		CHECK(recv(fd, hello, 24, MSG_WAITALL) == 24, "no hello");
		index = hello[6];
		build(want, &s, p->cookie);
		want[6] = hello[6];
		CHECK(!memcmp(hello, want, 16) && index < 3 && !p->fd[index],
		      "its hello is wrong");
		p->fd[index] = fd;
	}
}

static void part(struct pair *p)
{
	const int fds[] = { p->fd[0], p->fd[1], p->fd[2], p->listener };

	CHECK(p->listener ? !net->closeSend(p->comm)
			  : !net->closeRecv(p->comm) &&
				    !net->closeListen(p->listen),
	      "a close");
	for (size_t i = 0; i < PART(fds); i++)
		if (fds[i])
			close(fds[i]);
	CHECK(open_files() == p->fds, "%d descriptors, %d before", open_files(),
	      p->fds);
}

/* 坏了就是坏了：说过一次，再问还是同一个错误，不再多说。*/
static void check_broken(const struct pair *p, const char *fault, int rc)
{
	void *request = NULL, *data = storage;
	int size = 1, tag = 9;

	CHECK(rc == NCCL_REMOTE_ERROR, "it returned %d", rc);
	CHECK(count(fault) == 1, "no word of \"%s\"", fault);
	rc = p->listener ? net->isend(p->comm, data, 1, tag, NULL, &request)
			 : net->irecv(p->comm, 1, &data, &size, &tag, NULL,
				      &request);
	CHECK(rc == NCCL_REMOTE_ERROR && !request, "it forgets");
	CHECK(count("comm with") == 1, "more than one line");
}

/* ---- 插件在接收的一侧，frame 里的每个数都可以是错的 ----------------------- */

/* 挂着的：0 号 irecv 有两个 slot，1000 与 100 字节；1 号一个，50 字节。*/
static int rooms[3] = { 1000, 100, 50 };
static const size_t places[3] = { 20000, 30000, 40000 };
static uint8_t arena[ARENA], want[ARENA];
static void *request[2];
static int done[2];

static void post(const struct pair *p)
{
	void *data[3];
	int tags[3] = { 0, 1, 2 };

	memset(arena, SHADE, sizeof(arena));
	memset(want, SHADE, sizeof(want));
	for (int i = 0; i < 3; i++)
		data[i] = arena + places[i];
	for (int i = 0; i < 2; i++)
		CHECK(!net->irecv(p->comm, 2 - i, data + 2 * i, rooms + 2 * i,
				  tags + 2 * i, NULL, &request[i]) &&
			      request[i],
		      "irecv");
}

/* 该有的字节都在，别处一个都没有动；有错的话，只看缓冲区之外。*/
static void check_arena(bool all)
{
	for (int i = 0; !all && i < 3; i++)
		memcpy(want + places[i], arena + places[i], (size_t)rooms[i]);
	for (size_t i = 0; i < ARENA; i++)
		CHECK(arena[i] == want[i], "byte %zu is wrong", i);
}

static int test_both(void)
{
	int rc = 0;

	for (int i = 0; !rc && i < 2; i++)
		if (!done[i])
			rc = net->test(request[i], &done[i], NULL);
	return rc;
}

/* 说完一个，等插件看过，下一个才来。*/
static int send_frame(struct pair *p, const struct step *s, bool good)
{
	uint32_t slot = s->word[1] ? 2 : s->word[2];
	char bytes[24 + 4096];
	size_t size = build(bytes, s, 0);
	int *fd = &p->fd[s->on], rc = 0;

	if (good)
		memcpy(want + places[slot] + s->word[4], bytes + 24, size - 24);
	for (size_t i = 0; s->after == DRIP && i < size; i++) {
		say(*fd, bytes + i, 1);
		CHECK(!test_both(), "test, at byte %zu", i);
	}
	if (s->after != DRIP)
		say(*fd, bytes, s->cut ? s->cut : size);
	if (s->after == CLOSE)
		end(fd, CLOSE);
	for (int k = 0; !rc && k < 40 && !(done[0] && done[1]); k++) {
		rc = test_both();
		poll(NULL, 0, 1);
	}
	if (s->after == RESET)
		end(fd, RESET);
	return rc;
}

static void move_frames(struct pair *p, const struct hostile *c)
{
	int rounds = 0, rc = 0;

	post(p);
	for (int i = 0; !rc && i < 5 && c->step[i].word[0]; i++)
		rc = send_frame(p, &c->step[i], !c->fault);
	while (!rc && !(done[0] && done[1])) {
		rc = test_both();
		pause_for(c->fault ? c->fault : "the messages", &rounds);
	}
	check_arena(!c->fault);
	if (c->fault)
		check_broken(p, c->fault, rc);
	else
		CHECK(!rc && !count("comm with"), "test returned %d", rc);
	check_arena(!c->fault);
}

static void run_frame(const struct hostile *c)
{
	struct pair p = { 0 };

	listen_on(&p);
	join(&p);
	move_frames(&p, c);
	part(&p);
}

/* ---- 插件在听，来的人说不出一个好的 hello：别人照旧 ----------------------- */

static const struct hostile whole = { "",
				      NULL,
				      { F(1, 0, 0, 1000, 0, 1000), REST } };

static void run_hello(const struct hostile *c)
{
	struct pair p = { 0 };
	int fds[4], n = 0, rounds = 0;
	char bytes[24];

	listen_on(&p);
	for (; c->step[n].word[0]; n++) {
		size_t size = build(bytes, &c->step[n], p.cookie);

		fds[n] = knock(&p);
		say(fds[n], bytes, c->step[n].cut ? c->step[n].cut : size);
		end(&fds[n], c->step[n].after);
		/* 一个到了，下一个才来：谁是第二个，不由内核的快慢决定。*/
		CHECK(!accepted(&p), "a comm was made of nothing");
	}
	while (c->fault && !count(c->fault)) {
		CHECK(!accepted(&p), "a comm was made of nothing");
		pause_for(c->fault, &rounds);
	}
	join(&p);
	move_frames(&p, &whole);
	CHECK(count("is dropped") == !!c->fault, "not one socket was dropped");
	while (n--)
		close(fds[n]);
	part(&p);
}

/* 不开口的再多，也挤不走打过招呼的，也挡不住后来的；剩下的，关闭时一个都不留。*/
static void run_crowd(const struct hostile *c)
{
	enum {
		CROWD = 200
	};
	struct pair p = { 0 };
	int crowd[CROWD];

	(void)c;
	listen_on(&p);
	greet(&p, 0);
	CHECK(!accepted(&p), "too early");
	for (int i = 0; i < CROWD; i++) {
		crowd[i] = knock(&p);
		if (i % 2)
			say(crowd[i], "LABH", 4);
		CHECK(!accepted(&p), "a comm was made of nothing");
	}
	greet(&p, 1);
	CHECK(!accepted(&p), "too early");
	greet(&p, 2);
	await_comm(&p);
	move_frames(&p, &whole);
	CHECK(count("too many wait") >= CROWD - 64, "%u were sent away",
	      count("too many wait"));
	for (int i = 0; i < CROWD; i++)
		close(crowd[i]);
	part(&p);
}

/* ---- 插件在发送的一侧，credit 与句柄都可以是错的 -------------------------- */

static void give_credit(struct pair *p, const struct step *s)
{
	char bytes[24];
	size_t size = build(bytes, s, 0);

	say(p->fd[0], bytes, s->cut ? s->cut : size);
}

static void run_credit(const struct hostile *c)
{
	char data[1] = { 0 }, byte;
	struct pair p = { 0 };
	void *made = NULL;
	int rc = 0, rounds = 0;

	connect_to_me(&p);
	for (const struct step *s = c->step; s->word[0]; s++) {
		give_credit(&p, s);
		if (s->cut)
			CHECK(!net->isend(p.comm, data, 1, 1, NULL, &made),
			      "isend");
		end(&p.fd[0], s->after);
	}
	for (uint32_t i = 0; !c->step[0].word[0] && i < 17; i++)
		give_credit(&p, &(struct step)C(i, 1, 5));
	/* tag 1 谁也没有挂：它只是让插件去读。*/
	while (!rc) {
		rc = net->isend(p.comm, data, 1, 1, NULL, &made);
		CHECK(!made, "a request for nothing");
		pause_for(c->fault, &rounds);
	}
	check_broken(&p, c->fault, rc);
	CHECK(recv(p.fd[1], &byte, 1, MSG_DONTWAIT) < 0, "it sent something");
	part(&p);
}

/* ---- main ----------------------------------------------------------------- */

static unsigned int failures, cases;

static void in_child(const char *what, void (*run)(const struct hostile *),
		     const struct hostile *c)
{
	char text[128];
	int status;

	snprintf(text, sizeof(text), "%s: %s", what, c->name);
	title = text;
	cases++;
	fflush(stdout);
	if (!fork()) {
		alarm(60);
		run(c);
		printf("ok %s\n", title);
		fflush(stdout);
		exit(0); /* LeakSanitizer 在这里看 */
	}
	wait(&status);
	if (WIFSIGNALED(status))
		printf("FAIL %s: signal %d\n", title, WTERMSIG(status));
	failures += status != 0;
}

#define EACH(table, run)                         \
	for (size_t i = 0; i < PART(table); i++) \
	in_child(#table, run, &(table)[i])

int main(int argc, char *argv[])
{
	void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;

	net = lib ? dlsym(lib, "ncclNetPlugin_v8") : NULL;
	if (!net) {
		fprintf(stderr, "usage: net_hostile PLUGIN.so\n");
		return 2;
	}
	EACH(hellos, run_hello)
		;
	EACH(frames, run_frame)
		;
	EACH(credits, run_credit)
		;
	in_child("a crowd that is silent", run_crowd, &whole);
	printf("%u cases, %u failed\n", cases, failures);
	return failures != 0;
}

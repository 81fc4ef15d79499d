// SPDX-License-Identifier: MIT
/*
 * net_hostile_listener.c —— 插件在听，来的人说不出一个好的 hello
 */
#include "net_hostile.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define ID     77 /* 一个连接的号码，任意 */
#define LENGTH 300

/* 句柄里我们要的：4 magic，2 version，2 api，4 ip，2 port，…，24 起是 cookie。*/
void listen_on(struct victim *v)
{
	char handle[NCCL_NET_HANDLE_MAXSIZE];

	start();
	v->fds = open_files();
	memset(handle, 0xee, sizeof(handle));
	CHECK(!net->listen(0, handle, &v->listen), "listen");
	v->addr.sin_family = AF_INET;
	memcpy(&v->addr.sin_addr, handle + 8, 4);
	memcpy(&v->addr.sin_port, handle + 12, 2);
	memcpy(&v->cookie, handle + 24, 8);
	CHECK(v->addr.sin_addr.s_addr == htonl(INADDR_LOOPBACK),
	      "it listens elsewhere than on its device");
	for (size_t i = 40; i < sizeof(handle); i++)
		CHECK(!handle[i], "byte %zu of the handle is not its own", i);
}

static int knock(const struct victim *v)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(fd >= 0 && !connect(fd, (const struct sockaddr *)&v->addr,
				  sizeof(v->addr)),
	      "connect: %s", strerror(errno));
	return fd;
}

bool accepted(struct victim *v)
{
	ncclNetDeviceHandle_t *dh = (void *)storage;
	int rc;

	v->comm = v; /* 上一次留下的：没有人来，也不该还在 */
	rc = net->accept(v->listen, &v->comm, &dh);
	CHECK(!rc, "accept returned %d", rc);
	return v->comm;
}

struct hello {
	uint32_t magic;
	uint16_t version;
	uint8_t index, count;
	uint64_t id;
	uint64_t cookie; /* 异或在真的上面 */
};

struct hello_case {
	const char *name, *fault; /* fault 为 NULL：没有错，只是少见 */
	struct hello hello[4];	  /* magic 0 结束 */
	size_t cut;		  /* 最后一个只发这么多 */
};

// clang-format off
static const struct hello_case hello_cases[] = {
	{ "hello: another magic", "does not say hello",
	  { { FRAME, 1, 0, 3, 1, 0 } } },
	{ "hello: little-endian magic", "does not say hello",
	  { { 0x4842414c, 1, 0, 3, 1, 0 } } },
	{ "hello: version 0", "another version", { { HELLO, 0, 0, 3, 1, 0 } } },
	{ "hello: version 2", "another version", { { HELLO, 2, 0, 3, 1, 0 } } },
	{ "hello: version 257", "another version",
	  { { HELLO, 257, 0, 3, 1, 0 } } },
	{ "hello: cookie, lowest bit", "cookie is not",
	  { { HELLO, 1, 0, 3, 1, 1 } } },
	{ "hello: cookie, highest bit", "cookie is not",
	  { { HELLO, 1, 0, 3, 1, 1ull << 63 } } },
	{ "hello: count 0", "index or count", { { HELLO, 1, 0, 0, 1, 0 } } },
	{ "hello: count 1", "index or count", { { HELLO, 1, 0, 1, 1, 0 } } },
	{ "hello: count 10", "index or count", { { HELLO, 1, 0, 10, 1, 0 } } },
	{ "hello: count 255", "index or count",
	  { { HELLO, 1, 0, 255, 1, 0 } } },
	{ "hello: index is count", "index or count",
	  { { HELLO, 1, 3, 3, 1, 0 } } },
	{ "hello: index 255", "index or count",
	  { { HELLO, 1, 255, 9, 1, 0 } } },
	{ "hello: index twice", "has a socket of that index",
	  { { HELLO, 1, 1, 3, 1, 0 }, { HELLO, 1, 1, 3, 1, 0 } } },
	{ "hello: two counts", "has another count",
	  { { HELLO, 1, 1, 9, 1, 0 }, { HELLO, 1, 0, 2, 1, 0 } } },
	{ "hello: closed at once", "closed before its hello",
	  { { HELLO, 1, 0, 3, 1, 0 } }, 64 },
	{ "hello: closed after a byte", "closed before its hello",
	  { { HELLO, 1, 0, 3, 1, 0 } }, 1 },
	{ "hello: closed a byte too soon", "closed before its hello",
	  { { HELLO, 1, 0, 3, 1, 0 } }, 23 },
	{ "hello: most sockets, not all", NULL,
	  { { HELLO, 1, 8, 9, 1, 0 }, { HELLO, 1, 1, 9, 1, 0 } } },
	{ "hello: index 0 without the others", NULL,
	  { { HELLO, 1, 0, 2, 1, 0 } } },
};
// clang-format on

static size_t build_hello(char *bytes, const struct victim *v,
			  const struct hello *h)
{
	char *at = put(bytes, h->magic, 4);

	at = put(at, h->version, 2);
	at = put(at, h->index, 1);
	at = put(at, h->count, 1);
	at = put(at, v->cookie ^ h->cookie, 8);
	at = put(at, h->id, 8);
	return (size_t)(at - bytes);
}

static int greet(const struct victim *v, uint8_t index, uint8_t all,
		 uint64_t id)
{
	const struct hello h = { HELLO, 1, index, all, id, 0 };
	char bytes[64];
	int fd = knock(v);

	say(fd, bytes, build_hello(bytes, v, &h));
	return fd;
}

/* 守规矩的一个连接：fd[0] 是 control。*/
void join(struct victim *v, int fd[3])
{
	int rounds = 0;

	for (uint8_t i = 0; i < 3; i++)
		fd[i] = greet(v, i, 3, ID);
	while (!accepted(v))
		pause_for("a comm", &rounds);
}

void part(struct victim *v, const int fd[3])
{
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	close_all(v);
}

void close_all(struct victim *v)
{
	CHECK(!net->closeRecv(v->comm), "closeRecv");
	CHECK(!net->closeListen(v->listen), "closeListen");
	CHECK(open_files() == v->fds, "%d descriptors, %d before", open_files(),
	      v->fds);
}

/* 0 号 irecv 的 0 号 slot 的一整条消息。*/
static size_t build_message(char *bytes)
{
	char *at = put_frame(bytes, FRAME, 0, 0, LENGTH, 0, LENGTH);

	for (uint32_t i = 0; i < LENGTH; i++)
		*at++ = (char)pattern(0, i);
	return (size_t)(at - bytes);
}

/* 它照常走完；前 @said 个字节已经说过了。*/
static void message(struct victim *v, int fd, size_t said)
{
	static char data[LENGTH];
	void *at = data, *request = NULL;
	int size = LENGTH, tag = 3, done = 0, rounds = 0;
	char bytes[24 + LENGTH];
	size_t n = build_message(bytes);

	CHECK(!net->irecv(v->comm, 1, &at, &size, &tag, NULL, &request) &&
		      request,
	      "irecv");
	say(fd, bytes + said, n - said);
	while (!done) {
		CHECK(!net->test(request, &done, &size), "test");
		pause_for("the message", &rounds);
	}
	CHECK(size == LENGTH && !memcmp(data, bytes + 24, LENGTH),
	      "the message is wrong, %d bytes", size);
}

static void run_hello(const void *arg)
{
	const struct hello_case *c = arg;
	struct victim v = { 0 };
	int fds[4], good[3], n = 0, rounds = 0;
	char bytes[64];

	listen_on(&v);
	for (; c->hello[n].magic; n++) {
		size_t size = build_hello(bytes, &v, &c->hello[n]);

		fds[n] = knock(&v);
		if (c->cut && !c->hello[n + 1].magic) {
			say(fds[n], bytes, c->cut < size ? c->cut : 0);
			shutdown(fds[n], SHUT_WR);
		} else {
			say(fds[n], bytes, size);
		}
		/* 一个到了，下一个才来：谁是第二个，不由内核的快慢决定。*/
		CHECK(!accepted(&v), "a comm was made of nothing");
	}
	while (c->fault && !count(c->fault)) {
		CHECK(!accepted(&v), "a comm was made of nothing");
		pause_for(c->fault, &rounds);
	}
	join(&v, good);
	message(&v, good[2], 0);
	CHECK(count("is dropped") == !!c->fault, "not one socket was dropped");
	for (int i = 0; i < n; i++)
		close(fds[i]);
	part(&v, good);
}

/* 一字节一字节地说，后面紧跟着数据；次序也反着来。*/
static void run_trickle(const void *arg)
{
	struct hello h = { HELLO, 1, 0, 3, ID, 0 };
	struct victim v = { 0 };
	int fds[3], rounds = 0;
	char bytes[64], start[24 + LENGTH];

	(void)arg;
	build_message(start);
	listen_on(&v);
	for (int i = 0; i < 3; i++) {
		size_t size;

		h.index = (uint8_t)(2 - i);
		size = build_hello(bytes, &v, &h);
		fds[i] = knock(&v);
		for (size_t k = 0; k < size; k++) {
			CHECK(!accepted(&v), "too early, at byte %zu", k);
			say(fds[i], bytes + k, 1);
		}
		if (!i)
			say(fds[0], start, 5);
	}
	while (!accepted(&v))
		pause_for("a comm", &rounds);
	message(&v, fds[0], 5);
	CHECK(!*logged, "nothing was wrong");
	part(&v, fds);
}

/* 不开口的再多，也挤不走打过招呼的，也挡不住后来的。*/
static void run_crowd(const void *arg)
{
	enum {
		CROWD = 200
	};
	struct victim v = { 0 };
	int crowd[CROWD], first, good[2], rounds = 0;

	(void)arg;
	listen_on(&v);
	first = greet(&v, 0, 3, ID);
	CHECK(!accepted(&v), "too early");
	for (int i = 0; i < CROWD; i++) {
		crowd[i] = knock(&v);
		CHECK(!accepted(&v), "a comm was made of nothing");
	}
	good[0] = greet(&v, 1, 3, ID);
	good[1] = greet(&v, 2, 3, ID);
	while (!accepted(&v))
		pause_for("a comm", &rounds);
	message(&v, good[0], 0);
	CHECK(count("too many wait") >= CROWD - 64, "%u were sent away",
	      count("too many wait"));
	close(first);
	close(good[0]);
	close(good[1]);
	for (int i = 0; i < CROWD; i++)
		close(crowd[i]);
	close_all(&v);
}

/* 有的不开口，有的没到齐，有的说了一半，有的还没被 accept：关闭时一个都不剩。*/
static void run_half_open(const void *arg)
{
	struct victim v = { 0 };
	int fds[40];

	(void)arg;
	listen_on(&v);
	for (int i = 0; i < 40; i++) {
		fds[i] = i % 3 ? knock(&v) : greet(&v, 0, 9, (uint64_t)i);
		if (i % 3 == 1)
			say(fds[i], "LABH", 4);
		if (i < 30)
			CHECK(!accepted(&v), "a comm was made of nothing");
	}
	CHECK(open_files() >= v.fds + 1 + 40 + 30, "30 are held");
	for (int i = 0; i < 40; i++)
		close(fds[i]);
	close_all(&v);
}

/* 盖住 libc 的（链接时要 -rdynamic）：插件的十秒，一步就到。*/
static time_t ahead;

int clock_gettime(clockid_t clock, struct timespec *t)
{
	int rc = (int)syscall(SYS_clock_gettime, clock, t);

	t->tv_sec += ahead;
	return rc;
}

/* 不开口的，没到齐的：九秒时还在，十一秒时都不在了。*/
static void run_deadline(const void *arg)
{
	struct victim v = { 0 };
	int silent, alone, fds;

	(void)arg;
	listen_on(&v);
	silent = knock(&v);
	alone = greet(&v, 1, 2, ID);
	CHECK(!accepted(&v), "too early");
	fds = open_files();
	ahead = 9;
	CHECK(!accepted(&v) && !*logged && open_files() == fds, "too early");
	ahead = 11;
	CHECK(!accepted(&v) && count("it did not say hello") == 1 &&
		      count("the rest of its connection did not come") == 1 &&
		      open_files() == fds - 2,
	      "both are sent away");
	close(silent);
	close(alone);
	close_all(&v);
}

/* 也盖住 libc 的。*/
static bool listen_fails;

int listen(int fd, int backlog)
{
	if (!listen_fails)
		return (int)syscall(SYS_listen, fd, backlog);
	errno = EADDRINUSE;
	return -1;
}

static void run_no_port(const void *arg)
{
	char handle[NCCL_NET_HANDLE_MAXSIZE];
	void *comm = NULL;
	int fds, rc;

	(void)arg;
	start();
	fds = open_files();
	listen_fails = true;
	rc = net->listen(0, handle, &comm);
	CHECK(rc == NCCL_SYSTEM_ERROR && !comm &&
		      count("listening on 127.0.0.1:0 failed") == 1,
	      "listen returned %d", rc);
	CHECK(open_files() == fds, "its socket is left");
}

void listener_cases(void)
{
	EACH(hello_cases, run_hello);
	in_child("listener: byte by byte", run_trickle, NULL);
	in_child("listener: who does not come in time", run_deadline, NULL);
	in_child("listener: a crowd that is silent", run_crowd, NULL);
	in_child("listener: closed with half-open ones", run_half_open, NULL);
	in_child("listener: no port for it", run_no_port, NULL);
}

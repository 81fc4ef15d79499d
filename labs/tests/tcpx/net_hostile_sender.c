// SPDX-License-Identifier: MIT
/*
 * net_hostile_sender.c —— 插件在发送的一侧，我们是接收的对端：句柄与 credit 都可以是错的
 */
#include "net_hostile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct sender {
	int listener;
	int fd[3]; /* 对端的，按 index */
	char handle[NCCL_NET_HANDLE_MAXSIZE];
	void *comm;
	int fds;
};

static void make_handle(struct sender *s)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	const uint32_t magic = 0x4c414e44;
	const uint16_t version = 1, api = 8;
	const uint64_t cookie = 0x1122334455667788;
	socklen_t len = sizeof(addr);

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	start();
	s->fds = open_files();
	s->listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(s->listener, (struct sockaddr *)&addr, len) &&
		      !listen(s->listener, 9) &&
		      !getsockname(s->listener, (struct sockaddr *)&addr, &len),
	      "my listener");
	memcpy(s->handle, &magic, 4);
	memcpy(s->handle + 4, &version, 2);
	memcpy(s->handle + 6, &api, 2);
	memcpy(s->handle + 8, &addr.sin_addr, 4);
	memcpy(s->handle + 12, &addr.sin_port, 2);
	memcpy(s->handle + 24, &cookie, 8);
}

static int connect_at(char *handle, void **comm)
{
	ncclNetDeviceHandle_t *dh = (void *)storage;

	return net->connect(0, handle, comm, &dh);
}

static int connect_once(struct sender *s)
{
	return connect_at(s->handle, &s->comm);
}

static void connect_to_me(struct sender *s)
{
	int rounds = 0;
	uint64_t id = 0;

	make_handle(s);
	while (!s->comm) {
		CHECK(!connect_once(s), "connect");
		pause_for("connect", &rounds);
	}
	for (int i = 0; i < 3; i++) {
		int fd = accept(s->listener, NULL, NULL);
		char hello[24];

		hear(fd, hello, sizeof(hello));
		CHECK(get(hello, 4) == HELLO && get(hello + 4, 2) == 1 &&
			      get(hello + 7, 1) == 3 &&
			      get(hello + 8, 8) == 0x1122334455667788,
		      "its hello is wrong");
		CHECK(!i || id == get(hello + 16, 8), "two connections");
		id = get(hello + 16, 8);
		CHECK(get(hello + 6, 1) < 3 && !s->fd[get(hello + 6, 1)],
		      "its index is wrong");
		s->fd[get(hello + 6, 1)] = fd;
	}
}

static void close_sender(struct sender *s)
{
	CHECK(!net->closeSend(s->comm), "closeSend");
	for (int i = 0; i < 3; i++)
		if (s->fd[i])
			close(s->fd[i]);
	close(s->listener);
	CHECK(open_files() == s->fds, "%d descriptors, %d before", open_files(),
	      s->fds);
}

/*
 * hello 有 24 个字节，内核当然一次就收下；它收不下的那一次，在这里：少收一个。进程里
 * 的 send 都是这一个，插件的也是。
 */
int send_fault;

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
	if (send_fault > 0) {
		errno = send_fault;
		return -1;
	}
	return sendto(fd, bytes, size - (send_fault == SHORT && size > 1),
		      flags, NULL, 0);
}

static void run_short(const void *arg)
{
	struct sender s = { 0 };

	(void)arg;
	send_fault = SHORT;
	connect_to_me(&s);
	send_fault = WHOLE;
	close_sender(&s);
}

struct handle_case {
	const char *name, *fault;
	int at;
	uint8_t flip;
};

// clang-format off
static const struct handle_case handle_cases[] = {
	{ "handle: magic", "no handle of mine", 0, 1 },
	{ "handle: version", "no handle of mine", 4, 3 },
	{ "handle: made by another table", "use one version", 6, 15 },
	{ "handle: an attempt", "no pristine copy", 32, 1 },
	{ "handle: a pointer for an attempt", "no pristine copy", 37, 0x7f },
	{ "handle: port 1", "connect to 127.0.0.1:", 12 },
	{ "handle: a multicast address", "connect to 224.0.0.1:", 8, 0x9f },
};
// clang-format on

static void run_handle(const void *arg)
{
	const struct handle_case *c = arg;
	struct sender s = { 0 };
	int rc = 0, rounds = 0;

	make_handle(&s);
	s.handle[c->at] = (char)(s.handle[c->at] ^ c->flip);
	if (!c->flip)
		memcpy(s.handle + 12, (char[2]){ 0, 1 }, 2);
	while (!rc) {
		rc = connect_once(&s);
		CHECK(!s.comm, "it connects");
		pause_for("connect to fail", &rounds);
	}
	CHECK(rc == (strncmp(c->fault, "connect to", 10) ? NCCL_INVALID_ARGUMENT
							 : NCCL_SYSTEM_ERROR),
	      "connect returned %d", rc);
	CHECK(count(c->fault) == 1, "no word of \"%s\"", c->fault);
	close_sender(&s);
}

/* 尝试记在那块缓冲区里：拷贝到别处去问，就不是它了。*/
static void run_moved(const void *arg)
{
	struct sender s = { 0 };
	char home[NCCL_NET_HANDLE_MAXSIZE];
	int full[2], rounds = 0;
	struct sockaddr_in addr = { .sin_family = AF_INET };

	(void)arg;
	make_handle(&s);
	listen(s.listener, 0); /* 门口只站得下一个：后来的 SYN 没有回音 */
	memcpy(&addr.sin_addr, s.handle + 8, 4);
	memcpy(&addr.sin_port, s.handle + 12, 2);
	for (int i = 0; i < 2; i++) {
		full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(full[i], (struct sockaddr *)&addr, sizeof(addr));
	}
	CHECK(!connect_once(&s) && !s.comm, "connect");
	memcpy(home, s.handle, sizeof(home));
	CHECK(connect_at(home, &s.comm) == NCCL_INVALID_ARGUMENT && !s.comm &&
		      count("no pristine copy") == 1,
	      "a copy was taken for it");
	for (int i = 0; i < 2; i++)
		close(full[i]);
	while (!s.comm) {
		int fd = accept4(s.listener, NULL, NULL, SOCK_NONBLOCK);

		if (fd >= 0)
			close(fd);
		CHECK(!connect_once(&s), "connect");
		pause_for("connect", &rounds);
	}
	close_sender(&s);
}

/* NCCL_LAB_NSOCKS：1 … 8，别的都当没说。*/
struct sockets_case {
	const char *name; /* 冒号之后是它 */
	unsigned int count;
};

static const struct sockets_case sockets_cases[] = {
	{ "sockets: 8", 9 },  { "sockets: 1", 2 },  { "sockets: 9", 3 },
	{ "sockets: 0", 3 },  { "sockets: -1", 3 }, { "sockets: 3x", 3 },
	{ "sockets: 99", 3 },
};

static void run_sockets(const void *arg)
{
	const struct sockets_case *c = arg;
	struct sender s = { 0 };
	char hello[24];
	int rounds = 0;

	setenv("NCCL_LAB_NSOCKS", c->name + strlen("sockets: "), 1);
	make_handle(&s);
	while (!s.comm) {
		CHECK(!connect_once(&s), "connect");
		pause_for("connect", &rounds);
	}
	s.fd[0] = accept(s.listener, NULL, NULL);
	hear(s.fd[0], hello, sizeof(hello));
	CHECK(get(hello + 7, 1) == c->count, "%u sockets",
	      (unsigned int)get(hello + 7, 1));
	close_sender(&s);
}

struct credit {
	uint32_t magic;	       /* 异或在真的上面 */
	uint32_t seq, n, size; /* n 个一样的 slot */
};

struct credit_case {
	const char *name, *fault;
	struct credit credit[18]; /* size 0 结束 */
	size_t cut;		  /* 最后一个只发这么多 */
	enum after after;
};

// clang-format off
static const struct credit_case credit_cases[] = {
	{ "credit: magic", "not a credit", { { 1, 0, 1, 500 } } },
	{ "credit: the next seq", "not a credit", { { 0, 1, 1, 500 } } },
	{ "credit: seq -1", "not a credit", { { 0, -1u, 1, 500 } } },
	{ "credit: seq twice", "not a credit",
	  { { 0, 0, 1, 5 }, { 0, 0, 1, 500 } } },
	{ "credit: no slot", "not a credit", { { 0, 0, 0, 500 } } },
	{ "credit: 9 slots", "not a credit", { { 0, 0, 9, 500 } } },
	{ "credit: slots without end", "not a credit", { { 0, 0, -1u, 500 } } },
	{ "credit: 17 receives", "more than 16 receives",
	  { { 0, 0, 1, 5 }, { 0, 1, 1, 5 }, { 0, 2, 1, 5 }, { 0, 3, 1, 5 },
	    { 0, 4, 1, 5 }, { 0, 5, 1, 5 }, { 0, 6, 1, 5 }, { 0, 7, 1, 5 },
	    { 0, 8, 1, 5 }, { 0, 9, 1, 5 }, { 0, 10, 1, 5 }, { 0, 11, 1, 5 },
	    { 0, 12, 1, 5 }, { 0, 13, 1, 5 }, { 0, 14, 1, 5 }, { 0, 15, 1, 5 },
	    { 0, 16, 1, 5 } } },
	{ "credit: closed in its head", "closed the connection",
	  { { 0, 0, 1, 500 } }, 11, CLOSE },
	{ "credit: closed in its slot", "closed the connection",
	  { { 0, 0, 1, 500 } }, 19, CLOSE },
	{ "credit: reset", "reading credits failed",
	  { { 0, 0, 1, 500 } }, 12, RESET },
};
// clang-format on

static size_t build_credit(char *bytes, const struct credit *c, int tag)
{
	char *at = put(bytes, CREDIT ^ c->magic, 4);

	at = put(at, c->seq, 4);
	at = put(at, c->n, 4);
	for (uint32_t i = 0; i < c->n && i < 16; i++) {
		at = put(at, c->size, 4);
		at = put(at, (uint32_t)tag, 4);
	}
	return (size_t)(at - bytes);
}

static void run_credit(const void *arg)
{
	const struct credit_case *c = arg;
	struct sender s = { 0 };
	char bytes[256], data[100] = { 0 };
	int rc = 0, rounds = 0;
	void *request = NULL;

	connect_to_me(&s);
	for (int i = 0; c->credit[i].size; i++) {
		size_t size = build_credit(bytes, &c->credit[i], 9);

		if (c->cut && !c->credit[i + 1].size)
			size = c->cut;
		say(s.fd[0], bytes, size);
	}
	/* tag 1 谁也没有挂：它只是让插件去读。*/
	CHECK(!net->isend(s.comm, data, 1, 1, NULL, &request) || !c->after,
	      "isend");
	if (c->after) {
		end(s.fd[0], c->after == RESET);
		s.fd[0] = 0;
	}
	while (!rc) {
		rc = net->isend(s.comm, data, 1, 1, NULL, &request);
		CHECK(!request, "a request for nothing");
		pause_for(c->fault, &rounds);
	}
	CHECK(rc == NCCL_REMOTE_ERROR, "isend returned %d", rc);
	CHECK(count(c->fault) == 1, "no word of \"%s\"", c->fault);
	CHECK(net->isend(s.comm, data, 1, 9, NULL, &request) == rc && !request,
	      "isend forgets");
	CHECK(count("comm with") == 1, "more than one line");
	for (int i = 1; i < 3; i++)
		CHECK(recv(s.fd[i], bytes, 1, MSG_DONTWAIT) < 0,
		      "it sent something");
	close_sender(&s);
}

/* 太小的 credit：错在发送方，一个字节也不上线，comm 还是好的。*/
static void run_small(const void *arg)
{
	const struct credit few = { 0, 0, 2, 99 };
	struct sender s = { 0 };
	char bytes[256], data[100];
	void *request = NULL;
	int rc = 0, rounds = 0, done = 0;

	(void)arg;
	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (char)pattern(1, i);
	connect_to_me(&s);
	say(s.fd[0], bytes, build_credit(bytes, &few, 9));
	while (!rc) {
		rc = net->isend(s.comm, data, 100, 9, NULL, &request);
		CHECK(!request, "it fits");
		pause_for("the credit", &rounds);
	}
	CHECK(rc == NCCL_INVALID_USAGE && count("takes 99 bytes") == 1,
	      "isend returned %d", rc);
	for (uint32_t slot = 0; slot < 2; slot++) {
		rc = net->isend(s.comm, data, 99, 9, NULL, &request);
		CHECK(!rc && request, "isend returned %d", rc);
		CHECK(!net->test(request, &done, NULL) && done, "test");
		/* 六个数，每个都是它该是的。*/
		hear(s.fd[1], bytes, 24 + 99);
		CHECK(get(bytes, 4) == FRAME && !get(bytes + 4, 4) &&
			      get(bytes + 8, 4) == slot &&
			      get(bytes + 12, 4) == 99 && !get(bytes + 16, 4) &&
			      get(bytes + 20, 4) == 99 &&
			      !memcmp(bytes + 24, data, 99),
		      "its frame is wrong");
	}
	close_sender(&s);
}

static void *isend_at_last(struct sender *s, char *data, int tag)
{
	void *request = NULL;
	int rounds = 0;

	while (!request) {
		CHECK(!net->isend(s->comm, data, 1, tag, NULL, &request),
		      "isend of tag %d", tag);
		pause_for("a credit", &rounds);
	}
	return request;
}

/*
 * 第 17 个 credit 用的是第 1 个用过的位置，而 slot 少一个：从前那个 slot 的 tag 还写在
 * 那里，却谁也没有挂出来。
 */
static void run_stale(const void *arg)
{
	struct sender s = { 0 };
	char bytes[256], data[1] = { 0 };
	void *request;
	int done;

	(void)arg;
	connect_to_me(&s);
	for (uint32_t seq = 0; seq < 18; seq++) {
		const struct credit c = { 0, seq, seq ? 1 : 2, 1 };

		/* 第 17 个没有人来取；第 18 个取得到，它也就读到了。*/
		say(s.fd[0], bytes,
		    build_credit(bytes, &c, seq < 16 ? 9 : (int)seq));
		for (uint32_t i = 0; seq != 16 && i < c.n; i++) {
			request = isend_at_last(&s, data,
						seq < 16 ? 9 : (int)seq);
			CHECK(!net->test(request, &done, NULL) && done, "test");
		}
	}
	CHECK(!net->isend(s.comm, data, 1, 9, NULL, &request) && !request,
	      "it sends into a receive of long ago");
	close_sender(&s);
}

/* credit 断在当中：后一半来了，从那里接着读。*/
static void run_halves(const void *arg)
{
	const struct credit first = { 0, 0, 1, 1 }, second = { 0, 1, 1, 1 };
	struct sender s = { 0 };
	char bytes[256], data[1] = { 0 };
	size_t size;

	(void)arg;
	connect_to_me(&s);
	size = build_credit(bytes, &first, 9);
	size += build_credit(bytes + size, &second, 10);
	say(s.fd[0], bytes, 33);
	isend_at_last(&s, data, 9);
	say(s.fd[0], bytes + 33, size - 33);
	isend_at_last(&s, data, 10);
	close_sender(&s);
}

/* 调用者错了：什么也不发。16 个不 test，第 17 个就没有位置。*/
static void run_caller(const void *arg)
{
	struct sender s = { 0 }, other = { 0 };
	char bytes[256], data[1] = { 0 };
	void *forged[4], *mr, *request, *first;
	size_t size = 0;
	int done = 0;

	(void)arg;
	connect_to_me(&s);
	connect_to_me(&other);
	forged[0] = NULL;
	forged[1] = s.comm;
	CHECK(!net->regMr(other.comm, data, 1, NCCL_PTR_HOST, &mr), "regMr");
	for (uint32_t seq = 0; seq < 3; seq++)
		size += build_credit(bytes + size,
				     &(struct credit){ 0, seq, 8, 1 }, 9);
	say(s.fd[0], bytes, size);
	first = isend_at_last(&s, data, 9);
	REFUSED(net->isend(s.comm, data, 1, 9, mr, &request));
	REFUSED(net->isend(s.comm, data, 1, 9, forged, &request));
	REFUSED(net->isend(s.comm, data, -1, 9, NULL, &request));
	REFUSED(net->isend(s.comm, data, INT_MIN, 9, NULL, &request));
	REFUSED(net->isend(s.comm, NULL, 5, 9, NULL, &request));
	for (int i = 1; i < 17; i++) {
		request = &s;
		CHECK(!net->isend(s.comm, NULL, 0, 9, NULL, &request) &&
			      (request != NULL) == (i < 16),
		      "isend %d", i);
	}
	CHECK(!net->test(first, &done, NULL) && done, "test");
	CHECK(!net->isend(s.comm, data, 1, 9, NULL, &request) && request,
	      "there is room again");
	CHECK(!net->deregMr(other.comm, mr), "deregMr");
	close_sender(&other);
	close_sender(&s);
}

/* data socket 没了，credit 却还在：发不出去，要在发的时候说。*/
static void run_cut_off(const void *arg)
{
	const struct credit one = { 0, 0, 1, 1 };
	struct sender s = { 0 };
	char bytes[256], data[1] = { 0 };
	void *request = NULL;
	int rc = 0, rounds = 0;

	(void)arg;
	connect_to_me(&s);
	end(s.fd[1], true);
	s.fd[1] = 0;
	say(s.fd[0], bytes, build_credit(bytes, &one, 9));
	while (!rc) {
		rc = net->isend(s.comm, data, 1, 9, NULL, &request);
		CHECK(!request, "it was sent");
		pause_for("isend to fail", &rounds);
	}
	CHECK(rc == NCCL_REMOTE_ERROR, "isend returned %d", rc);
	CHECK(count("sending failed") == 1, "no word of it");
	close_sender(&s);
}

void sender_cases(void)
{
	EACH(handle_cases, run_handle);
	in_child("handle: moved while it connects", run_moved, NULL);
	EACH(sockets_cases, run_sockets);
	EACH(credit_cases, run_credit);
	in_child("credit: too small", run_small, NULL);
	in_child("credit: a slot of long ago", run_stale, NULL);
	in_child("credit: in halves", run_halves, NULL);
	in_child("hello: not all of it at once", run_short, NULL);
	in_child("send: the data socket is gone", run_cut_off, NULL);
	in_child("isend: whose caller errs", run_caller, NULL);
}

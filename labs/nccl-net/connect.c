// SPDX-License-Identifier: MIT
/*
 * connect.c —— 句柄、listen、connect、accept
 *
 * NCCL 自己有一条 bootstrap 网络。接收方 listen，得到 128 字节的句柄；NCCL 把这 128
 * 字节原样送到发送方，发送方拿它 connect。句柄对 NCCL 不透明：里面是什么只有插件
 * 知道，所以造句柄的和读句柄的必须是同一个插件、同一个版本。
 *
 * 为什么 connect 与 accept 都不许阻塞：NCCL 用一个线程轮流照看许多连接。两个进程若都
 * 先 connect 后 accept，一阻塞就是死锁。“0 加 NULL”就是“还没好，再来”。
 *
 * 一个连接有好几个 socket（1 个 control，N 个 data）。它们各自到达 listener，次序不
 * 定，几个 client 的还会交错；靠 hello 里的 id 和 index 才能重新拼起来。
 */
#include "net_lab.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HANDLE_MAGIC	0x4c414e44u /* "LAND" */
#define DEFAULT_STREAMS 2
#define MAX_SOCKETS	(LAB_MAX_STREAMS + 1)
#define MAX_HALF_OPEN	64
#define HELLO_SECONDS	10
#define BACKLOG		128

/* ---- 句柄 ----------------------------------------------------------------- */

// region handle
/* TCPX 的句柄就是这四个字段；ip 与 port 是网络字节序，与 sockaddr_in 一致。*/
struct tcpx_handle {
	uint32_t ip_addr_u32;
	uint16_t listen_port;
	uint16_t zero; /* 不留空隙：那里会带出栈上的字节 */
	int remote_dev;
	int remote_gpuidx; /* -1: host memory only */
};

#ifndef LAB_DIFFERING_HANDLES
struct handle {
	/*
	 * 先认身份。没有这三个字段，别的插件、别的版本、没填过的缓冲区都会被当成
	 * 地址去连，结果是连到不知哪里去，报一个与原因无关的错。整数用主机字节序：
	 * 另一种字节序的机器读出的 magic 是反的，正好被拒绝。
	 */
	uint32_t magic;
	uint16_t version;
	uint16_t api; /* 5 ... 8: whose listen made it */
	struct tcpx_handle where;
	/* 每个 listener 一个随机数：端口被别人接手后，旧句柄不会连错门。*/
	uint64_t cookie;
	/*
	 * connect 在两次 poll 之间把半成品的号码记在这里：ABI 没有别的地方可放。因此
	 * 调用者必须用同一块缓冲区反复 poll，而每次新的尝试要从原样的拷贝开始。有的
	 * 插件在这里放的是指针；但这 128 个字节来自网络，对端若在此填上一个地址，跟着
	 * 它走就是崩溃，或者更糟。所以我们放号码，指针留在自己的表里。
	 */
	uint64_t attempt; /* 0: not begun */
};
#else
/*
 * 演示“混用版本”的构建：v5/v6 与 v7/v8 的字段次序不同，又都不带身份。v5 的 connect
 * 读 v7 的 handle，ip 是对的，port 却读到了 dev，于是得到一个看似网络问题的
 * Connection refused，与 001 号报告的现象相同。这个布局是为教学而编的。
 */
struct newer_handle {
	uint32_t ip_addr_u32;
	int remote_dev;
	uint16_t listen_port;
	uint16_t zero;
	int remote_gpuidx;
};

struct handle {
	union {
		struct tcpx_handle v5;
		struct newer_handle v7;
	} where;
	uint64_t cookie;
	uint64_t attempt;
};
#endif
// endregion handle

_Static_assert(sizeof(struct handle) <= NCCL_NET_HANDLE_MAXSIZE,
	       "NCCL carries 128 bytes, no more");

static struct handle make_handle(int api, int dev, uint64_t cookie,
				 const struct sockaddr_in *addr)
{
	struct handle h;

	memset(&h, 0, sizeof(h)); /* 空隙也清零：不把栈上的字节发给别人 */
	h.cookie = cookie;
#ifndef LAB_DIFFERING_HANDLES
	h.magic = HANDLE_MAGIC;
	h.version = LAB_VERSION;
	h.api = (uint16_t)api;
	h.where.ip_addr_u32 = addr->sin_addr.s_addr;
	h.where.listen_port = addr->sin_port;
	h.where.remote_dev = dev;
	h.where.remote_gpuidx = -1;
#else
	if (api < 7)
		h.where.v5 = (struct tcpx_handle){ addr->sin_addr.s_addr,
						   addr->sin_port, 0, dev, -1 };
	else
		h.where.v7 = (struct newer_handle){ addr->sin_addr.s_addr, dev,
						    addr->sin_port, 0, -1 };
#endif
	return h;
}

static struct sockaddr_in handle_addr(const struct handle *h, int api)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };

#ifndef LAB_DIFFERING_HANDLES
	(void)api;
	addr.sin_addr.s_addr = h->where.ip_addr_u32;
	addr.sin_port = h->where.listen_port;
#else
	addr.sin_addr.s_addr = h->where.v5.ip_addr_u32;
	addr.sin_port =
		api < 7 ? h->where.v5.listen_port : h->where.v7.listen_port;
#endif
	return addr;
}

static int check_handle(const struct handle *h, int api)
{
#ifndef LAB_DIFFERING_HANDLES
	if (h->magic != HANDLE_MAGIC || h->version != LAB_VERSION)
		return LAB_REFUSE(
			NCCL_INVALID_ARGUMENT,
			"connect: this is no handle of mine: magic 0x%08x "
			"version %u, not 0x%08x version %u (is it what listen "
			"filled, all %d bytes, from the same build?)",
			h->magic, h->version, HANDLE_MAGIC, LAB_VERSION,
			NCCL_NET_HANDLE_MAXSIZE);
	if (h->api != api)
		return LAB_REFUSE(
			NCCL_INVALID_ARGUMENT,
			"connect: the handle was made by listen of API v%u, "
			"this is connect of v%d: use one version for all",
			h->api, api);
#else
	(void)h;
	(void)api;
#endif
	return NCCL_SUCCESS;
}

/* ---- 小工具 --------------------------------------------------------------- */

static int random_u64(uint64_t *value)
{
	if (getrandom(value, sizeof(*value), 0) == sizeof(*value))
		return NCCL_SUCCESS;
	return LAB_REFUSE(NCCL_SYSTEM_ERROR, "getrandom() failed: %s",
			  strerror(errno));
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- listen --------------------------------------------------------------- */

/* 到了，但还没被拼成 comm 的 socket。*/
struct half_open {
	bool used;
	int fd;
	int64_t deadline; /* ms */
	struct sockaddr_in peer;
	size_t got;		/* bytes of hello */
	struct lab_hello hello; /* wire order */
};

struct listener {
	uint32_t kind; /* LAB_LISTEN */
	int api;
	int fd;
	uint64_t cookie;
	struct half_open half[MAX_HALF_OPEN];
};

static bool greeted(const struct half_open *h)
{
	return h->used && h->got == sizeof(h->hello);
}

/* 端口填 0，由内核挑：一台机器上有许多进程、许多 comm，固定端口必然冲突。*/
static int open_listener(struct listener *l, struct sockaddr_in *addr)
{
	socklen_t len = sizeof(*addr);
	char text[32];
	int err;

	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd >= 0 && !bind(l->fd, (struct sockaddr *)addr, len) &&
	    !listen(l->fd, BACKLOG) &&
	    !getsockname(l->fd, (struct sockaddr *)addr, &len))
		return NCCL_SUCCESS;
	err = errno;
	lab_addr_text(text, sizeof(text), addr);
	LAB_WARN("listening on %s failed: %s", text, strerror(err));
	if (l->fd >= 0)
		close(l->fd);
	return NCCL_SYSTEM_ERROR;
}

int lab_listen(int api, int dev, void *handle, void **listen_comm)
{
	struct lab_device *d = lab_device_get(dev);
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct listener *l;
	struct handle h;

	if (!d || !handle || !listen_comm)
		return NCCL_INVALID_ARGUMENT;
	l = calloc(1, sizeof(*l));
	if (!l)
		return LAB_REFUSE(NCCL_SYSTEM_ERROR, "listen: no memory");
	l->kind = LAB_LISTEN;
	l->api = api;
	addr.sin_addr = d->addr;
	if (random_u64(&l->cookie) || open_listener(l, &addr)) {
		free(l);
		return NCCL_SYSTEM_ERROR;
	}
	h = make_handle(api, dev, l->cookie, &addr);
	memset(handle, 0, NCCL_NET_HANDLE_MAXSIZE);
	memcpy(handle, &h, sizeof(h)); /* 调用者的缓冲区未必对齐 */
	*listen_comm = l;
	return NCCL_SUCCESS;
}

/* ---- connect -------------------------------------------------------------- */

struct connecting {
	LIST_ENTRY(connecting) next; /* in attempts */
	void *home;		     /* the handle buffer it belongs to */
	struct sockaddr_in addr;
	uint64_t cookie;
	uint64_t id;
	unsigned int count;  /* sockets */
	unsigned int opened; /* of them */
	int fds[MAX_SOCKETS];
	size_t sent[MAX_SOCKETS]; /* bytes of each hello */
};

static unsigned int streams_wanted(void)
{
	const char *text = getenv("NCCL_LAB_NSOCKS");
	char *end;
	long n;

	if (!text || !*text)
		return DEFAULT_STREAMS;
	n = strtol(text, &end, 10);
	if (!*end && n >= 1 && n <= LAB_MAX_STREAMS)
		return (unsigned int)n;
	LAB_WARN("NCCL_LAB_NSOCKS=%s is not 1 ... %d: %d is used", text,
		 LAB_MAX_STREAMS, DEFAULT_STREAMS);
	return DEFAULT_STREAMS;
}

static void drop_connecting(struct connecting *k)
{
	for (unsigned int i = 0; i < k->opened; i++)
		close(k->fds[i]);
	free(k);
}

static int connect_failed(const struct connecting *k, int err)
{
	char text[32];

	lab_addr_text(text, sizeof(text), &k->addr);
	return LAB_REFUSE(NCCL_SYSTEM_ERROR, "connect to %s failed: %s", text,
			  strerror(err));
}

/* 不 bind 本地地址：从哪个接口出去由路由表决定，与普通 TCP 程序一样。*/
static int open_sockets(struct connecting *k)
{
	while (k->opened < k->count) {
		int fd = socket(AF_INET,
				SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return connect_failed(k, errno);
		k->fds[k->opened++] = fd;
		lab_set_low_latency(fd);
		if (connect(fd, (struct sockaddr *)&k->addr, sizeof(k->addr)) &&
		    errno != EINPROGRESS && errno != EINTR)
			return connect_failed(k, errno);
	}
	return NCCL_SUCCESS;
}

/* 进行中的尝试，按号码找。不同的线程可以同时连接，所以要锁。*/
static LIST_HEAD(, connecting) attempts = LIST_HEAD_INITIALIZER(attempts);
static pthread_mutex_t attempts_lock = PTHREAD_MUTEX_INITIALIZER;

static struct connecting *recall(uint64_t id)
{
	struct connecting *k;

	pthread_mutex_lock(&attempts_lock);
	LIST_FOREACH(k, &attempts, next)
		if (k->id == id)
			break;
	pthread_mutex_unlock(&attempts_lock);
	return k;
}

static void forget(struct connecting *k)
{
	pthread_mutex_lock(&attempts_lock);
	LIST_REMOVE(k, next);
	pthread_mutex_unlock(&attempts_lock);
	drop_connecting(k);
}

static int begin_connect(int api, const struct handle *h, void *home,
			 struct connecting **out)
{
	struct connecting *k = calloc(1, sizeof(*k));
	int rc;

	if (!k)
		return LAB_REFUSE(NCCL_SYSTEM_ERROR, "connect: no memory");
	k->home = home;
	k->addr = handle_addr(h, api);
	k->cookie = h->cookie;
	k->count = streams_wanted() + 1;
	rc = random_u64(&k->id);
	if (!rc)
		rc = open_sockets(k);
	if (rc) {
		drop_connecting(k);
		return rc;
	}
	pthread_mutex_lock(&attempts_lock);
	LIST_INSERT_HEAD(&attempts, k, next);
	pthread_mutex_unlock(&attempts_lock);
	*out = k;
	return 0;
}

/*
 * 直接 send，不必先 poll：三次握手没完，它给 EAGAIN；连接失败，它给出那个 errno；成功
 * 了，hello 就写出去了。一个系统调用回答三个问题。
 */
static int send_hello(struct connecting *k, unsigned int i)
{
	struct lab_hello hello = {
		.magic = htobe32(LAB_HELLO_MAGIC),
		.version = htobe16(LAB_VERSION),
		.index = (uint8_t)i,
		.count = (uint8_t)k->count,
		.cookie = htobe64(k->cookie),
		.id = htobe64(k->id),
	};
	ssize_t n =
		send(k->fds[i], (char *)&hello + k->sent[i],
		     sizeof(hello) - k->sent[i], MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n >= 0)
		k->sent[i] += (size_t)n;
	else if (!lab_would_block(errno))
		return connect_failed(k, errno);
	return NCCL_SUCCESS;
}

/* 一次 poll：把还没写完的 hello 往前推；全部写完，comm 就成了。*/
static int go_on(struct connecting *k, struct lab_comm **comm)
{
	unsigned int ready = 0;
	int rc = 0;

	for (unsigned int i = 0; !rc && i < k->count; i++) {
		if (k->sent[i] < sizeof(struct lab_hello))
			rc = send_hello(k, i);
		ready += k->sent[i] == sizeof(struct lab_hello);
	}
	if (rc || ready < k->count)
		return rc;
	/*
	 * 不等对端 accept：同一个线程里先 connect 后 accept 的程序，一等就死锁。
	 * 字节已在对端内核的 backlog 里，accept 什么时候来都行。
	 */
	*comm = lab_comm_new(LAB_SEND, k->fds, k->count, &k->addr);
	if (!*comm)
		return NCCL_SYSTEM_ERROR;
	k->opened = 0; /* fd 已归 comm */
	return NCCL_SUCCESS;
}

int lab_connect(int api, int dev, void *handle, void **send_comm)
{
	struct connecting *k = NULL;
	struct lab_comm *comm = NULL;
	struct handle h;
	int rc;

	if (!lab_device_get(dev) || !handle || !send_comm)
		return NCCL_INVALID_ARGUMENT;
	*send_comm = NULL;
	memcpy(&h, handle, sizeof(h));
	rc = check_handle(&h, api);
	if (!rc && h.attempt)
		k = recall(h.attempt);
	else if (!rc)
		rc = begin_connect(api, &h, handle, &k);
	if (rc)
		return rc;
	if (!k || k->home != handle)
		return LAB_REFUSE(
			NCCL_INVALID_ARGUMENT,
			"connect: this handle is no pristine copy: poll with "
			"the same buffer, and begin with a pristine copy");
	h.attempt = k->id;
	rc = go_on(k, &comm);
	if (rc || comm) {
		forget(k);
		h.attempt = 0;
	}
	memcpy(handle, &h, sizeof(h));
	*send_comm = comm;
	return rc;
}

/* ---- accept --------------------------------------------------------------- */

static void drop_half(struct half_open *h, const char *why)
{
	char text[32];

	lab_addr_text(text, sizeof(text), &h->peer);
	LAB_WARN("accept: a socket from %s is dropped: %s", text, why);
	close(h->fd);
	h->used = false;
}

/* 空位；没有就腾一个：先是最老的没打招呼的，再是最老的。*/
static struct half_open *free_half(struct listener *l)
{
	struct half_open *oldest = NULL;

	for (unsigned int i = 0; i < MAX_HALF_OPEN; i++) {
		struct half_open *h = &l->half[i];

		if (!h->used)
			return h;
		if (!oldest || greeted(h) < greeted(oldest) ||
		    (greeted(h) == greeted(oldest) &&
		     h->deadline < oldest->deadline))
			oldest = h;
	}
	drop_half(oldest, "too many wait, and this one is the oldest");
	return oldest;
}

static int take_waiting(struct listener *l)
{
	for (unsigned int i = 0; i < MAX_HALF_OPEN; i++) {
		struct sockaddr_in peer = { .sin_family = AF_INET };
		socklen_t len = sizeof(peer);
		struct half_open *h;
		int fd = accept4(l->fd, (struct sockaddr *)&peer, &len,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (fd < 0 && (errno == EMFILE || errno == ENFILE ||
			       errno == ENOBUFS || errno == ENOMEM))
			return LAB_REFUSE(NCCL_SYSTEM_ERROR,
					  "accept4() failed: %s",
					  strerror(errno));
		if (fd < 0)
			continue; /* 那条连接自己的错误，man 2 accept 说当没来过 */
		lab_set_low_latency(fd);
		h = free_half(l);
		*h = (struct half_open){ .used = true,
					 .fd = fd,
					 .peer = peer,
					 .deadline = now_ms() +
						     HELLO_SECONDS * 1000 };
	}
	return NCCL_SUCCESS;
}

/* 谁都能连到一个端口上：扫描器、走错门的 client、上一个任务留下的进程。*/
static const char *hello_fault(const struct listener *l,
			       const struct half_open *h)
{
	const struct lab_hello *w = &h->hello;

	if (be32toh(w->magic) != LAB_HELLO_MAGIC)
		return "it does not say hello";
	if (be16toh(w->version) != LAB_VERSION)
		return "it speaks another version";
	if (be64toh(w->cookie) != l->cookie)
		return "its cookie is not this listener's";
	if (w->count < 2 || w->count > MAX_SOCKETS || w->index >= w->count)
		return "its index or count cannot be";
	for (unsigned int i = 0; i < MAX_HALF_OPEN; i++) {
		const struct half_open *o = &l->half[i];

		if (o == h || !greeted(o) || o->hello.id != w->id)
			continue;
		if (o->hello.index == w->index)
			return "its connection has a socket of that index";
		if (o->hello.count != w->count)
			return "its connection has another count";
	}
	return NULL;
}

/* 恰好读 24 字节：后面紧跟着的可能已经是数据，那要留给 transfer.c。*/
static void read_hello(struct listener *l, struct half_open *h)
{
	const char *fault = NULL;
	ssize_t n = recv(h->fd, (char *)&h->hello + h->got,
			 sizeof(h->hello) - h->got, MSG_DONTWAIT);

	if (n < 0 && !lab_would_block(errno))
		fault = strerror(errno);
	else if (!n)
		fault = "it closed before its hello was complete";
	if (n > 0)
		h->got += (size_t)n;
	if (greeted(h))
		fault = hello_fault(l, h);
	if (fault)
		drop_half(h, fault);
}

/* 一个陌生人只会丢掉自己的 socket；别人的照旧。*/
static void attend(struct listener *l)
{
	int64_t now = 0;

	for (unsigned int i = 0; i < MAX_HALF_OPEN; i++) {
		struct half_open *h = &l->half[i];

		if (h->used && !greeted(h))
			read_hello(l, h);
		if (!h->used)
			continue;
		if (!now)
			now = now_ms();
		if (now > h->deadline)
			drop_half(h, greeted(h) ? "the rest of its connection "
						  "did not come"
						: "it did not say hello");
	}
}

/* id 相同的都到齐了吗？member[] 按 index 放好。*/
static bool whole(struct listener *l, const struct half_open *first,
		  struct half_open *member[MAX_SOCKETS])
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < MAX_HALF_OPEN; i++) {
		struct half_open *h = &l->half[i];

		if (!greeted(h) || h->hello.id != first->hello.id)
			continue;
		member[h->hello.index] = h;
		n++;
	}
	return n == first->hello.count;
}

static int make_recv_comm(struct half_open *const *member, void **recv_comm)
{
	unsigned int count = member[0]->hello.count;
	int fds[MAX_SOCKETS] = { -1 };
	struct lab_comm *c;

	for (unsigned int i = 0; i < count; i++)
		fds[i] = member[i]->fd;
	c = lab_comm_new(LAB_RECV, fds, count, &member[0]->peer);
	if (!c)
		return NCCL_SYSTEM_ERROR;
	for (unsigned int i = 0; i < count; i++)
		member[i]->used = false;
	*recv_comm = c;
	return NCCL_SUCCESS;
}

static struct listener *listener_of(void *p, const char *call)
{
	struct listener *l = p;

	if (l && l->kind == LAB_LISTEN)
		return l;
	LAB_WARN("%s: %p is no listen comm", call, p);
	return NULL;
}

int lab_accept(int api, void *listen_comm, void **recv_comm)
{
	struct listener *l = listener_of(listen_comm, "accept");
	struct half_open *member[MAX_SOCKETS];
	int rc;

	if (!l || !recv_comm)
		return NCCL_INVALID_ARGUMENT;
	*recv_comm = NULL;
#ifndef LAB_DIFFERING_HANDLES
	if (l->api != api)
		return LAB_REFUSE(
			NCCL_INVALID_ARGUMENT,
			"accept of API v%d on a listener of v%d: use one "
			"version for all",
			api, l->api);
#else
	(void)api;
#endif
	rc = take_waiting(l);
	attend(l);
	for (unsigned int i = 0; !rc && i < MAX_HALF_OPEN; i++)
		if (greeted(&l->half[i]) && whole(l, &l->half[i], member))
			return make_recv_comm(member, recv_comm);
	return rc;
}

/* ---- close ---------------------------------------------------------------- */

int lab_close_listen(void *comm)
{
	struct listener *l;

	if (!comm)
		return NCCL_SUCCESS;
	l = listener_of(comm, "closeListen");
	if (!l)
		return NCCL_INVALID_ARGUMENT;
	for (unsigned int i = 0; i < MAX_HALF_OPEN; i++)
		if (l->half[i].used)
			close(l->half[i].fd);
	close(l->fd);
	l->kind = 0;
	free(l);
	return NCCL_SUCCESS;
}

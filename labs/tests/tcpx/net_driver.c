// SPDX-License-Identifier: MIT
/*
 * net_driver.c —— 一个对本项目一无所知的 NCCL 网络插件用户
 *
 * 插件与调用者之间只有一张函数表（ncclNetPlugin_vN）和一份口头约定。若测试与
 * 插件共用头文件，字段次序写错时两边会错得一模一样，测试照样通过。所以这里的
 * ABI 是照公开资料重写的，不含本项目任何头文件；凡约定没有保证的都不指望，凡
 * 约定要求调用者的都做到。每个 TEST 在子进程里跑：崩溃、卡死、泄漏（ASan）都
 * 变成一行 FAIL（Alarm clock 即期限已过）。退出码 0 全部 ok，1 有 FAIL，2 用法
 * 错误；环境变量 NET_DRIVER_DEBUG=1 显示插件的日志。
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB	 ((size_t)1 << 30)
#define PTR_HOST 1
#define PTR_CUDA 2
#define GUARD	 64   /* 缓冲区每一侧的警戒字节数 */
#define SHADE	 0xa5 /* 警戒字节的值 */
#define SENDS	 12   /* 同时在途的 isend */
#define RECVS	 16   /* 同时在途的 irecv，一次也不超过这么多 */
#define FULL	 65   /* 试图同时挂起的 irecv：到不了才对 */
#define MANY	 64   /* K 与 T 的上限 */
#define TOLD	 3    /* 子进程的退出码：FAIL 行已经印过 */

/* 函数表首尾两段各版本相同；全是指针，分段不会引入填充。*/
typedef void log_fn(int, unsigned long, const char *, int, const char *, ...);
struct abi_head {
	const char *name;
	int (*init)(log_fn *), (*devices)(int *), (*properties)(int, void *);
	int (*listen)(int, void *, void **);
};
struct abi_tail {
	int (*dereg)(void *, void *);
	int (*isend)(void *, void *, int, int, void *, void **);
	int (*irecv)(void *, int, void **, int *, int *, void **, void **);
	int (*iflush)(void *, int, void **, int *, void **, void **);
	int (*test)(void *, int *, int *), (*close_send)(void *);
	int (*close_recv)(void *), (*close_listen)(void *);
};

/* 中段随版本变：v6 插入 regMrDmaBuf，v7 多了 device handle，v8 的 size 变宽。*/
#define HANDLE , void **
#define ABI(version, DEVICE, SIZE, DMABUF)                      \
	struct abi_v##version {                                 \
		struct abi_head head;                           \
		int (*connect)(int, void *, void **DEVICE);     \
		int (*accept)(void *, void **DEVICE);           \
		int (*reg)(void *, void *, SIZE, int, void **); \
		DMABUF struct abi_tail tail;                    \
	}
ABI(5, , int, );
ABI(6, , int, void *dmabuf;);
ABI(7, HANDLE, int, void *dmabuf;);
ABI(8, HANDLE, size_t, void *dmabuf;);

struct props {
	char *name, *pci_path;
	uint64_t guid;
	/* speed port latency（float 不读）maxComms maxRecvs；v8 前面多一个 */
	int ptr_support, rest[8];
};

/* 适配器：抹平版本差异之后的插件，以及正在跑的 TEST。*/
struct net {
	const char *path, *_Atomic *stage; /* 正在等什么，父进程可见 */
	char title[64];			   /* "size 4096" */
	int version, ptr_support, peer;
	unsigned int limit_s; /* 每一次等待的期限 */
	pid_t child;
	const struct abi_head *head;
	const struct abi_tail *tail;
	const struct abi_v5 *v5; /* v6 到 reg 为止与 v5 相同 */
	const struct abi_v7 *v7; /* v8 到 accept、v6 的 tail 与 v7 相同 */
	const struct abi_v8 *v8;
	int (*reg)(void *, void *, int, int, void **); /* v5…v7 */
};

/* 锁住 stdout 不再放：几个线程同时失败也只印一行。*/
#define CHECK(n, ok, ...)                        \
	do {                                     \
		if (ok)                          \
			break;                   \
		flockfile(stdout);               \
		printf("FAIL %s: ", (n)->title); \
		printf(__VA_ARGS__);             \
		puts("");                        \
		fflush(stdout);                  \
		_exit(TOLD);                     \
	} while (0)

/* 每次等待、每有进展都重设期限。用 alarm：插件的调用自己不返回也管得住。*/
static void wait_for(struct net *n, const char *stage)
{
	*n->stage = stage;
	alarm(n->limit_s);
}

static __attribute__((format(printf, 5, 6))) void
print_log(int level, unsigned long flags, const char *file, int line,
	  const char *fmt, ...)
{
	const char *debug = getenv("NET_DRIVER_DEBUG");
	va_list ap;

	if (!debug || strcmp(debug, "1"))
		return;
	fprintf(stderr, "\n%d/%lx %s:%d ", level, flags, file, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
}

/* 不 dlclose：这些版本没有 finalize，插件的全局内存没有机会归还。*/
static void load(struct net *n)
{
	void *so = dlopen(n->path, RTLD_NOW | RTLD_LOCAL);
	char symbol[32];
	const void *table;

	snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", n->version);
	table = so ? dlsym(so, symbol) : NULL;
	CHECK(n, table, "%s", table ? "" : dlerror());
	n->head = table;
	n->v5 = n->version < 7 ? table : NULL;
	n->v7 = table; /* v6 只用其 tail */
	n->v8 = n->version < 8 ? NULL : table;
	n->reg = n->v5 ? n->v5->reg : n->v7->reg;
	n->tail = n->version == 5 ? &n->v5->tail : &n->v7->tail;
	CHECK(n, !n->head->init(print_log), "init failed");
}

/* 收发两侧各一个窗口；整个窗口只注册一次，各缓冲区是其中的一段。*/
struct side {
	void *comm, *mh;
	uint8_t *mem;
	size_t stride; /* 每段：GUARD、缓冲区、GUARD */
	int window, next, done;
	size_t size[FULL];
	void *req[FULL];
};

static int net_reg(struct net *n, struct side *d, int type)
{
	size_t size = d->stride * (size_t)d->window;

	return n->v8 ? n->v8->reg(d->comm, d->mem, size, type, &d->mh)
		     : n->reg(d->comm, d->mem, (int)size, type, &d->mh);
}

/* 返回 rest 里从 speed 开始的部分。*/
static const int *net_props(struct net *n, int dev, struct props *p)
{
	memset(p, 0, sizeof(*p));
	CHECK(n, !n->head->properties(dev, p), "getProperties %d failed", dev);
	return p->rest + (n->version == 8);
}

/* 一条连接，其上 count 条消息；TEST 表里的一行是它的样板。*/
struct flow {
	const char *name, *args; /* s 大小，c 条数，r 种子，k 连接数 */
	size_t size;		 /* random 时是上限 */
	int count, copies;	 /* 消息数，连接数 */
	int slack;		 /* 缓冲区比消息大（小）多少 */
	void (*before)(struct net *, struct flow *); /* 建立连接之前做 */
	void (*during)(struct net *, struct flow *); /* 照常收发之前做 */
	struct net *n;
	void *listen, *dh[2];
	uint8_t handle[128]; /* listen 给的原样，从不交给 connect */
	_Alignas(16) uint8_t attempt[128];    /* 副本，插件可改写 */
	_Alignas(16) uint8_t storage[2][512]; /* v7/v8 的 device handle */
	bool no_send, no_recv;		      /* 那一端在别的进程里 */
	bool shared, random; /* 与前一条同一个 listener；大小、次序随机 */
	bool badreg, frail, broken; /* 试坏的 regMr；报错只记在 broken */
	int hold_send, hold_post;   /* 头若干轮不发、不挂 */
	int group, filled;	    /* group：一次 irecv 挂几条 */
	uint64_t seed, dice;
	struct side send, recv;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30) ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static size_t flow_size(const struct flow *f, int i)
{
	uint64_t r = mix(f->seed << 32 | (unsigned int)i);

	if (!f->random)
		return f->size;
	return r % 8 ? (r >> 8) % (f->size + 1) : r & 8 ? 65536 : r >> 4 & 1;
}

/* 填写第 i 条的内容；test 时核对，返回第一个错处，全对则返回 n。*/
static size_t flow_data(struct flow *f, int i, uint8_t *p, size_t n, int test)
{
	uint64_t x = mix(~(f->seed << 32 | (unsigned int)i));

	for (size_t at = 0; at < n; at++, x += 0x9e3779b97f4a7c15) {
		if (test && p[at] != (uint8_t)(x >> 56))
			return at;
		p[at] = (uint8_t)(x >> 56);
	}
	return n;
}

/* 第 i 条的缓冲区：大小改为 size 并补好警戒字节；size 为负则核对它们。*/
static uint8_t *slot(struct net *n, struct side *d, int i, long size)
{
	uint8_t *p = d->mem + (size_t)(i % d->window) * d->stride + GUARD;

	if (size >= 0)
		d->size[i % d->window] = (size_t)size;
	for (long j = 0; j < GUARD; j++) {
		uint8_t *q = p + d->size[i % d->window] + j;

		CHECK(n, size >= 0 || (*q == SHADE && p[j - GUARD] == SHADE),
		      "guard broken around message %d", i);
		*q = p[j - GUARD] = SHADE;
	}
	return p;
}

static void side_open(struct flow *f, struct side *d, int window)
{
	size_t room = f->size + (size_t)(f->slack > 0 ? f->slack : 0);

	if (!d->window)
		d->window = f->count < window ? f->count : window;
	if (!d->comm) { /* 没有这一侧的事 */
		d->next = d->done = f->count;
		return;
	}
	d->stride = room + 2 * GUARD;
	while (d->window > f->group && d->stride * (size_t)d->window >= 2 * GIB)
		d->window -= f->group; /* v7 以前 regMr 的 size 是 int */
	d->mem = malloc(d->stride * (size_t)d->window);
	CHECK(f->n, d->mem, "no memory for %d * %zu", d->window, d->stride);
	for (int i = 0; i < d->window; i++)
		slot(f->n, d, i, (long)room);
	CHECK(f->n, !f->badreg || net_reg(f->n, d, 0), "regMr takes type 0");
	if (f->badreg && !(f->n->ptr_support & PTR_CUDA))
		CHECK(f->n, net_reg(f->n, d, PTR_CUDA), "regMr takes CUDA");
	/* 只看 rc：有的插件成功了也给 NULL mhandle。*/
	CHECK(f->n, !net_reg(f->n, d, PTR_HOST), "regMr failed");
}

/* 注销、关闭，然后才还内存：关闭之前插件的线程可能还在写。*/
static void side_close(struct net *n, struct side *d, int (*end)(void *))
{
	if (d->mem)
		CHECK(n, !n->tail->dereg(d->comm, d->mh) && !end(d->comm),
		      "deregMr or close failed");
	for (int i = 0; d->mem && i < d->window; i++)
		slot(n, d, i, -1);
	free(d->mem);
}

static bool flow_failed(struct flow *f, int rc, const char *call, int i)
{
	f->broken |= rc != 0;
	CHECK(f->n, !rc || f->frail, "%s %d returned %d", call, i, rc);
	return rc != 0;
}

static void flow_listen(struct net *n, struct flow *f)
{
	wait_for(n, "listen, connect");
	if (f->shared) {
		f->listen = f[-1].listen;
		memcpy(f->handle, f[-1].handle, sizeof(f->handle));
	} else if (!f->listen && !f->no_recv) {
		CHECK(n, !n->head->listen(0, f->handle, &f->listen), "listen");
	}
	CHECK(n, !f->no_send || write(n->peer, f->handle, 128) == 128, "write");
	CHECK(n, !f->no_recv || read(n->peer, f->handle, 128) == 128, "read");
	memcpy(f->attempt, f->handle, sizeof(f->attempt));
	f->dh[0] = f->storage[0];
	f->dh[1] = f->storage[1];
}

/* rc 0 而 comm 仍为 NULL：还没好，再来。一旦成功就不再调用。*/
static bool flow_dial(struct flow *f)
{
	struct net *n = f->n;
	void **s = &f->send.comm, **r = &f->recv.comm;
	int rc = 0;

	if (!f->no_send && !*s)
		rc = n->v5 ? n->v5->connect(0, f->attempt, s)
			   : n->v7->connect(0, f->attempt, s, &f->dh[0]);
	if (!rc && !f->no_recv && !*r)
		rc = n->v5 ? n->v5->accept(f->listen, r)
			   : n->v7->accept(f->listen, r, &f->dh[1]);
	return !flow_failed(f, rc, "connect or accept", 0) &&
	       (f->no_send || *s) && (f->no_recv || *r);
}

/* 两端同一线程，connect 与 accept 必须轮流问；shared 的等前一条先连好。*/
static void flows_open(struct net *n, struct flow *f, int k)
{
	int ready = 0;

	for (int i = 0; i < k; i++)
		flow_listen(n, &f[i]);
	for (wait_for(n, "connect, accept"); ready < k; sched_yield())
		for (int i = ready = 0; i < k; i++)
			if (!f[i].shared || f[i - 1].recv.comm)
				ready += flow_dial(&f[i]);
	for (; k--; f++) {
		side_open(f, &f->send, SENDS);
		side_open(f, &f->recv, f->group > 1 ? 2 * f->group : RECVS);
	}
}

static void flows_close(struct net *n, struct flow *f, int k)
{
	for (wait_for(n, "close"); k--; f++) {
		side_close(n, &f->send, n->tail->close_send);
		side_close(n, &f->recv, n->tail->close_recv);
		if (f->listen && !f->shared)
			CHECK(n, !n->tail->close_listen(f->listen), "close");
	}
}

/* 以下三步都返回有无进展；NULL request 表示满了，下次再来。*/
static bool flow_send(struct flow *f)
{
	struct side *d = &f->send;
	/* 组内倒着发：消息该进哪个缓冲区只能由 tag 决定。*/
	int i = d->next - 2 * (d->next % f->group) + f->group - 1, rc;
	int at = d->next % d->window;
	size_t size = flow_size(f, i);
	uint8_t *data;

	if (d->next == f->count || d->next - d->done == d->window)
		return false;
	data = slot(f->n, d, at, (long)size);
	if (f->filled == d->next) /* NULL 之后的重试不必再填一遍 */
		f->filled += flow_data(f, i, data, size, false) == size;
	d->req[at] = NULL;
	rc = f->n->tail->isend(d->comm, data, (int)size, i % 1000, d->mh,
			       &d->req[at]);
	return !flow_failed(f, rc, "isend", i) && d->req[at] && ++d->next;
}

static bool flow_post(struct flow *f)
{
	struct side *d = &f->recv;
	int rc, sizes[RECVS], tags[RECVS], i = d->next, k = i - d->done;
	void *data[RECVS], *mhs[RECVS], **req = &d->req[i % d->window];

	if (i == f->count || k + f->group > d->window)
		return false;
	for (int j = i; j < i + f->group; j++) {
		/* 每三条有一条用足 slack，其余恰好与消息一样大。*/
		sizes[j - i] = (int)flow_size(f, j) + (j % 3 ? 0 : f->slack);
		data[j - i] = slot(f->n, d, j, sizes[j - i]);
		memset(data[j - i], 0xee, (size_t)sizes[j - i]);
		tags[j - i] = j % 1000;
		mhs[j - i] = d->mh;
	}
	*req = NULL;
	rc = f->n->tail->irecv(d->comm, f->group, data, sizes, tags, mhs, req);
	CHECK(f->n, !*req || k + 1 < FULL, "%d irecvs and never NULL", FULL);
	return !flow_failed(f, rc, "irecv", i) && *req && (d->next += f->group);
}

/* 只 test 最早的那个未完成的 request。sizes 预置 -1：有的插件从不写。*/
static bool flow_reap(struct flow *f, struct side *d)
{
	int group = d == &f->recv ? f->group : 1, first = d->done;
	int rc, done = 0, sizes[RECVS];

	if (d->done == d->next)
		return false;
	memset(sizes, -1, sizeof(sizes));
	rc = f->n->tail->test(d->req[first % d->window], &done, sizes);
	if (flow_failed(f, rc, "test", first) || !done)
		return false;
	for (d->done += group; d == &f->recv && first < d->done; first++) {
		size_t want = flow_size(f, first);
		size_t room = d->size[first % d->window], right;
		int size = sizes[first - d->done + group];

		want = want < room ? want : room;
		right = flow_data(f, first, slot(f->n, d, first, -1), want, 1);
		size = size == -1 && f->count > 1 ? (int)want : size;
		CHECK(f->n, size == (int)want && right == want,
		      "message %d: size %d, right up to %zu of %zu", first,
		      size, right, want);
	}
	return true;
}

/* random 时每一步都可能跳过，于是四种调用以任意次序交错。*/
static bool flow_step(struct flow *f)
{
	uint64_t dice = f->random ? mix(f->seed ^ ++f->dice) : 15;
	bool moved = false;

	moved |= f->hold_post ? f->hold_post-- : dice & 1 && flow_post(f);
	moved |= f->hold_send ? f->hold_send-- : dice & 2 && flow_send(f);
	moved |= dice & 4 && flow_reap(f, &f->send);
	return moved | (dice & 8 && flow_reap(f, &f->recv));
}

static void flows_run(struct net *n, struct flow *f, int k)
{
	wait_for(n, "transfer");
	for (int left = k; left; sched_yield())
		for (int i = left = 0; i < k; i++) {
			if (!f[i].broken && flow_step(&f[i]))
				wait_for(n, "transfer");
			left += !f[i].broken && (f[i].send.done < f[i].count ||
						 f[i].recv.done < f[i].count);
		}
}

static void transfer(struct net *n, struct flow *f, int k)
{
	char byte;

	flows_open(n, f, k);
	if (f->during && !f->no_recv)
		f->during(n, f);
	flows_run(n, f, k);
	/* 两个进程：双方都说“好了”之后才许关，否则先关的会毁掉在途的数据。*/
	if (n->peer && !f->broken && write(n->peer, "", 1) == 1)
		CHECK(n, read(n->peer, &byte, 1) == 1, "no confirmation");
	flows_close(n, f, k);
}

static void before_devices(struct net *n, struct flow *f)
{
	struct props p;
	int count = 0, rc = n->head->devices(&count);

	CHECK(n, !rc && count > 0, "devices: %d, %d devices", rc, count);
	for (int i = 0; i < count; i++) {
		const int *v = net_props(n, i, &p);
		bool ok = v[0] > 0 && v[3] > 0 && v[4] > 0 && p.name && *p.name;

		CHECK(n, ok && p.ptr_support & PTR_HOST, "properties %d", i);
	}
	for (int bad = -1; bad <= count; bad += count + 1) {
		rc = n->head->listen(bad, f->handle, &f->listen);
		CHECK(n, rc && n->head->properties(bad, &p),
		      "device %d of %d is accepted", bad, count);
	}
}

/* 1 全零，2 随机，3 翻转首字节。失败的尝试留在 f 里，插件可能还指着它。*/
static void before_badhandle(struct net *n, struct flow *f)
{
	flow_listen(n, f);
	for (size_t i = 1; i <= 3; i++) {
		f[i].shared = f[i].frail = true;
		flow_listen(n, &f[i]);
		for (size_t j = 0; j < sizeof(f->attempt) && i < 3; j++)
			f[i].attempt[j] = (uint8_t)(mix(j) * (i - 1));
		f[i].attempt[0] ^= i == 3 ? 0xff : 0;
		for (int ms = 0; !f[i].broken && ms < 2000; ms++, usleep(1000))
			flow_dial(&f[i]);
		CHECK(n, !f[i].send.comm && !f[i].recv.comm,
		      "bad handle %zu gives a comm", i);
	}
}

/* 连上本进程每个 listening socket 的陌生人：先来乱说的，再来沉默的。*/
static void before_stranger(struct net *n, struct flow *f)
{
	struct sockaddr_storage to;
	socklen_t size = sizeof(to);

	flow_listen(n, f);
	for (int fd = 3; fd < 256; fd++, size = sizeof(to)) {
		if (getsockname(fd, (void *)&to, &size))
			continue;
		for (int i = 0; i < 2; i++) { /* 都留到进程结束 */
			int s = socket(to.ss_family, SOCK_STREAM, 0);

			if (!connect(s, (void *)&to, size))
				send(s, f, i ? 0 : sizeof(*f), MSG_NOSIGNAL);
		}
	}
}

/* 第一条连接不计：插件可以在首次使用时打开自己长期持有的东西。*/
static void before_leaks(struct net *n, struct flow *f)
{
	int more = 0;

	for (int i = 1; i <= 101; i++) {
		transfer(n, &f[i], 1);
		for (int fd = 0; fd < 4096 && (i == 1 || i == 101); fd++)
			more += fcntl(fd, F_GETFD) < 0 ? 0 : i == 1 ? -1 : 1;
	}
	CHECK(n, !more, "%d more fds open after 100 connections", more);
}

static void *in_thread(void *f)
{
	transfer(((struct flow *)f)->n, f, 1);
	return NULL;
}

static void before_threads(struct net *n, struct flow *f)
{
	pthread_t thread[MANY];

	for (int i = 0; i < f->copies; i++)
		CHECK(n, !pthread_create(&thread[i], NULL, in_thread, &f[i]),
		      "pthread_create");
	while (f->copies)
		pthread_join(thread[--f->copies], NULL);
}

static void during_flush(struct net *n, struct flow *f)
{
	struct side *d = &f->recv;
	int rc, size = (int)f->size, done = 0;
	void *data, *req = NULL;

	flows_run(n, f, 1);
	data = slot(n, d, 0, -1);
	rc = n->tail->iflush(d->comm, 1, &data, &size, &d->mh, &req);
	CHECK(n, !rc, "iflush returned %d", rc);
	for (wait_for(n, "flush"); req && !done; sched_yield())
		CHECK(n, !n->tail->test(req, &done, &size), "test of iflush");
}

/* 等消息到了一半才杀：此刻连接一定是好的，错误只能来自对端之死。*/
static void during_peerdies(struct net *n, struct flow *f)
{
	volatile uint8_t *middle = f->recv.mem + GUARD + f->size / 2;

	while (!f->recv.next || (middle[0] == 0xee && middle[1] == 0xee))
		flow_step(f);
	kill(n->child, SIGKILL);
	n->limit_s = 10;
	for (wait_for(n, "an error from test"); !f->broken; sched_yield())
		flow_step(f);
}

/* name args size count copies slack before during */
static const struct flow tests[] = {
	{ "devices", "", 0, 1, 1, 0, .before = before_devices },
	{ "size", "s", 0, 1, 1, .slack = 100 },
	{ "stream", "sc", 0, 1, 1, .slack = 100 },
	{ "random", "rc", 300000, 1, 1, 100, .random = true },
	{ "multirecv", "", 70000, 40, 16, 100, .random = true, .group = 1 },
	{ "full", "", 9, 99, 1, .recv.window = FULL, .hold_send = 99999 },
	{ "unposted", "", 16 << 20, 2, 1, .hold_post = 99999 },
	{ "twocomms", "", 5000, 200, 2, 100, .shared = true },
	{ "many", "k", 5000, 1, 2, 100, .shared = true },
	{ "flush", "", 5000, 1, 1, .during = during_flush },
	{ "badreg", "", 5000, 1, 1, .badreg = true },
	{ "toobig", "", 100000, 1, 2, -1, .frail = true },
	{ "badhandle", "", 5000, 1, 1, .before = before_badhandle },
	{ "stranger", "", 5000, 1, 1, .before = before_stranger },
	{ "twoproc", "sc", 0, 1, 1, 100, .no_send = true },
	{ "peerdies", "s", 0, 9999, 1, .during = during_peerdies, .frail = true,
	  .no_send = true, .recv.window = 1 },
	{ "leaks", "", 5000, 1, 1, .before = before_leaks },
	{ "threads", "k", 50000, 100, 1, .before = before_threads },
};

/* twoproc 与 peerdies 一分为二：父收子发，分身之后才各自装入插件。*/
static void split(struct net *n, struct flow *t)
{
	int pair[2];

	CHECK(n, !socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	n->child = fork();
	n->peer = pair[!n->child];
	close(pair[!!n->child]);
	if (n->child)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(2, 1); /* 结果只由父进程说 */
	t->no_recv = true;
	t->no_send = t->frail = false;
}

static _Noreturn void run(struct net *n, struct flow *t)
{
	static struct flow f[2 * MANY];
	struct props p;
	int status = 0, most;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (t->no_send)
		split(n, t);
	wait_for(n, "dlopen, init");
	load(n);
	most = net_props(n, 0, &p)[4]; /* maxRecvs */
	n->ptr_support = p.ptr_support;
	for (int i = 0; i < 2 * MANY; i++) {
		f[i] = *t;
		f[i].n = n;
		f[i].seed += (uint64_t)i;
		f[i].shared &= i % 2;
		f[i].slack *= t->slack < 0 && i ? 99000 : 1; /* toobig */
		f[i].group = t->group ? i % most + 1 : 1;
		f[i].count *= f[i].group;
	}
	if (t->before)
		t->before(n, f);
	transfer(n, f, f->copies);
	if (n->child && !f->broken)
		waitpid(n->child, &status, 0);
	CHECK(n, !status, "the sending process failed");
	exit(0);
}

/* 在子进程里跑一个 TEST，印一行结果；返回本程序的退出码。*/
static int judge(struct net n, const char *text)
{
	size_t a = 0, b = 1, i = sizeof(tests) / sizeof(*tests);
	int sig, status = 1 << 8, got;
	char name[16] = "";
	struct flow t;
	bool k;

	got = sscanf(text, "%15s %zu %zu", name, &a, &b);
	while (--i && strcmp(tests[i].name, name))
		;
	t = tests[i];
	k = *t.args == 'k';
	snprintf(n.title, sizeof(n.title), "%s %zu %zu", t.name, a, b);
	n.title[strlen(text) < 63 ? strlen(text) : 0] = 0;
	if (strcmp(n.title, text) || got != 1 + (int)strlen(t.args) || !b ||
	    a > (k ? MANY : GIB) || b > 1000000 || (k && !a))
		return 2;
	t.size = *t.args == 's' ? a : t.size;
	t.seed = a;
	t.copies *= k ? (int)a : 1;
	t.count *= (int)b;
	t.slack *= t.size < GIB;
	n.limit_s = t.size < GIB ? 30 : 60;
	if (!fork())
		run(&n, &t);
	wait(&status);
	sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	if (!status)
		printf("ok %s\n", text);
	else if (sig || WEXITSTATUS(status) != TOLD)
		printf("FAIL %s: %s in %s\n", text,
		       sig ? strsignal(sig) : "bad exit", *n.stage);
	return status != 0;
}

int main(int argc, char *argv[])
{
	char all[] = "devices;size 0;size 1;size 24;size 4096;size 65537;"
		     "size 8388608;stream 0 100;stream 4096 2000;"
		     "stream 1000000 50;random 1 1000;random 2 1000;multirecv;"
		     "full;unposted;twocomms;many 1;many 64;flush;badreg;"
		     "toobig;badhandle;stranger;twoproc 65536 500;"
		     "twoproc 8388608 10;peerdies 67108864;leaks;threads 4";
	struct net n = { .path = argv[1] };
	char text[64] = "";
	int worst = 0;

	n.stage = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	n.version = argc > 3 ? atoi(argv[2]) : 0;
	for (int i = 3; i < argc; i++)
		snprintf(text + strlen(text), 64 - strlen(text),
			 i > 3 ? " %s" : "%s", argv[i]);
	if (n.version < 5 || n.version > 8)
		worst = 2;
	else if (strcmp(text, "all"))
		worst = judge(n, text);
	else
		for (char *t = strtok(all, ";"); t; t = strtok(NULL, ";"))
			worst |= judge(n, t);
	if (worst == 2)
		fputs("usage: net_driver PLUGIN 5..8 TEST|all [ARG]\n", stderr);
	return worst;
}

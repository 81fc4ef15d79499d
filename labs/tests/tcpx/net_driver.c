// SPDX-License-Identifier: MIT
/*
 * net_driver.c —— 一个对本项目一无所知的 NCCL 网络插件用户
 *
 *	net_driver PLUGIN 5…8 TEST|all     每个 TEST 一行：ok 或 FAIL
 *
 * 插件与调用者之间只有一张函数表（ncclNetPlugin_vN）和一份口头约定。若测试与
 * 插件共用头文件，字段次序写错时两边会错得一模一样，测试照样通过。所以这里的
 * ABI 是照公开资料重写的，不含本项目任何头文件；凡约定没有保证的都不指望，凡
 * 约定要求调用者的都做到。每个 TEST 在子进程里跑：崩溃、卡死（Alarm clock）、
 * 泄漏（ASan）都变成一行 FAIL。退出码 0 全部 ok，1 有 FAIL，2 用法错误。
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PTR_HOST 1
#define GUARD	 64   /* 缓冲区每一侧的警戒字节数 */
#define SHADE	 0xa5 /* 警戒字节的值 */
#define SLACK	 100 /* 每三条有一条的缓冲区，比消息大这么多 */
#define SENDS	 12  /* 同时在途的 isend */
#define RECVS	 16  /* 同时在途的 irecv */
#define MANY	 64  /* 连接数的上限 */
#define TOLD	 3   /* 子进程的退出码：FAIL 行已经印过 */
#define LIMIT_S	 30  /* 没有进展的上限 */

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
ABI(7, HANDLE, int, void *dmabuf;);
ABI(8, HANDLE, size_t, void *dmabuf;);

struct props {
	char *name, *pci_path;
	uint64_t guid;
	/* speed port latency（float 不读）maxComms maxRecvs；v8 前面多一个 */
	int ptr_support, rest[8];
};

/* 抹平版本差异之后的插件，以及正在跑的 TEST。*/
struct net {
	const char *path, *title;
	int version;
	const struct abi_head *head;
	const struct abi_tail *tail;
	const struct abi_v5 *v5; /* v6 到 reg 为止与 v5 相同 */
	const struct abi_v7 *v7; /* v8 到 accept、v6 的 tail 与 v7 相同 */
	const struct abi_v8 *v8;
};

#define CHECK(n, ok, ...)                        \
	do {                                     \
		if (ok)                          \
			break;                   \
		printf("FAIL %s: ", (n)->title); \
		printf(__VA_ARGS__);             \
		puts("");                        \
		fflush(stdout);                  \
		_exit(TOLD);                     \
	} while (0)

static __attribute__((format(printf, 5, 6))) void
no_log(int level, unsigned long flags, const char *file, int line,
       const char *fmt, ...)
{
	(void)level, (void)flags, (void)file, (void)line, (void)fmt;
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
	n->tail = n->version == 5 ? &n->v5->tail : &n->v7->tail;
	CHECK(n, !n->head->init(no_log), "init failed");
}

/* 返回 rest 里从 speed 开始的部分。*/
static const int *get_props(struct net *n, int dev, struct props *p)
{
	memset(p, 0, sizeof(*p));
	CHECK(n, !n->head->properties(dev, p), "getProperties %d failed", dev);
	return p->rest + (n->version == 8);
}

/* TEST 表里的一行：一条连接，其上 count 组消息。*/
struct test {
	const char *name;
	size_t size; /* random 时是上限 */
	int count;
	bool random; /* 大小随机 */
	int group;   /* 一次 irecv 挂几条；发的时候倒着 */
};

static const struct test tests[] = {
	{ "empty", 0, 100, false, 1 },	    { "byte", 1, 1, false, 1 },
	{ "text", 24, 1, false, 1 },	    { "small", 4096, 2000, false, 1 },
	{ "odd", 65537, 1, false, 1 },	    { "big", 1000000, 50, false, 1 },
	{ "large", 67108864, 1, false, 1 }, { "random", 300000, 1000, true, 1 },
	{ "pairs", 70000, 100, true, 2 },   { "eights", 70000, 40, true, 8 },
};

/* 收发两侧各一个窗口；整个窗口只注册一次，各缓冲区是其中的一段。*/
struct side {
	void *comm, *mh;
	uint8_t *mem;
	int window, next, done;
	void *req[RECVS];
};

struct flow {
	const struct test *t;
	struct net *n;
	void *listen, *dh[2];
	_Alignas(16) uint8_t handle[128];     /* 插件可改写 */
	_Alignas(16) uint8_t storage[2][512]; /* v7/v8 的 device handle */
	size_t stride; /* 每段：GUARD、缓冲区、GUARD */
	int total;
	struct side send, recv;
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30) ^ 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

static size_t size_of(const struct flow *f, int i)
{
	uint64_t r = mix((uint64_t)i);

	if (!f->t->random)
		return f->t->size;
	return r % 8 ? (r >> 8) % (f->t->size + 1) : r & 8 ? 65536 : r >> 4 & 1;
}

/* 第 i 条的缓冲区，整段涂上 SHADE。*/
static uint8_t *slot(const struct flow *f, const struct side *d, int i)
{
	uint8_t *p = d->mem + (size_t)(i % d->window) * f->stride;

	memset(p, SHADE, f->stride);
	return p + GUARD;
}

static void fill(uint8_t *p, size_t size, int i)
{
	uint64_t x = mix(~(uint64_t)i);

	for (size_t at = 0; at < size; at++, x += 0x9e3779b97f4a7c15)
		p[at] = (uint8_t)(x >> 56);
}

/* 第 i 条到了：内容对，此外整段仍是 SHADE。*/
static void check(const struct flow *f, int i)
{
	uint8_t *p = f->recv.mem + (size_t)(i % f->recv.window) * f->stride;
	uint8_t *want = malloc(f->stride);

	memset(want, SHADE, f->stride);
	fill(want + GUARD, size_of(f, i), i);
	CHECK(f->n, !memcmp(p, want, f->stride), "message %d is wrong", i);
	free(want);
}

static void side_open(struct flow *f, struct side *d, int window)
{
	struct net *n = f->n;
	size_t size = f->stride * (size_t)window;
	int rc;

	d->window = window;
	d->mem = malloc(size);
	CHECK(n, d->mem, "no memory for %zu bytes", size);
	rc = n->v8   ? n->v8->reg(d->comm, d->mem, size, PTR_HOST, &d->mh)
	     : n->v5 ? n->v5->reg(d->comm, d->mem, (int)size, PTR_HOST, &d->mh)
		     : n->v7->reg(d->comm, d->mem, (int)size, PTR_HOST, &d->mh);
	/* 只看 rc：有的插件成功了也给 NULL mhandle。*/
	CHECK(n, !rc, "regMr returned %d", rc);
}

/* 注销、关闭，然后才还内存：关闭之前插件的线程可能还在写。*/
static void side_close(struct net *n, struct side *d, int (*end)(void *))
{
	CHECK(n, !n->tail->dereg(d->comm, d->mh) && !end(d->comm),
	      "deregMr or close failed");
	free(d->mem);
}

/*
 * 两端同一线程，connect 与 accept 必须轮流问。rc 0 而 comm 仍为 NULL：还没好，再来；
 * 一旦成功就不再调用。
 */
static void flow_open(struct net *n, struct flow *f)
{
	void **s = &f->send.comm, **r = &f->recv.comm;
	int rc = 0, most = (int)(((size_t)256 << 20) / f->stride);

	CHECK(n, !n->head->listen(0, f->handle, &f->listen), "listen");
	f->dh[0] = f->storage[0];
	f->dh[1] = f->storage[1];
	for (alarm(LIMIT_S); !rc && (!*s || !*r); sched_yield()) {
		if (!*s)
			rc = n->v5 ? n->v5->connect(0, f->handle, s)
				   : n->v7->connect(0, f->handle, s, &f->dh[0]);
		if (!rc && !*r)
			rc = n->v5 ? n->v5->accept(f->listen, r)
				   : n->v7->accept(f->listen, r, &f->dh[1]);
	}
	CHECK(n, !rc, "connect or accept returned %d", rc);
	side_open(f, &f->send, most < SENDS ? most : SENDS);
	side_open(f, &f->recv, most < RECVS ? most : RECVS);
}

/* 以下三步都返回有无进展；NULL request 表示满了，下次再来。*/
static bool flow_send(struct flow *f)
{
	struct side *d = &f->send;
	int group = f->t->group, at = d->next % d->window;
	/* 组内倒着发：消息该进哪个缓冲区只能由 tag 决定。*/
	int i = d->next - 2 * (d->next % group) + group - 1, rc;
	size_t size = size_of(f, i);
	uint8_t *data;

	if (d->next == f->total || d->next - d->done == d->window)
		return false;
	data = slot(f, d, at);
	fill(data, size, i);
	d->req[at] = NULL;
	rc = f->n->tail->isend(d->comm, data, (int)size, i % 1000, d->mh,
			       &d->req[at]);
	CHECK(f->n, !rc, "isend %d returned %d", i, rc);
	return d->req[at] && ++d->next;
}

static bool flow_post(struct flow *f)
{
	struct side *d = &f->recv;
	int rc, sizes[RECVS], tags[RECVS], i = d->next, group = f->t->group;
	void *data[RECVS], *mhs[RECVS], **req = &d->req[i % d->window];

	if (i == f->total || i - d->done + group > d->window)
		return false;
	for (int j = 0; j < group; j++) {
		sizes[j] = (int)size_of(f, i + j) + ((i + j) % 3 ? 0 : SLACK);
		data[j] = slot(f, d, i + j);
		tags[j] = (i + j) % 1000;
		mhs[j] = d->mh;
	}
	*req = NULL;
	rc = f->n->tail->irecv(d->comm, group, data, sizes, tags, mhs, req);
	CHECK(f->n, !rc, "irecv %d returned %d", i, rc);
	return *req && (d->next += group);
}

/* 只 test 最早的那个未完成的 request。*/
static bool flow_reap(struct flow *f, struct side *d)
{
	int group = d == &f->recv ? f->t->group : 1, first = d->done;
	int rc, done = 0, sizes[RECVS];

	if (d->done == d->next)
		return false;
	rc = f->n->tail->test(d->req[first % d->window], &done, sizes);
	CHECK(f->n, !rc, "test %d returned %d", first, rc);
	if (!done)
		return false;
	for (int j = 0; d == &f->recv && j < group; j++) {
		CHECK(f->n, sizes[j] == (int)size_of(f, first + j),
		      "message %d: size %d", first + j, sizes[j]);
		check(f, first + j);
	}
	return d->done += group;
}

static void transfer(struct net *n, const struct test *t)
{
	struct flow f = { .n = n, .t = t, .total = t->count * t->group };

	f.stride = t->size + SLACK + 2 * GUARD;
	flow_open(n, &f);
	for (alarm(LIMIT_S); f.recv.done < f.total || f.send.done < f.total;
	     sched_yield())
		if (flow_post(&f) | flow_send(&f) | flow_reap(&f, &f.send) |
		    flow_reap(&f, &f.recv))
			alarm(LIMIT_S);
	side_close(n, &f.send, n->tail->close_send);
	side_close(n, &f.recv, n->tail->close_recv);
	CHECK(n, !n->tail->close_listen(f.listen), "closeListen");
}

/* 设备之外的编号，不许有。*/
static void check_devices(struct net *n)
{
	struct props p;
	uint8_t handle[128];
	void *comm;
	int count = 0, rc = n->head->devices(&count);

	CHECK(n, !rc && count > 0, "devices: %d, %d devices", rc, count);
	for (int i = 0; i < count; i++) {
		const int *v = get_props(n, i, &p);
		bool ok = v[0] > 0 && v[3] > 0 && v[4] > 0 && p.name && *p.name;

		CHECK(n, ok && p.ptr_support & PTR_HOST, "properties %d", i);
	}
	for (int bad = -1; bad <= count; bad += count + 1)
		CHECK(n,
		      n->head->listen(bad, handle, &comm) &&
			      n->head->properties(bad, &p),
		      "device %d of %d is accepted", bad, count);
	CHECK(n, get_props(n, 0, &p)[4] >= 8, "maxRecvs");
}

/* 在子进程里跑一个 TEST，印一行结果；失败了吗？*/
static bool judge(struct net n, const struct test *t)
{
	int status = 1 << 8;

	n.title = t->name;
	if (!fork()) {
		load(&n);
		check_devices(&n);
		transfer(&n, t);
		exit(0);
	}
	wait(&status);
	if (!status)
		printf("ok %s\n", t->name);
	else if (WIFSIGNALED(status) || WEXITSTATUS(status) != TOLD)
		printf("FAIL %s: %s\n", t->name,
		       WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
					   : "bad exit");
	return status;
}

int main(int argc, char *argv[])
{
	struct net n = { .path = argv[1] };
	int ran = 0, bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	n.version = argc == 4 ? atoi(argv[2]) : 0;
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (n.version < 5 || n.version > 8 ||
		    (strcmp(argv[3], "all") && strcmp(argv[3], tests[i].name)))
			continue;
		bad += judge(n, &tests[i]);
		ran++;
	}
	if (!ran)
		fputs("usage: net_driver PLUGIN 5..8 TEST|all\n", stderr);
	return ran ? bad != 0 : 2;
}

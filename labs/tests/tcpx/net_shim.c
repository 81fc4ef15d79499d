// SPDX-License-Identifier: MIT
/*
 * net_shim.c —— 夹在调用者与教学插件之间的 NCCL net 插件：一面监督，一面使坏
 *
 * 插件的契约不在函数表里，违反它的程序在“好脾气”的插件上照样能跑。这里把契约的每一条
 * 变成检查：调用者一旦违约，打印一行 "SHIM VIOLATION: …" 并 abort()。这些检查总是开着：
 *	- connect/accept：同一次尝试用同一个 buffer，从原样的 handle 开始，成功后不再调用
 *	- v7/v8：device handle 的存储在，16 字节对齐，全零
 *	- regMr 的类型是 NCCL_PTR_HOST；收发的内存已注册；close 之前都已 deregMr
 *	- 在途至多 16 个 irecv、12 个 isend；只 test 最老的；done 之后不再 test
 *	- 失败过的 comm 只能 deregMr 和 close；不 close NULL、不 close 两次；卸载前全关
 *	- irecvConsumed：只在 unpack 时，每个完成的 receive 恰好一次，按次序
 *
 *	NET_SHIM_REAL=PATH    真正的插件（默认是同一目录里的 libnccl-net-lab.so）
 *	NET_SHIM=WORD,…       怎样使坏：
 *	  slow        前 200 次 connect/accept 都说“还没好”，并在 handle 末尾计数
 *	  busy        每个 isend/irecv 先给三次 NULL request
 *	  sleepy      每个请求 test 50 次之后才有进展
 *	  lazy        isend/irecv 只登记，第一次 test 时才真的去做
 *	  late        init 之前，表里只有 name 与 init
 *	  devhandle   v7/v8 成功时写满 512 字节的 device handle
 *	  nosize      test 从不写 sizes         zerosize   发送方的 size 是 0
 *	  shortsize   收到的 size 少报 1        roomsize   收到的 size 是 post 的大小
 *	  longsize    收到的 size 是四倍        notags     tag 一律当成 0
 *	  nullmr      regMr 成功而 mhandle 是 NULL
 *	  unpack      v7/v8 自称 NCCL_NET_DEVICE_UNPACK
 *	  corrupt     收到的消息正中间错一个字节
 *	  overrun     buffer 之后的一个字节被写；leap、early  之后第 64 个，之前第 64 个
 *	              （early 也写发送方的）
 *	  linger      close 时还在读写在途的 buffer，像一个有后台线程的插件
 *	  devices=N   devices() 说有 N 个
 *	  nolisten    listen 返回 0，而 comm 是 NULL
 *	  crash=CALL  在这个调用里踩到空指针；badlog  WARN 的参数与格式不符
 *	  hole=CALL   表里的这一项是 NULL
 *	  lost        收到的字节不进 buffer
 *	  fail=CALL[:N]  第 N 次（默认 1）调用返回 2，或 rc=R 的 R；close 与 deregMr 先真的
 *	              做完，connect 按尝试计数
 *
 * 以 -DONLY=5 … 8 编译则只导出那一版的表。
 */
#include "net_shim.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_POLLS   200
#define BUSY_TRIES   3
#define SLEEPY_TESTS 50
#define MAX_COMMS    512
#define MAX_RING     64 /* 一个位置很久才重用，才认得出对旧请求的 test */
#define MAX_MRS	     8
#define MAX_RECVS    16
#define MAX_SENDS    12
#define TAIL_AT	     112
#define TAIL_MAGIC   0x4d494853u /* "SHIM" */

/* ---- 监督与吩咐 ---------------------------------------------------------- */

void violation(const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "SHIM VIOLATION: %s\n", text);
	abort();
}

/* NET_SHIM 里的 WORD：没有则 NULL；有则返回 '=' 之后的文字（可为空）。*/
const char *asked(const char *word)
{
	const char *list = getenv("NET_SHIM");
	size_t len = strlen(word);

	for (; list && *list; list += strcspn(list, ",")) {
		list += *list == ',';
		if (!strncmp(list, word, len) && strchr(",=", list[len]))
			return list + len + (list[len] == '=');
	}
	return NULL;
}

/* fail=CALL[:N] 点的就是这一次吗？*/
static bool to_fail(const char *call)
{
	static int calls;
	const char *want = asked("fail");
	size_t len = strlen(call);

	if (!want || strncmp(want, call, len) || !strchr(":,", want[len]))
		return false;
	return ++calls == (want[len] == ':' ? atoi(want + len + 1) : 1);
}

int failure(const char *call)
{
	static volatile int *volatile nowhere;
	const char *rc = asked("rc");

	if (asked("crash") && !strcmp(asked("crash"), call))
		*nowhere = 1;
	if (to_fail(call))
		return rc ? atoi(rc) : NCCL_SYSTEM_ERROR;
	return 0;
}

/* ---- 记账 ---------------------------------------------------------------- */

struct comm;

struct request {
	struct comm *comm;
	void *real;
	int n;
	void *data[NCCL_NET_PLUGIN_MAX_RECVS];
	int sizes[NCCL_NET_PLUGIN_MAX_RECVS];
	int tests;
	/* lazy：登记下来，等第一次 test */
	bool waiting;
	int tags[NCCL_NET_PLUGIN_MAX_RECVS];
	void *mhs[NCCL_NET_PLUGIN_MAX_RECVS];
};

struct mr {
	char *data;
	size_t size;
	void *real;  /* 真插件给的 */
	void *given; /* 给调用者的 */
};

enum kind {
	LISTEN,
	SEND,
	RECV
};

/* 从不释放、从不重用：对已关闭的 comm 的调用才认得出来。*/
struct comm {
	enum kind kind;
	int api;
	void *real;
	bool closed, failed;
	bool accepted; /* LISTEN：已成功 */
	int polls;     /* LISTEN：accept 的次数 */
	int tries;     /* busy：这一个请求已被拒的次数 */
	struct mr mrs[MAX_MRS];
	int nmrs;
	/* 第 consumed … tested … posted 个请求，编号不回绕。*/
	unsigned int posted, tested, consumed;
	struct request ring[MAX_RING];
};

static struct comm comms[MAX_COMMS];
static unsigned int ncomms;

static struct comm *new_comm(enum kind kind, int api, void *real_comm)
{
	struct comm *c = &comms[ncomms++];

	if (ncomms > MAX_COMMS)
		violation("the shim keeps only %d comms", MAX_COMMS);
	*c = (struct comm){ .kind = kind, .api = api, .real = real_comm };
	return c;
}

/* v5 与 v6 的 properties 里没有 netDeviceType。*/
static bool offloads(const struct comm *c)
{
	return c->api >= 7 && asked("unpack");
}

static struct comm *comm_of(void *p, enum kind kind, const char *call)
{
	struct comm *c = p;

	if (!c)
		violation("%s of a NULL comm", call);
	if (c < comms || c >= comms + ncomms || c->kind != kind)
		violation("%s of %p, which is no comm of that kind", call, p);
	if (c->closed)
		violation("%s of a comm that is closed", call);
	return c;
}

static struct comm *any_comm(void *p, const char *call)
{
	struct comm *c = p;
	bool recv = c >= comms && c < comms + ncomms && c->kind == RECV;

	return comm_of(p, recv ? RECV : SEND, call);
}

static struct comm *working_comm(void *p, enum kind kind, const char *call)
{
	struct comm *c = comm_of(p, kind, call);

	if (c->failed)
		violation("%s of a comm that has failed", call);
	return c;
}

/* ---- 连接 ---------------------------------------------------------------- */

/* listen 写在 handle 末尾的 16 字节：凭它认出“原样”，也用它计数。*/
struct tail {
	uint32_t magic;
	uint32_t id;
	uint32_t sum;	/* 前 112 字节与 id 的 */
	uint32_t polls; /* 0：原样 */
};

static uint32_t sum_of(const void *handle, uint32_t id)
{
	const unsigned char *bytes = handle;
	uint32_t sum = 2166136261u ^ id;

	for (int i = 0; i < TAIL_AT; i++)
		sum = (sum ^ bytes[i]) * 16777619u;
	return sum;
}

int shim_listen(int v, int dev, void *handle, void **comm)
{
	static uint32_t count;
	struct tail t = { .magic = TAIL_MAGIC };
	int rc = failure("listen");
	void *made = NULL;

	if (!rc && asked("nolisten"))
		return 0;
	if (!rc)
		rc = real_calls(v)->listen(dev, handle, &made);
	if (rc)
		return rc;
	t.id = (uint32_t)getpid() << 10 | (count++ & 1023);
	t.sum = sum_of(handle, t.id);
	memcpy((char *)handle + TAIL_AT, &t, sizeof(t));
	*comm = new_comm(LISTEN, v, made);
	return 0;
}

static void check_storage(ncclNetDeviceHandle_t **dh)
{
	static const char zero[NCCL_NET_DEV_HANDLE_SIZE];

	if (!dh || !*dh)
		violation("no storage for the device handle");
	if ((uintptr_t)*dh % 16)
		violation("device handle storage is not aligned to 16");
	if (memcmp(*dh, zero, sizeof(zero)))
		violation("device handle storage is not zeroed");
}

static void give_dev_handle(ncclNetDeviceHandle_t **dh)
{
	if (asked("devhandle"))
		memset(*dh, 0x5a, NCCL_NET_DEV_HANDLE_SIZE);
	else
		*dh = NULL; /* 教学插件就是这样 */
}

/* 一次 connect 的尝试，以 handle 的 id 相认。*/
struct attempt {
	uint32_t id;
	const void *buffer;
	uint32_t polls;
	bool over;
};

static struct attempt *attempt_of(const struct tail *t)
{
	static struct attempt attempts[MAX_COMMS];
	int i = 0;

	while (attempts[i].buffer && attempts[i].id != t->id)
		if (++i == MAX_COMMS)
			violation("the shim keeps only %d attempts", i);
	return &attempts[i];
}

static struct attempt *check_attempt(const struct tail *t, const void *handle)
{
	struct attempt *a = attempt_of(t);

	if (t->magic != TAIL_MAGIC)
		violation("connect to a handle that is not what listen filled");
	if (a->buffer && a->over)
		violation("connect was called again after it succeeded");
	if (a->buffer && t->polls != a->polls)
		violation("connect's handle was not kept between polls");
	if (a->buffer && a->buffer != handle)
		violation("connect's handle buffer moved between polls");
	if (!a->buffer && (t->polls || sum_of(handle, t->id) != t->sum))
		violation("connect began with a handle that is not pristine");
	a->id = t->id;
	a->buffer = handle;
	return a;
}

int shim_connect(int v, int dev, void *handle, void **comm,
		 ncclNetDeviceHandle_t **dh)
{
	struct attempt *a;
	struct tail t;
	void *made = NULL;
	int rc = 0;

	memcpy(&t, (char *)handle + TAIL_AT, sizeof(t));
	if (v >= 7)
		check_storage(dh);
	a = check_attempt(&t, handle);
	t.polls = ++a->polls;
	memcpy((char *)handle + TAIL_AT, &t, sizeof(t));
	if (a->polls == 1)
		rc = failure("connect");
	if (!rc && (!asked("slow") || a->polls > SLOW_POLLS))
		rc = real_connect(v, dev, handle, &made);
	a->over = rc || made;
	*comm = NULL;
	if (rc || !made)
		return rc;
	if (v >= 7)
		give_dev_handle(dh);
	*comm = new_comm(SEND, v, made);
	return 0;
}

int shim_accept(int v, void *listen_comm, void **comm,
		ncclNetDeviceHandle_t **dh)
{
	struct comm *l = working_comm(listen_comm, LISTEN, "accept");
	void *made = NULL;
	int rc = failure("accept");

	if (l->accepted)
		violation("accept was called again after it succeeded");
	if (v >= 7)
		check_storage(dh);
	if (!rc && (!asked("slow") || ++l->polls > SLOW_POLLS))
		rc = real_accept(v, l->real, &made);
	l->failed = rc;
	*comm = NULL;
	if (rc || !made)
		return rc;
	l->accepted = true;
	if (v >= 7)
		give_dev_handle(dh);
	*comm = new_comm(RECV, v, made);
	return 0;
}

/* 还在途的请求：真有后台线程的话，它此刻正在读写这些 buffer。*/
static void linger(const struct comm *c)
{
	static volatile unsigned char seen;

	for (unsigned int i = c->tested; i != c->posted; i++) {
		const struct request *r = &c->ring[i % MAX_RING];

		for (int k = 0; k < r->n; k++) {
			if (!r->sizes[k])
				continue;
			if (c->kind == RECV)
				memset(r->data[k], 0x11, (size_t)r->sizes[k]);
			else
				seen = *(unsigned char *)r->data[k];
		}
	}
	(void)seen;
}

static int close_comm(void *p, enum kind kind, const char *call)
{
	struct comm *c = comm_of(p, kind, call);
	const struct real_calls *calls = real_calls(c->api);
	int rc = failure(call);
	int real_rc;

	if (c->nmrs)
		violation("%s with %d registrations left", call, c->nmrs);
	/* 中途放弃的，完成而未取走的就算了。*/
	if (kind == RECV && offloads(c) && c->posted == c->tested &&
	    !c->failed && c->consumed != c->tested)
		violation("%s before irecvConsumed of every receive", call);
	if (asked("linger"))
		linger(c);
	real_rc = kind == LISTEN ? calls->close_listen(c->real)
		  : kind == SEND ? calls->close_send(c->real)
				 : calls->close_recv(c->real);
	c->closed = true;
	return rc ? rc : real_rc;
}

int shim_close_send(void *comm)
{
	return close_comm(comm, SEND, "closeSend");
}

int shim_close_recv(void *comm)
{
	return close_comm(comm, RECV, "closeRecv");
}

int shim_close_listen(void *comm)
{
	return close_comm(comm, LISTEN, "closeListen");
}

/* ---- 内存 ---------------------------------------------------------------- */

int shim_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct comm *c = any_comm(comm, "regMr");
	struct mr *mr = &c->mrs[c->nmrs];
	int rc = failure("regMr");

	if (type != NCCL_PTR_HOST)
		violation("regMr of type %d", type);
	if (c->nmrs == MAX_MRS)
		violation("the shim keeps only %d registrations", MAX_MRS);
	*mr = (struct mr){ .data = data, .size = size };
	if (!rc)
		rc = real_reg_mr(c->api, c->real, data, size, type, &mr->real);
	if (rc)
		return rc;
	mr->given = asked("nullmr") ? NULL : mr->real;
	*mhandle = mr->given;
	c->nmrs++;
	return 0;
}

int shim_reg_mr_int(void *comm, void *data, int size, int type, void **mhandle)
{
	if (size < 0)
		violation("regMr of %d bytes", size);
	return shim_reg_mr(comm, data, (size_t)size, type, mhandle);
}

/* 真插件的 mhandle；buffer 必须整个落在它注册的范围里。*/
static void *real_mhandle(const struct comm *c, const void *data, int size,
			  const void *mhandle, const char *call)
{
	const char *from = data;

	for (int i = 0; i < c->nmrs; i++) {
		const struct mr *mr = &c->mrs[i];

		if (mr->given == mhandle && from >= mr->data &&
		    from + size <= mr->data + mr->size)
			return mr->real;
	}
	violation("%s: %d bytes at %p are not in registration %p", call, size,
		  data, mhandle);
}

int shim_dereg_mr(void *comm, void *mhandle)
{
	struct comm *c = any_comm(comm, "deregMr");
	int rc = failure("deregMr");
	int i = 0, real_rc;

	while (i < c->nmrs && c->mrs[i].given != mhandle)
		i++;
	if (i == c->nmrs)
		violation("deregMr of %p, which is not registered", mhandle);
	real_rc = real_calls(c->api)->dereg_mr(c->real, c->mrs[i].real);
	c->mrs[i] = c->mrs[--c->nmrs];
	return rc ? rc : real_rc;
}

/* ---- 收发 ---------------------------------------------------------------- */

static bool refuse(struct comm *c)
{
	if (!asked("busy") || c->tries++ == BUSY_TRIES) {
		c->tries = 0;
		return false;
	}
	return true;
}

static struct request *new_request(struct comm *c, int n, void **data,
				   const int *sizes, const int *tags,
				   void **mhandles)
{
	struct request *r = &c->ring[c->posted % MAX_RING];

	*r = (struct request){ .comm = c, .n = n };
	for (int i = 0; i < n; i++) {
		r->data[i] = data[i];
		r->sizes[i] = sizes[i];
		r->tags[i] = asked("notags") ? 0 : tags[i];
		r->mhs[i] = real_mhandle(c, data[i], sizes[i], mhandles[i],
					 c->kind == SEND ? "isend" : "irecv");
	}
	return r;
}

/* 真的提交；真插件没有空位时，请求还在等。*/
static int submit(struct request *r)
{
	static char nowhere[1 << 16];
	void *lost[] = { nowhere };
	const struct real_calls *calls = real_calls(r->comm->api);
	int rc = r->comm->kind == SEND
			 ? calls->isend(r->comm->real, r->data[0], r->sizes[0],
					r->tags[0], r->mhs[0], &r->real)
			 : calls->irecv(r->comm->real, r->n,
					asked("lost") ? lost : r->data,
					r->sizes, r->tags, r->mhs, &r->real);

	r->waiting = !rc && !r->real;
	return rc;
}

static int take_request(struct comm *c, struct request *r, void **request)
{
	int rc = failure(c->kind == SEND ? "isend" : "irecv");

	*request = NULL;
	if (!rc && refuse(c))
		return 0;
	r->waiting = true;
	if (!rc && !asked("lazy"))
		rc = submit(r);
	c->failed = rc;
	if (rc || (r->waiting && !asked("lazy")))
		return rc;
	c->posted++;
	*request = r;
	return 0;
}

int shim_isend(void *comm, void *data, int size, int tag, void *mhandle,
	       void **request)
{
	struct comm *c = working_comm(comm, SEND, "isend");

	if (c->posted - c->tested >= MAX_SENDS)
		violation("more than %d sends are outstanding", MAX_SENDS);
	return take_request(c, new_request(c, 1, &data, &size, &tag, &mhandle),
			    request);
}

int shim_irecv(void *comm, int n, void **data, int *sizes, int *tags,
	       void **mhandles, void **request)
{
	struct comm *c = working_comm(comm, RECV, "irecv");

	if (n < 1 || n > NCCL_NET_PLUGIN_MAX_RECVS)
		violation("irecv of %d buffers", n);
	if (c->posted - c->tested >= MAX_RECVS)
		violation("more than %d receives are outstanding", MAX_RECVS);
	return take_request(c, new_request(c, n, data, sizes, tags, mhandles),
			    request);
}

int shim_iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
		void **request)
{
	(void)n, (void)data, (void)sizes, (void)mhandles, (void)request;
	comm_of(comm, RECV, "iflush");
	return NCCL_INTERNAL_ERROR;
}

/* 请求完成了：按吩咐在内容与大小上撒谎。*/
static void lie(const struct request *r, int *sizes, const int *truth)
{
	bool recv = r->comm->kind == RECV;

	for (int i = 0; i < r->n; i++) {
		unsigned char *data = r->data[i];

		if (recv && asked("corrupt") && truth[i] > 0)
			data[truth[i] / 2] ^= 1;
		if (recv && asked("overrun"))
			data[r->sizes[i]] ^= 1;
		if (recv && asked("leap"))
			data[r->sizes[i] + 63] ^= 1;
		if (asked("early"))
			data[-64] ^= 1;
		if (!sizes || asked("nosize"))
			continue;
		sizes[i] = truth[i] - (recv && asked("shortsize"));
		if (recv && asked("longsize"))
			sizes[i] = truth[i] * 4;
		if (recv && asked("roomsize"))
			sizes[i] = r->sizes[i];
		if (!recv && asked("zerosize"))
			sizes[i] = 0;
	}
}

static struct request *testable(void *p)
{
	struct request *r = p;
	struct comm *c = r ? r->comm : NULL;

	if (!c)
		violation("test of a NULL request");
	working_comm(c, c->kind, "test");
	if (c->posted == c->tested || r != &c->ring[c->tested % MAX_RING])
		violation("test of a request that is not the oldest "
			  "outstanding one");
	return r;
}

int shim_test(void *request, int *done, int *sizes)
{
	struct request *r = testable(request);
	struct comm *c = r->comm;
	int truth[NCCL_NET_PLUGIN_MAX_RECVS];
	int rc = failure("test");

	*done = 0;
	if (!rc && asked("sleepy") && r->tests++ < SLEEPY_TESTS)
		return 0;
	if (!rc && r->waiting)
		rc = submit(r);
	if (!rc && !r->waiting)
		rc = real_calls(c->api)->test(r->real, done, truth);
	c->failed = rc;
	if (rc || !*done)
		return rc;
	c->tested++;
	lie(r, sizes, truth);
	return 0;
}

int shim_get_device_mr(void *comm, void *mhandle, void **dptr_mhandle)
{
	(void)mhandle, (void)dptr_mhandle;
	any_comm(comm, "getDeviceMr");
	return NCCL_INTERNAL_ERROR;
}

int shim_consumed(void *comm, int n, void *request)
{
	struct comm *c = working_comm(comm, RECV, "irecvConsumed");
	struct request *r = request;
	int rc = failure("irecvConsumed");

	if (!offloads(c))
		violation("irecvConsumed on a host device");
	if (c->consumed == c->tested)
		violation("irecvConsumed, but no completed receive is left");
	if (r != &c->ring[c->consumed % MAX_RING] || n != r->n)
		violation("irecvConsumed out of order, or with another n");
	c->consumed++;
	c->failed = rc;
	return rc;
}

void check_all_closed(void)
{
	for (unsigned int i = 0; i < ncomms; i++)
		if (!comms[i].closed)
			violation("comm %u of %u was never closed", i + 1,
				  ncomms);
}

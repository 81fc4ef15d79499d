// SPDX-License-Identifier: MIT
/*
 * net_shim.c —— 夹在调用者与教学插件之间的 NCCL net 插件：一面监督，一面使坏
 *
 * 契约不在函数表里，违反它的程序在“好脾气”的插件上照样能跑。这里把它变成检查，总是开着；
 * 调用者一旦违约，打印一行 "SHIM VIOLATION: …" 并 abort()：
 *	- connect/accept：同一次尝试用同一个 buffer，从原样的 handle 开始，成功后不再调用
 *	- v7/v8：device handle 的存储在，16 字节对齐，全零
 *	- regMr 的类型是 NCCL_PTR_HOST；收发的内存已注册；close 之前都已 deregMr
 *	- 在途至多 16 个 irecv、12 个 isend；只 test 最老的；done 之后不再 test
 *	- 失败过的 comm 只能 deregMr 和 close；不 close NULL、不 close 两次；卸载前全关
 *	- irecvConsumed：只在 unpack 时，每个完成的 receive 恰好一次，按次序
 *
 *	NET_SHIM_REAL=PATH    真正的插件
 *	NET_SHIM=WORD,…       怎样使坏：
 *	  slow        前 200 次 connect/accept 都说“还没好”，并在 handle 末尾计数
 *	  busy        每个 isend/irecv 先给三次 NULL request
 *	  sleepy      每个请求 test 50 次之后才有进展
 *	  lazy        isend/irecv 只登记，第一次 test 时才真的去做
 *	  late        init 之前，表里只有 name 与 init
 *	  devhandle   v7/v8 成功时写满 512 字节的 device handle
 *	  nosize, zerosize, shortsize   test 不写 sizes；发送方的是 0；接收方的少 1
 *	  nullmr      regMr 成功而 mhandle 是 NULL
 *	  unpack      v7/v8 自称 NCCL_NET_DEVICE_UNPACK
 *	  corrupt     收到的消息正中间错一个字节；lost  收到的字节不进 buffer
 *	  overrun     buffer 之后的一个字节被写；leap、early  之后第 64 个，之前第 64 个
 *	              （early 也写发送方的）
 *	  nolisten    listen 返回 0，而 comm 是 NULL
 *	  crash=CALL  在这个调用里踩到空指针；badlog  WARN 的参数与格式不符
 *	  hole=N      表里的第 N 项（v5 的次序，从 0 起）是 NULL
 *	  fail=CALL[:N]  第 N 次（默认 1）调用返回 2，或 rc=R 的 R；close 与 deregMr 先真的
 *	              做完，connect 按尝试计数
 *
 * 一次 irecv 只有一个 buffer：调用者只这样用。
 */
#include "net_shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_POLLS   200
#define BUSY_TRIES   3
#define SLEEPY_TESTS 50
#define MAX_COMMS    512
#define MAX_RING     64 /* 一个位置很久才重用，才认得出对旧请求的 test */
#define MAX_RECVS    16
#define MAX_SENDS    12
#define TAIL_AT	     120

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

int failure(const char *call)
{
	static volatile int *volatile nowhere;
	static int calls;
	const char *crash = asked("crash"), *fail = asked("fail");
	const char *rc = asked("rc");
	size_t len = strlen(call);
	int nth = 1;

	if (crash && !strcmp(crash, call))
		*nowhere = 1;
	if (!fail || strncmp(fail, call, len) || !strchr(":,", fail[len]))
		return 0;
	if (fail[len] == ':')
		nth = atoi(fail + len + 1);
	if (++calls != nth)
		return 0;
	return rc ? atoi(rc) : NCCL_SYSTEM_ERROR;
}

/* ---- 记账 ---------------------------------------------------------------- */

struct comm;

struct request {
	struct comm *comm;
	void *real;
	void *data;
	int size, tag;
	int tests;
	bool waiting; /* lazy：登记下来，等第一次 test */
};

enum kind {
	LISTEN,
	SEND,
	RECV
};

/* 从不释放、从不重用：对已关闭的 comm 的调用才认得出来。*/
struct comm {
	enum kind kind;
	bool newer; /* v7 起 */
	void *real;
	bool closed, failed;
	bool accepted;	    /* LISTEN：已成功 */
	int polls;	    /* LISTEN：accept 的次数 */
	unsigned int tries; /* busy：提交了多少次 */
	/* 注册的内存，一个 comm 一次；真插件给的，给调用者的 */
	char *data;
	size_t size;
	void *mhandle, *given;
	/* 第 consumed … tested … posted 个请求，编号不回绕。*/
	unsigned int posted, tested, consumed;
	struct request ring[MAX_RING];
};

static struct comm comms[MAX_COMMS];
static unsigned int ncomms;

static struct comm *new_comm(enum kind kind, bool newer, void *real_comm)
{
	struct comm *c = &comms[ncomms++];

	if (ncomms > MAX_COMMS)
		violation("the shim keeps only %d comms", MAX_COMMS);
	*c = (struct comm){ .kind = kind, .newer = newer, .real = real_comm };
	return c;
}

/* v5 与 v6 的 properties 里没有 netDeviceType。*/
static bool offloads(const struct comm *c)
{
	return c->newer && asked("unpack");
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

/* listen 写在 handle 末尾的：凭它认出一次尝试，也用它计数。*/
struct tail {
	uint32_t id;
	uint32_t polls; /* 0：原样 */
};

int shim_listen(int dev, void *handle, void **comm)
{
	static uint32_t count;
	struct tail t = { 0 };
	int rc = failure("listen");
	void *made = NULL;

	if (!rc && asked("nolisten"))
		return 0;
	if (!rc)
		rc = real->listen(dev, handle, &made);
	if (rc)
		return rc;
	t.id = (uint32_t)getpid() << 10 | (count++ & 1023);
	memcpy((char *)handle + TAIL_AT, &t, sizeof(t));
	*comm = new_comm(LISTEN, false, made);
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

/* 一次 connect 的尝试，以 handle 的 id 相认。*/
struct attempt {
	uint32_t id;
	const void *buffer;
	uint32_t polls;
	bool over;
};

static struct attempt *check_attempt(const struct tail *t, const void *handle)
{
	static struct attempt attempts[MAX_COMMS + 1];
	struct attempt *a = attempts;

	while (a->buffer && a->id != t->id)
		a++;
	if (a == &attempts[MAX_COMMS])
		violation("the shim keeps only %d attempts", MAX_COMMS);
	if (!t->id || (!a->buffer && t->polls))
		violation("connect began with a handle that is not pristine");
	if (a->over)
		violation("connect was called again after it succeeded");
	if (a->buffer && a->buffer != handle)
		violation("connect's handle buffer moved between polls");
	if (t->polls != a->polls)
		violation("connect's handle was not kept between polls");
	a->id = t->id;
	a->buffer = handle;
	return a;
}

int shim_connect(bool newer, int dev, void *handle, void **comm,
		 ncclNetDeviceHandle_t **dh)
{
	ncclNetDeviceHandle_t *none = NULL;
	struct attempt *a;
	struct tail t;
	void *made = NULL;
	int rc = 0;

	memcpy(&t, (char *)handle + TAIL_AT, sizeof(t));
	if (newer)
		check_storage(dh);
	a = check_attempt(&t, handle);
	t.polls = ++a->polls;
	memcpy((char *)handle + TAIL_AT, &t, sizeof(t));
	if (a->polls == 1)
		rc = failure("connect");
	if (!rc && (!asked("slow") || a->polls > SLOW_POLLS))
		rc = real->connect(dev, handle, &made, &none);
	a->over = rc || made;
	*comm = NULL;
	if (rc || !made)
		return rc;
	if (newer && asked("devhandle"))
		memset(*dh, 0x5a, NCCL_NET_DEV_HANDLE_SIZE);
	else if (newer)
		*dh = NULL; /* 教学插件就是这样 */
	*comm = new_comm(SEND, newer, made);
	return 0;
}

int shim_accept(bool newer, void *listen_comm, void **comm,
		ncclNetDeviceHandle_t **dh)
{
	struct comm *l = working_comm(listen_comm, LISTEN, "accept");
	ncclNetDeviceHandle_t *none = NULL;
	void *made = NULL;
	int rc = failure("accept");

	if (l->accepted)
		violation("accept was called again after it succeeded");
	if (newer)
		check_storage(dh);
	if (!rc && (!asked("slow") || ++l->polls > SLOW_POLLS))
		rc = real->accept(l->real, &made, &none);
	l->failed = rc;
	*comm = NULL;
	if (rc || !made)
		return rc;
	l->accepted = true;
	if (newer && asked("devhandle"))
		memset(*dh, 0x5a, NCCL_NET_DEV_HANDLE_SIZE);
	else if (newer)
		*dh = NULL; /* 教学插件就是这样 */
	*comm = new_comm(RECV, newer, made);
	return 0;
}

static int close_comm(void *p, enum kind kind, const char *call)
{
	struct comm *c = comm_of(p, kind, call);
	int rc = failure(call);
	int real_rc;

	if (c->data)
		violation("%s with registrations left", call);
	/* 中途放弃的，完成而未取走的就算了。*/
	if (kind == RECV && offloads(c) && c->posted == c->tested &&
	    !c->failed && c->consumed != c->tested)
		violation("%s before irecvConsumed of every receive", call);
	real_rc = kind == LISTEN ? real->closeListen(c->real)
		  : kind == SEND ? real->closeSend(c->real)
				 : real->closeRecv(c->real);
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
	int rc = failure("regMr");

	if (type != NCCL_PTR_HOST)
		violation("regMr of type %d", type);
	if (c->data)
		violation("the shim keeps only one registration");
	if (!rc)
		rc = real->regMr(c->real, data, size, type, &c->mhandle);
	if (rc)
		return rc;
	c->data = data;
	c->size = size;
	c->given = asked("nullmr") ? NULL : c->mhandle;
	*mhandle = c->given;
	return 0;
}

int shim_dereg_mr(void *comm, void *mhandle)
{
	struct comm *c = any_comm(comm, "deregMr");
	int rc = failure("deregMr"), real_rc;

	if (!c->data || mhandle != c->given)
		violation("deregMr of %p, which is not registered", mhandle);
	real_rc = real->deregMr(c->real, c->mhandle);
	c->data = NULL;
	return rc ? rc : real_rc;
}

/* ---- 收发 ---------------------------------------------------------------- */

/* buffer 必须整个落在注册的范围里。*/
static struct request *new_request(struct comm *c, void *data, int size,
				   int tag, const void *mhandle)
{
	struct request *r = &c->ring[c->posted % MAX_RING];
	char *from = data;

	if (!c->data || mhandle != c->given || from < c->data ||
	    from + size > c->data + c->size)
		violation("%d bytes at %p are not in registration %p", size,
			  data, mhandle);
	*r = (struct request){ .comm = c, .data = data, .size = size };
	r->tag = tag;
	return r;
}

/* 真的提交；真插件没有空位时，请求还在等。*/
static int submit(struct request *r)
{
	static char nowhere[1 << 16];
	void *data = r->data;
	int rc;

	if (r->comm->kind == RECV && asked("lost"))
		data = nowhere;
	rc = r->comm->kind == SEND
		     ? real->isend(r->comm->real, data, r->size, r->tag,
				   r->comm->mhandle, &r->real)
		     : real->irecv(r->comm->real, 1, &data, &r->size, &r->tag,
				   &r->comm->mhandle, &r->real);
	r->waiting = !rc && !r->real;
	return rc;
}

static int take_request(struct comm *c, struct request *r, void **request)
{
	int rc = failure(c->kind == SEND ? "isend" : "irecv");

	*request = NULL;
	if (!rc && asked("busy") && c->tries++ % (BUSY_TRIES + 1) < BUSY_TRIES)
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
	return take_request(c, new_request(c, data, size, tag, mhandle),
			    request);
}

int shim_irecv(void *comm, int n, void **data, int *sizes, int *tags,
	       void **mhandles, void **request)
{
	struct comm *c = working_comm(comm, RECV, "irecv");

	if (n != 1)
		violation("irecv of %d buffers", n);
	if (c->posted - c->tested >= MAX_RECVS)
		violation("more than %d receives are outstanding", MAX_RECVS);
	return take_request(c, new_request(c, *data, *sizes, *tags, *mhandles),
			    request);
}

/* 请求完成了，真的收发了 @truth 字节：按吩咐在内容与大小上撒谎。*/
static void lie(const struct request *r, int *size, int truth)
{
	bool recv = r->comm->kind == RECV;
	unsigned char *data = r->data;

	if (recv && asked("corrupt") && truth > 0)
		data[truth / 2] ^= 1;
	if (recv && asked("overrun"))
		data[r->size] ^= 1;
	if (recv && asked("leap"))
		data[r->size + 63] ^= 1;
	if (asked("early"))
		data[-64] ^= 1;
	if (!size || asked("nosize"))
		return;
	*size = truth - (recv && asked("shortsize"));
	if (!recv && asked("zerosize"))
		*size = 0;
}

int shim_test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	struct comm *c = r ? r->comm : NULL;
	int truth = 0, rc = failure("test");

	if (!c)
		violation("test of a NULL request");
	working_comm(c, c->kind, "test");
	if (c->posted == c->tested || r != &c->ring[c->tested % MAX_RING])
		violation("test of a request that is not the oldest "
			  "outstanding one");
	*done = 0;
	if (!rc && asked("sleepy") && r->tests++ < SLEEPY_TESTS)
		return 0;
	if (!rc && r->waiting)
		rc = submit(r);
	if (!rc && !r->waiting)
		rc = real->test(r->real, done, &truth);
	c->failed = rc;
	if (rc || !*done)
		return rc;
	c->tested++;
	lie(r, sizes, truth);
	return 0;
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
	if (r != &c->ring[c->consumed % MAX_RING] || n != 1)
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

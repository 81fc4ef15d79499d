// SPDX-License-Identifier: MIT
/*
 * ucx_driver.c - a UCX-Py endpoint in C that knows nothing of this project
 *
 *	ucx_driver client IP PORT [--size N] [--count N]
 *	ucx_driver server PORT [--clients N]
 *	both: [--timeout SECONDS] [--fault NAME]
 *
 * Written from the public UCX-Py source, on libucp and libcrypto alone: were it
 * to share a header with what it tests, both could be wrong alike and agree.
 *
 * The client sends COUNT objects of SIZE bytes (send_obj), takes each back
 * (recv_obj), compares every byte, and closes with a control message. (COUNT is
 * not 0: of a peer that closes at once, UCX may lose the stream data.) The
 * server says "listening on port P" (PORT 0: any), serves its clients at the
 * same time, as an asyncio program does, and ends after N of them.
 *
 * Exit codes: 0 all was right, 1 it was not, 2 wrong usage. With --fault, 0
 * means that the fault was committed and, where this side then stays silent
 * (wrong-checksum, short-info, no-info, huge-length), that the peer hung up in
 * time; what the peer made of it is for the peer's exit code to say. The count
 * of wrong-close-count is one too many, that of low-close-count one too few.
 */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#define CONNECT_MS 5000		       /* UCX-Py 的 connect_timeout */
#define MOST	   ((uint64_t)1 << 33) /* 肯为一个对象分配的字节数 */

#define FAULTS                                                             \
	" wrong-checksum short-info no-info huge-length die-after-length " \
	"die-after-info no-close wrong-close-count low-close-count "

struct driver {
	bool server;
	const char *fault;
	struct sockaddr_in address;
	uint64_t size, count, clients, accepted;
	int64_t limit_ms; /* 每一次等待 */
	ucp_context_h context;
	ucp_listener_h listener;
	_Atomic uint64_t active, failed, stuck;
};

/* UCX-Py 的 Endpoint 与用它的 coroutine；sent、finished 每个对象各算两条。*/
struct peer {
	struct driver *d;
	uint64_t number;
	ucp_worker_h worker;
	ucp_conn_request_h knock;
	ucp_ep_h ep;
	ucs_status_t status; /* error callback 说的；UCS_OK 即 is_alive() */
	int64_t limit_ms;
	void *control;		      /* control message 的接收 */
	uint64_t mine[3], theirs[3];  /* msg_tag ctrl_tag checksum */
	uint64_t order[2], notice[2]; /* 发出、收到的 control message */
	uint64_t sent, finished, close_after, echoed, length, size;
	uint8_t *data, *got;
	bool told, over, faulted, failed;
};

static const ucp_request_param_t plain;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void check(ucs_status_t status, const char *call)
{
	if (status == UCS_OK)
		return;
	fprintf(stderr, "error: %s: %s\n", call, ucs_status_string(status));
	exit(1);
}

/* 子串便算：三个以 close 命名的，都由这一侧先走。*/
static bool fault(const struct peer *p, const char *name)
{
	return p->d->fault && strstr(p->d->fault, name);
}

/* 总返回 false，失败的函数便可以 return fail(…)。*/
__attribute__((format(printf, 2, 3))) static bool fail(struct peer *p,
						       const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "error: peer %" PRIu64 ": %s\n", p->number, text);
	p->failed = true;
	return false;
}

/*
 * Python 里 tuple 的 repr 的 SHA-1；前 16 个十六进制数字就是前 8 个字节，高位在前。
 * UCX-Py 的 tag 也是它，但参数里有 16 个随机字节：对端看不出与随机数有何不同。
 */
static uint64_t hash64bits(const uint64_t args[2])
{
	uint8_t digest[SHA_DIGEST_LENGTH];
	char text[64];
	uint64_t hash = 0;
	int n = snprintf(text, sizeof(text), "(%" PRIu64 ", %" PRIu64 ")",
			 args[0], args[1]);

	SHA1((const uint8_t *)text, (size_t)n, digest);
	for (int i = 0; i < 8; i++)
		hash = hash << 8 | digest[i];
	return hash;
}

/*
 * n 比已收的少、opcode 不认识：UCX-Py 的异常落在 callback 里没有人接，endpoint 照
 * 旧开着，这里也只记下。n 更大则等第 n 条；正好相等就立刻关，在途的一律取消。
 */
static void heed_control(struct peer *p)
{
	ucp_tag_recv_info_t info = { 0 };
	ucs_status_t status;

	if (!UCS_PTR_IS_PTR(p->control) || p->told)
		return;
	status = ucp_tag_recv_request_test(p->control, &info);
	if (status == UCS_INPROGRESS)
		return;
	p->told = true;
	if (status != UCS_OK || info.length != sizeof(p->notice) ||
	    p->notice[0] != 1 || p->notice[1] < p->finished)
		fail(p,
		     "control message: %s, %zu bytes, opcode %" PRIu64
		     ", close after %" PRIu64 " when %" PRIu64 " had come",
		     ucs_status_string(status), info.length, p->notice[0],
		     p->notice[1], p->finished);
	else if (p->notice[1] == p->finished)
		p->over = true;
	else
		p->close_after = p->notice[1];
}

/* arm 说 BUSY 就是还有事件没处理，不许睡；睡到期限为止，返回期限到了没有。*/
static bool sleep_until(ucp_worker_h worker, int64_t deadline)
{
	struct pollfd event = { .events = POLLIN };
	int64_t left = deadline - now_ms();
	ucs_status_t status = ucp_worker_arm(worker);

	if (left <= 0 || status == UCS_ERR_BUSY)
		return left > 0;
	check(status, "ucp_worker_arm");
	check(ucp_worker_get_efd(worker, &event.fd), "ucp_worker_get_efd");
	poll(&event, 1, (int)left);
	return true;
}

/* 取消不掉的（rendezvous、stream）由 UCX 自己了结；缓冲区活得比 worker 久。*/
static void drop(struct peer *p, void *request)
{
	if (!UCS_PTR_IS_PTR(request))
		return;
	ucp_request_cancel(p->worker, request);
	ucp_request_free(request);
}

/* 进展到无可进展才看结果：error callback 之后还在队列里的消息，也要先收下。*/
static void progress(struct peer *p)
{
	while (ucp_worker_progress(p->worker))
		;
	heed_control(p);
}

/* UCX-Py 的 await。want 不为 0 则是 tag 接收，核对长度。*/
static bool await(struct peer *p, const char *what, void *request, size_t want)
{
	int64_t deadline = now_ms() + p->limit_ms;
	ucp_tag_recv_info_t info = { .length = want };
	ucs_status_t status;
	bool wait;

	do {
		progress(p);
		if (!UCS_PTR_IS_PTR(request))
			status = UCS_PTR_STATUS(request);
		else
			status =
				want ? ucp_tag_recv_request_test(request, &info)
				     : ucp_request_check_status(request);
		wait = !p->over && status == UCS_INPROGRESS &&
		       p->status == UCS_OK;
	} while (wait && sleep_until(p->worker, deadline));
	drop(p, request);
	if (p->over)
		return false;
	if (status == UCS_INPROGRESS)
		status = wait ? UCS_ERR_TIMED_OUT : p->status;
	if (status != UCS_OK)
		return fail(p, "%s: %s", what, ucs_status_string(status));
	if (info.length != want)
		return fail(p, "%s: %zu bytes, not %zu", what, info.length,
			    want);
	return true;
}

/* 沉默，等对端自己断开，以 control message 断开也好。*/
static bool silence(struct peer *p)
{
	int64_t deadline = now_ms() + p->d->limit_ms;

	p->faulted = true;
	do {
		progress(p);
		if (p->status != UCS_OK || p->told)
			return false;
	} while (sleep_until(p->worker, deadline));
	return fail(p, "the peer does not hang up");
}

/* flush 只说数据给了内核，而 UCX 见连接断开就不再读：等对端收下再死。*/
static bool die(struct peer *p)
{
	if (!await(p, "flushing", ucp_ep_flush_nbx(p->ep, &plain), 0))
		return false;
	usleep(200000);
	_exit(0);
}

static bool send_info(struct peer *p)
{
	size_t size = sizeof(p->mine) - fault(p, "short-info");

	if (fault(p, "no-info"))
		return silence(p);
	p->mine[2] = hash64bits(p->mine) ^ fault(p, "wrong-checksum");
	return await(p, "sending the peer info",
		     ucp_stream_send_nbx(p->ep, p->mine, size, &plain), 0) &&
	       ((!fault(p, "short-info") && !fault(p, "wrong-checksum")) ||
		silence(p));
}

/* WAITALL：stream 没有消息边界，不说就可能只拿到一段。*/
static bool recv_info(struct peer *p)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_STREAM_RECV_FLAG_WAITALL,
	};
	size_t length;

	return await(p, "receiving the peer info",
		     ucp_stream_recv_nbx(p->ep, p->theirs, sizeof(p->mine),
					 &length, &param),
		     0);
}

/* error callback 报过错的 endpoint 上不再发：UCX-Py 的 raise_on_error。*/
static bool tag_send(struct peer *p, const char *what, const void *data,
		     size_t size, uint64_t tag)
{
	if (p->status != UCS_OK)
		return fail(p, "%s: %s", what, ucs_status_string(p->status));
	return await(p, what, ucp_tag_send_nbx(p->ep, data, size, tag, &plain),
		     0);
}

/*
 * 掩码全 1：tag 要整个相等。NO_IMM_CMPL：总有 request，同 ucp_tag_recv_nb；立即完
 * 成时 UCX 1.13 并不填 recv_info.tag_info，长度便无从得知。
 */
static void *post_tag(struct peer *p, void *data, size_t size, uint64_t tag)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
	};

	return ucp_tag_recv_nbx(p->worker, data, size, tag, UINT64_MAX, &param);
}

/* Endpoint.recv：收完数一数；到了对端说的最后一条，就不再有下一步。*/
static bool recv_message(struct peer *p, const char *what, void *data,
			 size_t size)
{
	if (!await(p, what, post_tag(p, data, size, p->mine[0]), size))
		return false;
	p->over = ++p->finished >= p->close_after;
	return true;
}

/* Endpoint.send 在调用时就把 _send_count 加一，不等完成。*/
static bool send_obj(struct peer *p, const void *data)
{
	p->sent++;
	p->length = fault(p, "huge-length") ? UINT64_C(1) << 63 : p->size;
	if (!tag_send(p, "sending a length", &p->length, sizeof(p->length),
		      p->theirs[0]))
		return false;
	if (fault(p, "huge-length"))
		return silence(p);
	if (fault(p, "die-after-length"))
		return die(p);
	/* size 为 0 也发：recv_obj 总是收两条，空消息与没有消息不同。*/
	p->sent++;
	return tag_send(p, "sending a payload", data, p->size, p->theirs[0]);
}

/* Python 会为 2^63 抛 OverflowError；这里上限低一些，malloc 才不会骗人。*/
static bool recv_obj(struct peer *p)
{
	if (!recv_message(p, "receiving a length", &p->length,
			  sizeof(p->length)) ||
	    p->over)
		return false;
	if (p->length > MOST || (!p->d->server && p->length != p->size))
		return fail(p, "object %" PRIu64 " comes as %" PRIu64 " bytes",
			    p->echoed, p->length);
	free(p->got);
	p->size = p->length;
	p->got = calloc(1, p->size + !p->size);
	if (!p->got)
		return fail(p, "no memory for %" PRIu64 " bytes", p->size);
	return recv_message(p, "receiving a payload", p->got, p->size);
}

/* 每个对象的内容都不同，且没有为 0 的字节：没被写到的字节必然不对。*/
static void fill(struct peer *p)
{
	uint64_t x = p->mine[0] + p->echoed * 0x9e3779b97f4a7c15;

	for (uint64_t i = 0; i < p->size; i++) {
		x = (x ^ i) * 0xd1342543de82ef95 + 1;
		p->data[i] = (uint8_t)(x >> 56 | 1);
	}
}

/*
 * listener 先发后收，连接方先收后发。checksum 在收发都完成之后才核对：对端的错了，
 * 己方的也已发出。然后挂 control message 的接收：只挂一次，一生只理会一条。
 */
static bool exchange_peer_info(struct peer *p)
{
	if (p->d->server ? !send_info(p) || !recv_info(p)
			 : !recv_info(p) || !send_info(p))
		return false;
	if (p->theirs[2] != hash64bits(p->theirs))
		return fail(p, "checksum invalid: %#" PRIx64 " != %#" PRIx64,
			    hash64bits(p->theirs), p->theirs[2]);
	p->control = post_tag(p, p->notice, sizeof(p->notice), p->mine[1]);
	p->limit_ms = p->d->limit_ms;
	return !fault(p, "die-after-info") || die(p);
}

/* 由服务端先走的故障里，它只服务一个对象；平时由对端关闭。*/
static bool serve(struct peer *p)
{
	do {
		if (!recv_obj(p) || p->over)
			return false;
		p->echoed++;
		if (!send_obj(p, p->got))
			return false;
	} while (!fault(p, "close"));
	return true;
}

static bool ask(struct peer *p)
{
	uint64_t at;

	p->size = p->d->size;
	p->data = malloc(p->size + !p->size);
	if (!p->data)
		return fail(p, "no memory for %" PRIu64 " bytes", p->size);
	while (p->echoed < p->d->count && !p->over) {
		fill(p);
		if (!send_obj(p, p->data) || !recv_obj(p))
			return false;
		for (at = 0; at < p->size && p->got[at] == p->data[at]; at++)
			;
		if (at < p->size)
			return fail(p, "object %" PRIu64 " differs at %" PRIu64,
				    p->echoed, at);
		p->echoed++;
	}
	return !p->over;
}

/* Endpoint.close 的前半：等 control message 发完，不是等对端收到。*/
static bool farewell(struct peer *p)
{
	if (fault(p, "no-close"))
		return die(p);
	p->order[0] = 1; /* 唯一的 opcode */
	p->order[1] = p->sent + fault(p, "wrong-close-count") -
		      fault(p, "low-close-count");
	p->faulted |= fault(p, "close");
	return tag_send(p, "sending the control message", p->order,
			sizeof(p->order), p->theirs[1]);
}

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct peer *p = arg;

	(void)ep;
	p->status = status;
}

/* UCX-Py 的默认 endpoint_error_handling=True：MODE_PEER。*/
static bool open_endpoint(struct peer *p)
{
	size_t tags = sizeof(p->mine) - sizeof(*p->mine);
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER |
			      (p->d->server ? UCP_EP_PARAM_FIELD_CONN_REQUEST
					    : UCP_EP_PARAM_FIELD_SOCK_ADDR),
		.flags = p->d->server ? UCP_EP_PARAMS_FLAGS_NO_LOOPBACK
				      : UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { on_error, p },
		.conn_request = p->knock,
		.sockaddr = { (void *)&p->d->address, sizeof(p->d->address) },
	};
	ucs_status_t status;

	if (getrandom(p->mine, tags, 0) != (ssize_t)tags)
		return fail(p, "getrandom: too few bytes");
	status = ucp_ep_create(p->worker, &params, &p->ep);
	if (status == UCS_OK)
		return true;
	p->ep = NULL;
	return fail(p, "ucp_ep_create: %s", ucs_status_string(status));
}

/*
 * Endpoint.abort：先取消在途的（总有 control message 的接收），再关。FLUSH 等己方的
 * 数据都出去、对端也断开；endpoint 已坏就只能 FORCE，否则等的是一个永不来的回音。
 * 关闭的结果不看：对端抢先断开也会让它不是 UCS_OK。
 */
static bool close_endpoint(struct peer *p)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = p->status == UCS_OK ? 0 : UCP_EP_CLOSE_FLAG_FORCE,
	};
	int64_t deadline = now_ms() + p->limit_ms;
	void *request;

	drop(p, p->control);
	request = p->ep ? ucp_ep_close_nbx(p->ep, &param) : NULL;
	if (UCS_PTR_IS_ERR(request))
		fail(p, "ucp_ep_close_nbx: error %d",
		     UCS_PTR_RAW_STATUS(request));
	if (!UCS_PTR_IS_PTR(request))
		return true;
	do
		while (ucp_worker_progress(p->worker))
			;
	while (ucp_request_check_status(request) == UCS_INPROGRESS &&
	       sleep_until(p->worker, deadline));
	if (ucp_request_check_status(request) == UCS_INPROGRESS)
		return fail(p, "closing: timed out");
	ucp_request_free(request);
	return true;
}

/* UCX-Py 只有一个 worker；一个线程一个 worker，对端看不出来。*/
static ucp_worker_h open_worker(struct driver *d)
{
	ucp_worker_h worker;

	check(ucp_worker_create(d->context, &(ucp_worker_params_t){ 0 },
				&worker),
	      "ucp_worker_create");
	return worker;
}

/*
 * 握手的每一步各有 5 秒，其余每一步由 --timeout 管。对端要求的关闭，若长度已到而
 * 内容没来，或客户端还没问完，就不算有序。
 */
static void *live(void *arg)
{
	struct peer *p = arg;
	struct driver *d = p->d;
	bool closed;

	p->worker = open_worker(d);
	p->limit_ms = d->limit_ms < CONNECT_MS ? d->limit_ms : CONNECT_MS;
	if (open_endpoint(p) && exchange_peer_info(p) &&
	    (d->server ? serve(p) : ask(p)))
		farewell(p);
	closed = close_endpoint(p);
	if (p->over && (p->finished % 2 || p->echoed < d->count))
		fail(p, "closed by the peer after %" PRIu64 " messages",
		     p->finished);
	if (d->fault && !p->faulted)
		fail(p, "--fault %s was never due", d->fault);
	if (!p->failed)
		printf("peer %" PRIu64 ": closed after %" PRIu64 " objects\n",
		       p->number, p->echoed);
	d->failed += p->failed;
	d->stuck += !closed;
	if (closed) {
		ucp_worker_destroy(p->worker);
		free(p->data);
		free(p->got);
		free(p);
	}
	d->active--;
	return NULL;
}

/* 在 ucp_worker_progress 之内被调用，所以 endpoint 由线程去建。*/
static void on_knock(ucp_conn_request_h knock, void *arg)
{
	struct driver *d = arg;
	pthread_t thread;
	struct peer *p;

	if (d->accepted == d->clients) {
		ucp_listener_reject(d->listener, knock);
		return;
	}
	p = calloc(1, sizeof(*p));
	check(p ? UCS_OK : UCS_ERR_NO_MEMORY, "calloc");
	p->d = d;
	p->knock = knock;
	p->number = ++d->accepted;
	p->close_after = UINT64_MAX;
	d->active++;
	if (!d->server)
		live(p);
	else if (pthread_create(&thread, NULL, live, p) ||
		 pthread_detach(thread))
		check(UCS_ERR_NO_RESOURCE, "pthread_create");
}

/* 期限从没有客户的时候算起：有人在线，就不算白等。*/
static void run_server(struct driver *d)
{
	const ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { (void *)&d->address, sizeof(d->address) },
		.conn_handler = { on_knock, d },
	};
	ucp_listener_attr_t attr = {
		.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR,
	};
	ucp_worker_h worker = open_worker(d);
	int64_t until = now_ms() + d->limit_ms;

	check(ucp_listener_create(worker, &params, &d->listener),
	      "ucp_listener_create");
	check(ucp_listener_query(d->listener, &attr), "ucp_listener_query");
	memcpy(&d->address, &attr.sockaddr, sizeof(d->address));
	printf("listening on port %d\n", ntohs(d->address.sin_port));
	fflush(stdout);
	while (d->active || (d->accepted < d->clients && now_ms() < until)) {
		while (ucp_worker_progress(worker))
			;
		if (d->active)
			until = now_ms() + d->limit_ms;
		sleep_until(worker, now_ms() + 20);
	}
	if (d->accepted < d->clients)
		check(UCS_ERR_TIMED_OUT, "waiting for a client");
	ucp_listener_destroy(d->listener);
	ucp_worker_destroy(worker);
}

/*
 * ucp/__init__.py 设的环境变量（已有的不动）。RNDV_THRESH：8192 字节起就是
 * rendezvous；MAX_RNDV_RAILS 两端不同则可能接不通。feature 决定 wire-up 交换哪些
 * lane：用不到的 AM、RMA 也要，因为 UCX-Py 要。
 */
static void open_context(struct driver *d)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES |
			      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP |
			    UCP_FEATURE_STREAM | UCP_FEATURE_AM |
			    UCP_FEATURE_RMA,
		.mt_workers_shared = 1,
	};
	ucp_config_t *config;

	setenv("UCX_RNDV_THRESH", "8192", 0);
	setenv("UCX_RNDV_FRAG_MEM_TYPE", "cuda", 0);
	setenv("UCX_MAX_RNDV_RAILS", "1", 0);
	setenv("UCX_PROTO_ENABLE", "n", 0);
	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	check(ucp_init(&params, config, &d->context), "ucp_init");
	ucp_config_release(config);
}

static _Noreturn void usage(void)
{
	fputs("usage: ucx_driver client IP PORT [--size N] [--count N]\n"
	      "       ucx_driver server PORT [--clients N]\n"
	      "       both: [--timeout SECONDS] [--fault NAME]\n"
	      "faults:" FAULTS "\n",
	      stderr);
	exit(2);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value < least || value > most)
		usage();
	return value;
}

static void parse(struct driver *d, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "size", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'c' },
		{ "clients", required_argument, NULL, 'n' },
		{ "timeout", required_argument, NULL, 't' },
		{ "fault", required_argument, NULL, 'f' },
		{ 0 },
	};
	char word[32];
	int option;

	d->server = argc > 1 && !strcmp(argv[1], "server");
	d->count = !d->server;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (strchr(d->server ? "?sc" : "?n", option) ||
		    strchr(optarg, ' '))
			usage();
		if (option == 's')
			d->size = number(optarg, 0, MOST);
		else if (option == 'c')
			d->count = number(optarg, 1, UINT32_MAX);
		else if (option == 'n')
			d->clients = number(optarg, 1, UINT32_MAX);
		else if (option == 't')
			d->limit_ms = 1000 * (int64_t)number(optarg, 1, 3600);
		else
			d->fault = optarg;
	}
	snprintf(word, sizeof(word), " %s ", d->fault ? d->fault : "no-info");
	argv += optind;
	if (!strstr(FAULTS, word) || argc - optind != (d->server ? 2 : 3) ||
	    (!d->server &&
	     (strcmp(argv[0], "client") ||
	      inet_pton(AF_INET, argv[1], &d->address.sin_addr) != 1)))
		usage();
	d->address.sin_family = AF_INET;
	d->address.sin_port = htons(
		(uint16_t)number(argv[2 - d->server], !d->server, UINT16_MAX));
}

int main(int argc, char *argv[])
{
	static struct driver d = { .size = 12, .clients = 1 };

	d.limit_ms = 10000;
	parse(&d, argc, argv);
	if (hash64bits((uint64_t[]){ 1, 2 }) != 0x90cdbfffd8597bef)
		check(UCS_ERR_INVALID_PARAM, "hash64bits(1, 2)");
	open_context(&d);
	if (d.server)
		run_server(&d);
	else
		on_knock(NULL, &d);
	if (d.stuck) /* 没关成的 endpoint 不许销毁，UCX 会 abort */
		_exit(1);
	ucp_cleanup(d.context);
	return d.failed != 0;
}

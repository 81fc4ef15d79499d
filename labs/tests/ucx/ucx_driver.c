// SPDX-License-Identifier: MIT
/*
 * ucx_driver.c - a UCX-Py endpoint in C that knows nothing of this project
 *
 *	ucx_driver client IP PORT SIZE COUNT
 *	ucx_driver server PORT CLIENTS
 *
 * Written from the public UCX-Py source, on libucp and libcrypto alone: were it
 * to share a header with what it tests, both could be wrong alike and agree.
 *
 * The client sends COUNT objects of SIZE bytes (send_obj), takes each back
 * (recv_obj), compares every byte, and closes with a control message. (COUNT is
 * not 0: of a peer that closes at once, UCX may lose the stream data.) The
 * server serves one client after the other, and ends after so many.
 *
 * Exit codes: 0 all was right, 1 it was not, 2 wrong usage.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <poll.h>
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

#define LIMIT_MS 10000 /* 其余每一次等待 */

struct driver {
	bool server;
	struct sockaddr_in address;
	uint64_t size, count, clients;
	ucp_context_h context;
	ucp_worker_h worker; /* UCX-Py 只有一个 */
	ucp_listener_h listener;
	ucp_conn_request_h knock; /* 敲了门、还没轮到的 */
};

/* UCX-Py 的 Endpoint 与用它的 coroutine；sent、finished 每个对象各算两条。*/
struct peer {
	struct driver *d;
	ucp_worker_h worker;
	ucp_ep_h ep;
	ucs_status_t status; /* error callback 说的；UCS_OK 即 is_alive() */
	int64_t limit_ms;
	void *control;		      /* control message 的接收 */
	uint64_t mine[3], theirs[3];  /* msg_tag ctrl_tag checksum */
	uint64_t order[2], notice[2]; /* 发出、收到的 control message */
	uint64_t sent, finished, close_after, echoed, length, size;
	uint8_t *data, *got;
	bool told, over;
};

static const ucp_request_param_t plain;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static _Noreturn void fail(const char *what, const char *why)
{
	fprintf(stderr, "error: %s: %s\n", what, why);
	_exit(1);
}

static void check(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		fail(what, ucs_status_string(status));
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

/* n 更大则等第 n 条；正好相等就立刻关，在途的一律取消。*/
static void heed_control(struct peer *p)
{
	ucp_tag_recv_info_t info = { 0 };
	ucs_status_t status;

	if (!UCS_PTR_IS_PTR(p->control) || p->told)
		return;
	status = ucp_tag_recv_request_test(p->control, &info);
	if (status == UCS_INPROGRESS)
		return;
	check(status, "the control message");
	if (info.length != sizeof(p->notice) || p->notice[0] != 1 ||
	    p->notice[1] < p->finished)
		fail("the control message", "it cannot be");
	p->told = true;
	p->close_after = p->notice[1];
	p->over = p->notice[1] == p->finished;
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

/* UCX-Py 的 await。want 不为 0 则是 tag 接收，核对长度。false：对端要关了。*/
static bool await(struct peer *p, const char *what, void *request, size_t want)
{
	int64_t deadline = now_ms() + p->limit_ms;
	ucp_tag_recv_info_t info = { .length = want };
	ucs_status_t status;

	for (;;) {
		progress(p);
		if (!UCS_PTR_IS_PTR(request))
			status = UCS_PTR_STATUS(request);
		else if (want)
			status = ucp_tag_recv_request_test(request, &info);
		else
			status = ucp_request_check_status(request);
		if (p->over || status != UCS_INPROGRESS)
			break;
		check(p->status, what);
		if (!sleep_until(p->worker, deadline))
			fail(what, "too late");
	}
	drop(p, request);
	if (p->over)
		return false;
	check(status, what);
	if (info.length != want)
		fail(what, "the length is wrong");
	return true;
}

static bool send_info(struct peer *p)
{
	p->mine[2] = hash64bits(p->mine);
	return await(p, "sending the peer info",
		     ucp_stream_send_nbx(p->ep, p->mine, sizeof(p->mine),
					 &plain),
		     0);
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
	check(p->status, what);
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
	p->length = p->size;
	if (!tag_send(p, "sending a length", &p->length, sizeof(p->length),
		      p->theirs[0]))
		return false;
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
		fail("an object", "its size is wrong");
	free(p->got);
	p->size = p->length;
	p->got = calloc(1, p->size + !p->size);
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
		fail("the peer info", "checksum invalid");
	p->control = post_tag(p, p->notice, sizeof(p->notice), p->mine[1]);
	p->limit_ms = LIMIT_MS;
	return true;
}

/* 由对端关闭。*/
static void serve(struct peer *p)
{
	while (recv_obj(p) && !p->over) {
		p->echoed++;
		if (!send_obj(p, p->got))
			return;
	}
}

static void ask(struct peer *p)
{
	p->size = p->d->size;
	p->data = malloc(p->size + !p->size);
	while (p->echoed < p->d->count) {
		fill(p);
		if (!send_obj(p, p->data) || !recv_obj(p) || p->over)
			return;
		if (memcmp(p->got, p->data, p->size))
			fail("an object", "its bytes are wrong");
		p->echoed++;
	}
}

/* Endpoint.close 的前半：等 control message 发完，不是等对端收到。*/
static bool farewell(struct peer *p)
{
	p->order[0] = 1; /* 唯一的 opcode */
	p->order[1] = p->sent;
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
static void open_endpoint(struct peer *p)
{
	struct driver *d = p->d;
	size_t tags = sizeof(p->mine) - sizeof(*p->mine);
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER |
			      (d->server ? UCP_EP_PARAM_FIELD_CONN_REQUEST
					 : UCP_EP_PARAM_FIELD_SOCK_ADDR),
		.flags = d->server ? UCP_EP_PARAMS_FLAGS_NO_LOOPBACK
				   : UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { on_error, p },
		.conn_request = d->knock,
		.sockaddr = { (void *)&d->address, sizeof(d->address) },
	};

	d->knock = NULL;
	if (getrandom(p->mine, tags, 0) != (ssize_t)tags)
		fail("getrandom", "too few bytes");
	check(ucp_ep_create(p->worker, &params, &p->ep), "ucp_ep_create");
}

/*
 * Endpoint.abort：先取消在途的（总有 control message 的接收），再关。FLUSH 等己方的
 * 数据都出去、对端也断开；endpoint 已坏就只能 FORCE，否则等的是一个永不来的回音。
 * 关闭的结果不看：对端抢先断开也会让它不是 UCS_OK。
 */
static void close_endpoint(struct peer *p)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = p->status == UCS_OK ? 0 : UCP_EP_CLOSE_FLAG_FORCE,
	};
	int64_t deadline = now_ms() + p->limit_ms;
	void *request;

	drop(p, p->control);
	request = ucp_ep_close_nbx(p->ep, &param);
	if (!UCS_PTR_IS_PTR(request)) {
		check(UCS_PTR_STATUS(request), "ucp_ep_close_nbx");
		return;
	}
	do
		while (ucp_worker_progress(p->worker))
			;
	while (ucp_request_check_status(request) == UCS_INPROGRESS &&
	       sleep_until(p->worker, deadline));
	if (ucp_request_check_status(request) == UCS_INPROGRESS)
		fail("closing", "too late");
	ucp_request_free(request);
}

/* 握手的每一步各有 5 秒。若长度已到而内容没来，或客户端还没问完，就不算有序的关闭。*/
static void live(struct driver *d)
{
	struct peer p = {
		.d = d,
		.worker = d->worker,
		.limit_ms = CONNECT_MS,
		.close_after = UINT64_MAX,
	};

	open_endpoint(&p);
	exchange_peer_info(&p);
	if (d->server)
		serve(&p);
	else
		ask(&p);
	if (!p.over)
		farewell(&p);
	close_endpoint(&p);
	if (p.finished % 2 || p.echoed < d->count)
		fail("the end", "the peer has closed too early");
	free(p.data);
	free(p.got);
}

/* 在 ucp_worker_progress 之内被调用，所以 endpoint 由主循环去建。*/
static void on_knock(ucp_conn_request_h knock, void *arg)
{
	struct driver *d = arg;

	if (d->knock)
		ucp_listener_reject(d->listener, knock);
	else
		d->knock = knock;
}

static void run_server(struct driver *d)
{
	const ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { (void *)&d->address, sizeof(d->address) },
		.conn_handler = { on_knock, d },
	};

	check(ucp_listener_create(d->worker, &params, &d->listener),
	      "ucp_listener_create");
	for (uint64_t i = 0; i < d->clients; i++) {
		int64_t until = now_ms() + LIMIT_MS;

		while (ucp_worker_progress(d->worker) ||
		       (!d->knock && sleep_until(d->worker, until)))
			;
		if (!d->knock)
			check(UCS_ERR_TIMED_OUT, "waiting for a client");
		live(d);
	}
	ucp_listener_destroy(d->listener);
}

/*
 * ucp/__init__.py 设的环境变量（已有的不动）。RNDV_THRESH：8192 字节起就是
 * rendezvous；MAX_RNDV_RAILS 两端不同则可能接不通。feature 决定 wire-up 交换哪些
 * lane：用不到的 AM、RMA 也要，因为 UCX-Py 要。
 */
static void open_context(struct driver *d)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP |
			    UCP_FEATURE_STREAM | UCP_FEATURE_AM |
			    UCP_FEATURE_RMA,
	};
	ucp_config_t *config;

	setenv("UCX_RNDV_THRESH", "8192", 0);
	setenv("UCX_RNDV_FRAG_MEM_TYPE", "cuda", 0);
	setenv("UCX_MAX_RNDV_RAILS", "1", 0);
	setenv("UCX_PROTO_ENABLE", "n", 0);
	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	check(ucp_init(&params, config, &d->context), "ucp_init");
	ucp_config_release(config);
	check(ucp_worker_create(d->context, &(ucp_worker_params_t){ 0 },
				&d->worker),
	      "ucp_worker_create");
}

int main(int argc, char *argv[])
{
	static struct driver d = { .address.sin_family = AF_INET };

	if (hash64bits((uint64_t[]){ 1, 2 }) != 0x90cdbfffd8597bef)
		check(UCS_ERR_INVALID_PARAM, "hash64bits(1, 2)");
	open_context(&d);
	if (argc == 4 && !strcmp(argv[1], "server")) {
		d.server = true;
		d.address.sin_port = htons((uint16_t)atoi(argv[2]));
		d.clients = strtoull(argv[3], NULL, 10);
		run_server(&d);
	} else if (argc == 6 && !strcmp(argv[1], "client")) {
		inet_pton(AF_INET, argv[2], &d.address.sin_addr);
		d.address.sin_port = htons((uint16_t)atoi(argv[3]));
		d.size = strtoull(argv[4], NULL, 10);
		d.count = strtoull(argv[5], NULL, 10);
		live(&d);
	} else {
		return 2;
	}
	ucp_worker_destroy(d.worker);
	ucp_cleanup(d.context);
	return 0;
}

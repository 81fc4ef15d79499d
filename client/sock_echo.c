// SPDX-License-Identifier: MIT
/*
 * sock_echo.c —— 与 ucx_echo 同样的对话，走普通的 TCP socket
 *
 * 与 common/ucx/endpoint.c、ucx_echo.c 并排读：函数同名，次序相同。
 *
 *	            UCX                            socket
 *	一端是什么   ucp_ep + 两对 tag               一个 fd
 *	对端是谁     要交换 24 字节 peer info        内核记着
 *	消息边界     有（tag message）               没有（字节流），要自己数
 *	谁推动数据   ucp_worker_progress()           内核
 *	怎样等       arm + worker 的 event fd        poll 那个 fd
 *	怎样关闭     控制消息，再关 endpoint          关 fd，对端读到 EOF
 *
 * 内核替每个 socket 收发，所以一个 client 一个线程就好，不必有一个谁都离不开的循环。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "base/room.h"
#include "base/sock.h"
#include "echo.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define IDLE_MS	     (300 * 1000) /* 等 client 的下一个对象 */
#define TIMEOUT_MS   (10 * 1000)  /* 其余每一次等待 */
#define BYTES_PER_MS 8192	  /* 再慢的网络也该有每秒 8 MiB */
#define BUSY_POLLS   256	  /* 这么多次才看一次钟和信号 */
#define STACK_SIZE   (256u << 10)

struct endpoint {
	const struct echo_options *opt;
	int sock;
	char peer[64];	    /* "127.0.0.1:4711" */
	uint64_t length;    /* 长度消息 */
	struct room object; /* recv_obj() 最近收到的 */
};

static int64_t deadline_for(const struct endpoint *ep, uint64_t size)
{
	return deadline_in_ms(echo_timeout(ep->opt, TIMEOUT_MS) +
			      (int64_t)(size / BYTES_PER_MS));
}

/* ---- listen ------------------------------------------------------------- */

// region listen
static int create_listener(uint16_t port)
{
	return tcp_listen(port);
}
// endregion listen

static void name_peer(struct endpoint *ep)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	char host[48], port[8];

	snprintf(ep->peer, sizeof(ep->peer), "a client");
	if (!getpeername(ep->sock, (struct sockaddr *)&addr, &len) &&
	    !getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host),
			 port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(ep->peer, sizeof(ep->peer), "%s:%s", host, port);
}

static int accept_endpoint(struct endpoint *ep, int listen_sock)
{
	ep->sock = tcp_accept(listen_sock, INT64_MAX);
	if (ep->sock < 0)
		return ep->sock;
	name_peer(ep);
	return 0;
}

static int connect_endpoint(struct endpoint *ep)
{
	const struct echo_options *opt = ep->opt;

	snprintf(ep->peer, sizeof(ep->peer), "%s:%u", opt->address, opt->port);
	ep->sock = tcp_connect(opt->address, opt->port, deadline_for(ep, 0));
	return ep->sock < 0 ? ep->sock : 0;
}

// region create-endpoint
static int create_endpoint(struct endpoint *ep)
{
	/*
	 * 没有那三步：1 不必造 tag，2 不必交换，3 也就没有什么可用的。内核用
	 * （源地址、源端口、目的地址、目的端口）认出每个字节属于哪条连接。
	 */
	return ep->sock < 0 ? -ENOTCONN : 0;
}
// endregion create-endpoint

// region progress
/*
 * 等到有数据可读。数据由内核收，我们睡着的时候也在收；这里只是等它说一声，没有什么
 * 要我们推动的。
 */
static int progress(struct endpoint *ep, int64_t deadline)
{
	char byte;

	if (!ep->opt->busy)
		return wait_fd(ep->sock, POLLIN, deadline);
	for (;;) {
		for (int i = 0; i < BUSY_POLLS; i++)
			if (recv(ep->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >=
				    0 ||
			    (errno != EAGAIN && errno != EWOULDBLOCK))
				return 0;
		if (stop_requested())
			return -EINTR;
		if (deadline_passed(deadline))
			return -ETIMEDOUT;
	}
}
// endregion progress

/* ---- objects ------------------------------------------------------------ */

/* 报告里要说清是哪个对端。*/
static const char *name_for_report(const struct endpoint *ep, const char *what,
				   char text[96])
{
	snprintf(text, 96, "%s (%s)", what, ep->peer);
	return text;
}

static int write_message(struct endpoint *ep, const void *data, uint64_t size,
			 const char *what)
{
	char text[96];

	return sock_write_exact(ep->sock, data, size, deadline_for(ep, size),
				name_for_report(ep, what, text));
}

static int read_message(struct endpoint *ep, void *data, uint64_t size,
			const char *what)
{
	int64_t deadline = deadline_for(ep, size);
	char text[96];

	if (ep->opt->busy && size)
		progress(ep, deadline);
	return sock_read_exact(ep->sock, data, size, deadline,
			       name_for_report(ep, what, text));
}

// region send-obj
static int send_obj(struct endpoint *ep, const void *data, uint64_t size)
{
	int rc;

	/* 字节流没有边界：不先说长度，对端就不知道这个对象到哪里为止。*/
	ep->length = size;
	rc = write_message(ep, &ep->length, sizeof(ep->length), "length");
	return rc ? rc : write_message(ep, data, size, "object");
}
// endregion send-obj

/* 0：有字节了。-ESHUTDOWN：对端在两个对象之间关闭了连接，这是有序的结束。*/
static int await_object(struct endpoint *ep)
{
	const bool idle = ep->opt->server;
	int rc = progress(ep, deadline_in_ms(echo_timeout(
				      ep->opt, idle ? IDLE_MS : TIMEOUT_MS)));
	char byte;
	ssize_t n;

	if (rc == -EINTR && stop_is_expected())
		return rc;
	if (rc)
		return fail(rc,
			    "is the peer running, and not stopped? --timeout "
			    "SECS waits longer",
			    "%s: waiting for an object: %s", ep->peer,
			    rc == -ETIMEDOUT
				    ? "nothing came before the deadline"
			    : rc == -EINTR ? "stopped by a signal"
					   : strerror(-rc));
	n = recv(ep->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (!idle || n > 0)
		return 0; /* client 在等回声：EOF 对它来说是错误 */
	if (n < 0)
		report_warning("see the peer's own messages",
			       "%s: it is gone, the connection was reset",
			       ep->peer);
	return -ESHUTDOWN;
}

static int recv_obj(struct endpoint *ep, void **data, uint64_t *size)
{
	int rc = await_object(ep);

	if (!rc)
		rc = read_message(ep, &ep->length, sizeof(ep->length),
				  "length");
	if (!rc)
		rc = room_for(&ep->object, ep->length, ep->opt->limit,
			      ep->peer);
	if (!rc)
		rc = read_message(ep, ep->object.data, ep->length, "object");
	if (rc)
		return rc;
	*data = ep->object.data;
	*size = ep->length;
	return 0;
}

static void close_endpoint(struct endpoint *ep)
{
	/* 没有控制消息：关掉 fd，对端读完所有字节之后读到 EOF，次序由 TCP 保证。*/
	sock_close(&ep->sock);
	room_free(&ep->object);
}

/* ---- server ------------------------------------------------------------- */

struct server {
	const struct echo_options *opt;
	pthread_mutex_t lock; /* 每个 client 一个线程：以下各项要持锁 */
	pthread_cond_t ended;
	unsigned int threads;
	struct echo_outcome out;
};

struct client {
	struct server *server;
	struct endpoint ep;
};

static int pong(struct endpoint *ep, const struct echo_bench *bench)
{
	char *buffer = malloc(bench->size + 1);
	int rc = buffer ? 0 : -ENOMEM;

	for (uint64_t i = 0; i < bench->rounds && !rc; i++) {
		rc = read_message(ep, buffer, bench->size, "ping");
		if (!rc)
			rc = write_message(ep, buffer, bench->size, "pong");
	}
	free(buffer);
	return rc;
}

static int run_bench(struct endpoint *ep, struct echo_bench bench)
{
	int rc = send_obj(ep, &bench, sizeof(bench));

	return rc ? rc : pong(ep, &bench);
}

static void count(struct server *s, const void *obj, uint64_t size)
{
	pthread_mutex_lock(&s->lock);
	echo_count(&s->out, obj, size);
	pthread_mutex_unlock(&s->lock);
}

// region echo-server
static int echo_server(struct server *s, struct endpoint *ep)
{
	uint64_t size;
	void *obj;
	int rc;

	for (;;) {
		rc = recv_obj(ep, &obj, &size);
		if (rc)
			return rc;
		if (echo_bench_asked(obj, size, s->opt->limit))
			rc = run_bench(ep, *(const struct echo_bench *)obj);
		else
			rc = send_obj(ep, obj, size);
		if (rc)
			return rc;
		count(s, obj, size);
	}
}
// endregion echo-server

static void *serve(void *arg)
{
	struct client *client = arg;
	struct server *s = client->server;
	struct endpoint *ep = &client->ep;
	int rc = create_endpoint(ep);

	if (!rc) {
		report_fact("%s: connected", ep->peer);
		rc = echo_server(s, ep);
	}
	if (rc == -ESHUTDOWN)
		report_fact("%s: closed", ep->peer);
	close_endpoint(ep);
	free(client); /* 先于 signal：main 等到的是“什么都还了” */
	pthread_mutex_lock(&s->lock);
	s->out.clients++;
	s->out.failed += rc && rc != -ESHUTDOWN && rc != -EINTR;
	s->threads--;
	pthread_cond_signal(&s->ended);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static int start_thread(struct server *s, struct client *client)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_mutex_lock(&s->lock);
	err = s->threads < ECHO_MAX_CLIENTS
		      ? pthread_create(&thread, &attr, serve, client)
		      : EAGAIN;
	if (!err)
		s->threads++;
	pthread_mutex_unlock(&s->lock);
	pthread_attr_destroy(&attr);
	if (err)
		report_error("serve fewer clients at once",
			     "%s: pthread_create(): %s", client->ep.peer,
			     strerror(err));
	return -err;
}

/* 一个 client 出了岔子，与别人无关：报告过了，接着等下一个。*/
static int serve_one(struct server *s, int listen_sock)
{
	struct client *client = calloc(1, sizeof(*client));
	int rc;

	if (!client)
		return fail(-ENOMEM, "serve fewer clients at once",
			    "no memory for one more client");
	client->server = s;
	client->ep.opt = s->opt;
	rc = accept_endpoint(&client->ep, listen_sock);
	if (!rc && !start_thread(s, client))
		return 0;
	close_endpoint(&client->ep);
	free(client);
	return rc;
}

static int run(struct server *s, int listen_sock)
{
	uint64_t accepted = 0;
	int rc = 0;

	while (!rc && (!s->opt->clients || accepted < s->opt->clients)) {
		rc = wait_fd(listen_sock, POLLIN, INT64_MAX);
		rc = rc ? wait_failed(rc, "%s", "waiting for a client")
			: serve_one(s, listen_sock);
		accepted++;
	}
	/* 线程都看着停止标志：它们自己会结束，我们等着。*/
	pthread_mutex_lock(&s->lock);
	while (s->threads)
		pthread_cond_wait(&s->ended, &s->lock);
	pthread_mutex_unlock(&s->lock);
	return rc == -EINTR ? 0 : rc;
}

static int server(const struct echo_options *opt, struct echo_outcome *out)
{
	struct server s = { .opt = opt,
			    .lock = PTHREAD_MUTEX_INITIALIZER,
			    .ended = PTHREAD_COND_INITIALIZER };
	int sock, rc;

	expect_stop(); /* 有序的结束，不必为每个 client 各说一遍 */
	report_step("listen on TCP port %u, serve whoever comes", opt->port);
	sock = create_listener(opt->port);
	if (sock < 0)
		return sock;
	rc = run(&s, sock);
	sock_close(&sock);
	*out = s.out;
	return rc;
}

/* ---- client ------------------------------------------------------------- */

// region echo-client
static int echo_client(struct endpoint *ep, const void *obj,
		       struct echo_outcome *out)
{
	int rc = 0;

	for (uint64_t i = 0; i < ep->opt->count && !rc; i++) {
		uint64_t size;
		void *echo;

		rc = send_obj(ep, obj, ep->opt->size);
		if (!rc)
			rc = recv_obj(ep, &echo, &size);
		if (!rc)
			rc = echo_check(ep->opt, obj, echo, size);
		if (!rc)
			echo_count(out, echo, size);
	}
	return rc;
}
// endregion echo-client

static int ping(struct endpoint *ep, char *out, struct laps *laps)
{
	const uint64_t size = ep->opt->size;
	int rc = room_for(&ep->object, size, size, ep->peer);

	laps_start(laps);
	for (uint64_t i = 0; i < ep->opt->count && !rc; i++) {
		memcpy(out, &i, size < sizeof(i) ? size : sizeof(i));
		rc = write_message(ep, out, size, "ping");
		if (!rc)
			rc = read_message(ep, ep->object.data, size, "pong");
		if (!rc)
			rc = echo_check(ep->opt, out, ep->object.data, size);
		laps_next(laps);
	}
	return rc;
}

static int measure(struct endpoint *ep, char *obj, struct laps *laps)
{
	const struct echo_bench bench = echo_bench_of(ep->opt);
	uint64_t size;
	void *answer;
	int rc;

	rc = send_obj(ep, &bench, sizeof(bench));
	if (!rc)
		rc = recv_obj(ep, &answer, &size);
	if (!rc)
		rc = echo_bench_agreed(&bench, answer, size);
	return rc ? rc : ping(ep, obj, laps);
}

static int run_rounds(struct endpoint *ep, char *obj, struct laps *laps,
		      struct echo_outcome *out)
{
	int64_t began;
	int rc;

	report_step("connect to %s, port %u", ep->opt->address, ep->opt->port);
	rc = connect_endpoint(ep);
	if (!rc)
		rc = create_endpoint(ep);
	if (!rc) {
		snprintf(out->transport, sizeof(out->transport), "socket");
		report_step("send and receive");
		began = now_ns();
		rc = ep->opt->bench ? measure(ep, obj, laps)
				    : echo_client(ep, obj, out);
		out->seconds = (double)(now_ns() - began) / 1e9;
	}
	report_step("close");
	close_endpoint(ep);
	return rc;
}

static int client(const struct echo_options *opt, char *obj, struct laps *laps,
		  struct echo_outcome *out)
{
	struct endpoint ep = { .opt = opt, .sock = -1 };

	return run_rounds(&ep, obj, laps, out);
}

int main(int argc, char *argv[])
{
	return echo_main("sock_echo", server, client, argc, argv);
}

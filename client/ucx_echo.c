// SPDX-License-Identifier: MIT
/*
 * ucx_echo.c —— UCX tag matching 上的 echo server 与 client
 *
 * 与 sock_echo.c 并排读：同样的对话，同样的次序，一个走 UCX，一个走 TCP socket。每一步
 * 的道理在 common/ucx/endpoint.c（会话）与 common/ucx/message.c（一条消息）里。
 *
 * server 用一个线程服务所有 client：每个 client 是一个 task（见 common/base/task.h），
 * 所以 serve() 读起来和只有一个 client 时一样。一个 worker 在听，另一个收发，满了
 * WORKER_CLIENTS_MOST 个 client 就换人（见 struct server_worker）。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "echo.h"
#include "ucx/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define IDLE_MS	      (300 * 1000) /* 等 client 的下一个对象 */
#define TIMEOUT_MS    (10 * 1000)  /* 其余每一次等待 */
#define ROUNDS_A_LOOK 64	   /* ping-pong：这么多圈才看一次钟 */

/*
 * 一个 worker 和它服务的 client。为什么要换 worker？RC 的 QP 连着 SRQ，断开时 UCX 先把它
 * 推进 ERR，等 LAST_WQE_REACHED 才销毁；rxe 从来不说（或说得太多，见
 * common/ucx/worker.c），于是每个离开的 client 在每块设备上都留下一个 QP 和约
 * 260 kB，直到 worker 销毁。所以一个 worker 只接这么多 client，都走了就销毁；别的照常。
 */
#define WORKER_CLIENTS_MOST 16

struct server_worker {
	struct ucx_worker worker;
	unsigned int seen; /* clients, ever */
	unsigned int here; /* of them */
	LIST_ENTRY(server_worker) next;
};

struct server {
	const struct echo_options *opt;
	struct ucx_worker worker; /* listens */
	/* The first takes the next client. */
	LIST_HEAD(, server_worker) workers;
	ucp_listener_h listener;
	struct ucx_limits limits;
	struct task_list tasks; /* 每个 client 一个 */
	uint64_t accepted;
	struct echo_outcome out;
};

struct client {
	struct server *server;
	ucp_conn_request_h request;
	void *buffer; /* ping-pong 用的；endpoint 关闭之前是 UCX 的 */
};

static struct ucx_limits limits_of(const struct echo_options *opt)
{
	return (struct ucx_limits){
		.info_ms = opt->info_ms,
		.idle_ms = echo_timeout(opt, IDLE_MS),
		.timeout_ms = echo_timeout(opt, TIMEOUT_MS),
		.max_object = opt->limit,
	};
}

/* ---- server ------------------------------------------------------------- */

/*
 * 每圈一条来、一条回，没有长度消息。两块 buffer 轮换：这一圈还在发的时候，下一圈的
 * 接收已经投递好，消息一到就直接进 buffer，不必先进 unexpected queue 再拷一次。
 */
static int pong(struct ucx_endpoint *ep, const struct echo_bench *bench,
		char *buffer)
{
	int64_t deadline = ucx_deadline_for(ep, bench->size);
	int rc = ucx_post_recv(ep, buffer, bench->size, "char[]");

	for (uint64_t i = 0; i < bench->rounds && !rc; i++) {
		char *now = buffer + (i % 2) * bench->size;
		char *then = buffer + (~i % 2) * bench->size;

		if (i % ROUNDS_A_LOOK == 0)
			deadline = ucx_deadline_for(ep, bench->size);
		rc = ucx_received(ep, bench->size, deadline, "ping");
		if (rc == -ECONNRESET)
			ucx_report(ep, rc, "ping");
		if (!rc)
			rc = ucx_post_send(ep, now, bench->size, "char[]");
		if (!rc && i + 1 < bench->rounds)
			rc = ucx_post_recv(ep, then, bench->size, "char[]");
		if (!rc)
			rc = ucx_sent(ep, deadline, "pong");
	}
	return rc;
}

static int play(struct client *client, struct ucx_endpoint *ep,
		struct echo_bench bench)
{
	int rc = send_obj(ep, &bench, sizeof(bench));

	if (rc)
		return rc;
	client->buffer = malloc(2 * bench.size + 1);
	if (!client->buffer)
		return fail(-ENOMEM, "lower --limit",
			    "%s: no memory for a ping-pong", ep->peer);
	rc = pong(ep, &bench, client->buffer);
	if (!rc) {
		free(client->buffer);
		client->buffer = NULL;
	}
	return rc;
}

// region echo-server
static int echo_server(struct client *client, struct ucx_endpoint *ep)
{
	struct server *s = client->server;

	uint64_t size;
	void *obj;
	int rc;

	for (;;) {
		rc = recv_obj(ep, &obj, &size);
		if (rc)
			return rc;
		if (echo_bench_asked(obj, size, s->limits.max_object))
			rc = play(client, ep, *(const struct echo_bench *)obj);
		else
			rc = send_obj(ep, obj, size);
		if (rc)
			return rc;
		echo_count(&s->out, obj, size);
	}
}
// endregion echo-server

static void serve(struct task *self, void *arg)
{
	struct client *client = arg;
	struct server *s = client->server;
	struct server_worker *one = LIST_FIRST(&s->workers);
	struct ucx_endpoint *ep = NULL;
	int rc;

	one->seen++;
	one->here++;
	rc = accept_endpoint(&one->worker, client->request, &s->limits, self,
			     &ep);
	if (!rc)
		rc = create_endpoint(ep);
	if (!rc) {
		report_fact("%s: connected", ep->peer);
		rc = echo_server(client, ep);
	}
	if (rc == -ESHUTDOWN) /* 对端说了再见：这才是正常的结束 */
		report_fact("%s: closed after %ju messages", ep->peer,
			    ep->finished_recv_count);
	close_endpoint(ep, rc);
	one->here--;
	s->out.clients++;
	s->out.failed += rc && rc != -ESHUTDOWN && rc != -EINTR;
	free(client->buffer);
	free(client);
}

static bool is_full(const struct server *s)
{
	return s->tasks.count >= ECHO_MAX_CLIENTS ||
	       (s->opt->clients && s->accepted >= s->opt->clients);
}

/* 在 progress 里被调用，不能在这里等：造一个 task，回到循环里再去握手。*/
static void on_request(ucp_conn_request_h request, void *arg)
{
	struct server *s = arg;
	struct client *client = is_full(s) ? NULL : calloc(1, sizeof(*client));

	if (!client && !is_full(s))
		report_error("serve fewer clients at once",
			     "no memory for one more client");
	if (client) {
		client->server = s;
		client->request = request;
		if (!task_start(&s->tasks, serve, client)) {
			s->accepted++;
			return;
		}
	}
	free(client);
	ucp_listener_reject(s->listener, request);
}

static int start_worker(struct server *s)
{
	struct server_worker *one = calloc(1, sizeof(*one));
	int rc;

	if (!one)
		return fail(-ENOMEM, NULL, "no memory for a worker");
	rc = ucx_open_another(&one->worker, &s->worker);
	if (rc)
		free(one);
	else
		LIST_INSERT_HEAD(&s->workers, one, next);
	return rc;
}

static void stop_worker(struct server_worker *one)
{
	LIST_REMOVE(one, next);
	ucx_close(&one->worker);
	free(one);
}

/* 接满了就另起一个 worker；起不来，就接着用，再满时再试。client 都走了的，销毁。*/
static void change_workers(struct server *s)
{
	struct server_worker *one = LIST_FIRST(&s->workers), *next;

	if (one->seen >= WORKER_CLIENTS_MOST && start_worker(s))
		one->seen = 0;
	for (one = LIST_NEXT(LIST_FIRST(&s->workers), next); one; one = next) {
		next = LIST_NEXT(one, next);
		if (!one->here)
			stop_worker(one);
	}
}

static bool finished(const struct server *s)
{
	return !s->tasks.count &&
	       (stop_requested() ||
		(s->opt->clients && s->accepted >= s->opt->clients));
}

static int run(struct server *s)
{
	bool told = false;

	for (;;) {
		int rc;

		if (stop_requested() && !told) {
			told = true;
			tasks_wake(&s->tasks);
		}
		while (tasks_run(&s->tasks))
			;
		change_workers(s);
		if (finished(s))
			return 0;
		rc = ucx_progress(&s->worker, tasks_deadline(&s->tasks));
		if (rc == -EINTR) /* 收尾的 task 还要一点时间 */
			deadline_sleep_ms(1, INT64_MAX);
		if (rc == -EINTR || rc == -ETIMEDOUT)
			tasks_expire(&s->tasks);
		else if (rc)
			return rc;
	}
}

static int server(const struct echo_options *opt, struct echo_outcome *out)
{
	struct server s = { .opt = opt, .limits = limits_of(opt) };
	int rc;

	expect_stop(); /* 有序的结束，不必为每个 client 各说一遍 */
	report_step("make a UCX %s context and workers",
		    ucp_get_version_string());
	rc = ucx_open(&s.worker, opt->busy);
	if (rc)
		return rc;
	report_step("listen on TCP port %u, serve whoever comes", opt->port);
	rc = start_worker(&s);
	if (!rc)
		rc = create_listener(&s.worker, opt->port, on_request, &s,
				     &s.listener);
	if (!rc)
		rc = run(&s);
	report_step("destroy workers and context");
	while (!LIST_EMPTY(&s.workers))
		stop_worker(LIST_FIRST(&s.workers));
	/*
	 * listener 一还，worker 就得跟着还：UCX 自己的线程收下的连接，有的话才听到一半。
	 * 下半句在两者之间到，那个线程就拿着已经还掉的 listener 去报告（UCX 的 issue
	 * 11087，1.13 到 1.19 都是这样）。只能让这段时间短，不能让它没有。
	 */
	if (s.listener)
		ucp_listener_destroy(s.listener);
	ucx_close(&s.worker);
	*out = s.out;
	return rc;
}

/* ---- client ------------------------------------------------------------- */

// region echo-client
static int echo_client(struct ucx_endpoint *ep, const struct echo_options *opt,
		       const void *obj, struct echo_outcome *out)
{
	int rc = 0;

	for (uint64_t i = 0; i < opt->count && !rc; i++) {
		uint64_t size;
		void *echo;

		rc = send_obj(ep, obj, opt->size);
		if (!rc)
			rc = recv_obj(ep, &echo, &size);
		if (!rc)
			rc = echo_check(opt, obj, echo, size);
		if (!rc)
			echo_count(out, echo, size);
	}
	return rc;
}
// endregion echo-client

/* 每圈把圈数写进消息、再从回声里核对：上一圈的旧消息冒充不了这一圈的。*/
static int check_round(const void *sent, const void *got, uint64_t size)
{
	if (!memcmp(sent, got,
		    size < sizeof(uint64_t) ? size : sizeof(uint64_t)))
		return 0;
	return fail(-EBADMSG, "is that an echo server?",
		    "a pong is not the ping that was sent");
}

static int ping(struct ucx_endpoint *ep, const struct echo_options *opt,
		char *out, char *in, struct laps *laps)
{
	int64_t deadline = 0;
	int rc = 0;

	laps_start(laps);
	for (uint64_t i = 0; i < opt->count && !rc; i++) {
		memcpy(out, &i, opt->size < sizeof(i) ? opt->size : sizeof(i));
		if (i % ROUNDS_A_LOOK == 0)
			deadline = ucx_deadline_for(ep, opt->size);
		/* 先备好接收再发：回声来得再快，也有地方放。*/
		rc = ucx_post_recv(ep, in, opt->size, "char[]");
		if (!rc)
			rc = ucx_post_send(ep, out, opt->size, "char[]");
		if (rc)
			break;
		rc = ucx_received(ep, opt->size, deadline, "pong");
		if (rc == -ECONNRESET || rc == -ESHUTDOWN)
			ucx_report(ep, rc, "pong");
		if (!rc)
			rc = ucx_sent(ep, deadline, "ping");
		if (!rc)
			rc = check_round(out, in, opt->size);
		laps_next(laps);
	}
	return rc;
}

static int measure(struct ucx_endpoint *ep, const struct echo_options *opt,
		   char *out, char *in, struct laps *laps)
{
	const struct echo_bench bench = echo_bench_of(opt);
	uint64_t size;
	void *answer;
	int rc;

	rc = send_obj(ep, &bench, sizeof(bench));
	if (!rc)
		rc = recv_obj(ep, &answer, &size);
	if (!rc)
		rc = echo_bench_agreed(&bench, answer, size);
	if (!rc)
		rc = ping(ep, opt, out, in, laps);
	return rc ? rc : echo_check(opt, out, in, opt->size);
}

static int run_rounds(struct ucx_worker *w, const struct echo_options *opt,
		      char *obj, struct laps *laps, struct echo_outcome *out)
{
	const struct ucx_limits limits = limits_of(opt);
	struct ucx_endpoint *ep = NULL;
	int64_t began;
	char *in = NULL;
	int rc;

	report_step("connect to %s, port %u", opt->address, opt->port);
	rc = connect_endpoint(w, opt->address, opt->port, &limits,
			      deadline_in_ms(limits.timeout_ms), &ep);
	if (rc)
		return rc;
	report_step("create the endpoint: make tags, exchange them, use them");
	rc = create_endpoint(ep);
	if (!rc) {
		endpoint_transport(ep, out->transport, sizeof(out->transport));
		report_fact("I send with tag    0x%016jx", ep->msg_tag_send);
		report_fact("I receive with tag 0x%016jx", ep->msg_tag_recv);
		report_fact("over %s", out->transport);
		report_step("send and receive");
		began = now_ns();
		if (opt->bench)
			in = malloc(opt->size + 1);
		rc = opt->bench && !in ? -ENOMEM
		     : opt->bench      ? measure(ep, opt, obj, in, laps)
				       : echo_client(ep, opt, obj, out);
		out->seconds = (double)(now_ns() - began) / 1e9;
	}
	report_step("say goodbye and close");
	close_endpoint(ep, rc);
	free(in);
	return rc;
}

static int client(const struct echo_options *opt, char *obj, struct laps *laps,
		  struct echo_outcome *out)
{
	struct ucx_worker worker = { 0 };
	int rc;

	report_step("make a UCX %s context and a worker",
		    ucp_get_version_string());
	rc = ucx_open(&worker, opt->busy);
	if (rc)
		return rc;
	rc = run_rounds(&worker, opt, obj, laps, out);
	ucx_close(&worker);
	return rc;
}

int main(int argc, char *argv[])
{
	return echo_main("ucx_echo", server, client, argc, argv);
}

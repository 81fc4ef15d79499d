// SPDX-License-Identifier: MIT
/*
 * session.c —— 第 6 阶段从头到尾：server 与 client 各走一遍
 *
 *	server                                 client
 *	1  装载插件                             1  装载插件
 *	2  listen()：得到 handle                2
 *	3  bootstrap：等 client                 3  bootstrap：连 server
 *	        ── handles（128 字节一个）──────>
 *	        <──────── plan（发什么、多少）──
 *	   accept()                               connect(handle)
 *	        <────────── READY ────────────>
 *	4  irecv … test                         4  isend … test
 *	        <─────────── DONE ────────────>
 *	   close                                  close
 *
 * bootstrap 连接不在交换完 handle 后就关：READY 保证两边都真的连上了；DONE 是应用层的
 * 确认。插件的 isend 完成，只说明数据离开了我们的 buffer（多半是进了内核），并不说明
 * 对端收到了；这时就 close，对端可能还没读完。它还有第三个用处：对端进程一死，内核会
 * 关掉这个 socket，我们就不必等到期限。
 */
#include "session.h"

#include "base/deadline.h"
#include "base/report.h"
#include "rdma_common.h"

#include <errno.h>
#include <stdlib.h>

#define MIXED_PLUGIN	  "libnccl-net-mixed.so"
#define CLIENT_TIMEOUT_MS (300 * 1000) /* until a client comes */
#define SERVER_TIMEOUT_MS (10 * 1000)  /* until the server is there */
#define STALL_TIMEOUT_MS  (10 * 1000)  /* without progress */

struct session {
	const struct tcpx_test *test;
	struct tcpx_net net;
	struct tcpx_net listen_net; /* if test->listen_api is another one */
	struct tcpx_plan plan;
	unsigned int channels;
	int sock; /* bootstrap */
	/* One of each per channel; a ping-pong has a second one, the way back. */
	struct tcpx_handle handles[TCPX_MAX_CHANNELS];
	struct tcpx_listener listeners[TCPX_MAX_CHANNELS];
	struct tcpx_flow flows[TCPX_MAX_CHANNELS];
};

static int timeout_of(const struct session *s, int default_ms)
{
	return s->test->timeout_ms ? s->test->timeout_ms : default_ms;
}

static int64_t exchange_deadline(const struct session *s)
{
	return deadline_in_ms(timeout_of(s, EXCHANGE_TIMEOUT_MS));
}

static struct tcpx_net *listening_net(struct session *s)
{
	return s->listen_net.lib ? &s->listen_net : &s->net;
}

/* 有意混用版本时（--mix-api），就不拦。*/
static int expected_api(const struct session *s)
{
	return s->test->listen_api ? 0 : s->net.api;
}

static bool is_server(const struct session *s)
{
	return !s->test->server;
}

/* ---- step 1 and 2 ------------------------------------------------------- */

static int initialize(struct session *s)
{
	const struct tcpx_test *t = s->test;
	struct tcpx_properties props;
	const char *plugin = t->plugin;
	char mixed[4096];
	int n, rc;

	/* 混用只有在 handle 布局随版本而变的插件上才看得出后果。*/
	if (t->listen_api && !plugin && !getenv("UCCL_TCPX_PLUGIN_PATH"))
		plugin = plugin_beside_program(mixed, sizeof(mixed),
					       MIXED_PLUGIN);
	report_line("=== TCPX Connection Test ===");
	report_step("Initializing TCPX...");
	rc = tcpx_load_plugin(&s->net, plugin, t->api);
	if (!rc && t->listen_api && is_server(s))
		rc = tcpx_load_plugin(&s->listen_net, plugin, t->listen_api);
	if (rc)
		return rc;
	report_fact("plugin \"%s\" of %s, API v%d", s->net.name,
		    basename(s->net.path), s->net.api);
	n = tcpx_get_device_count(&s->net);
	if (n < 0)
		return n;
	report_line("✓ SUCCESS: Found %d TCPX devices", n);
	if (t->dev >= n)
		return fail(-ENODEV, "choose a smaller --dev",
			    "there is no device %d, only 0 ... %d", t->dev,
			    n - 1);
	rc = tcpx_get_properties(&s->net, t->dev, &props);
	if (!rc)
		report_fact("device %d: %s, %d Mbit/s, up to %d buffers in a "
			    "receive",
			    t->dev, props.name, props.speed, props.max_recvs);
	return rc;
}

static int listen_on_all(struct session *s)
{
	struct tcpx_net *net = listening_net(s);
	int rc = 0;

	for (unsigned int i = 0; i < s->channels && !rc; i++)
		rc = tcpx_listen(net, s->test->dev, &s->handles[i],
				 &s->listeners[i]);
	if (!rc && net != &s->net)
		report_fact("listening through API v%d, accepting through v%d",
			    net->api, s->net.api);
	return rc;
}

/* ---- step 3: bootstrap -------------------------------------------------- */

static int create_bootstrap_server(struct session *s)
{
	int listen_sock = tcp_listen(s->test->port);

	if (listen_sock < 0)
		return listen_sock;
	report_line("Bootstrap server listening on port %u", s->test->port);
	s->sock = tcpx_accept_client(
		listen_sock, listening_net(s)->api, s->handles, s->channels,
		deadline_in_ms(timeout_of(s, CLIENT_TIMEOUT_MS)));
	/* 只服务一个 client：不再听，第二个来的会立刻被拒绝，而不是空等。*/
	sock_close(&listen_sock);
	if (s->sock < 0)
		return s->sock;
	report_line("✓ SUCCESS: Handle sent to client");
	return 0;
}

static int connect_to_bootstrap_server(struct session *s)
{
	const struct tcpx_test *t = s->test;

	s->sock = tcp_connect(t->server, t->port,
			      deadline_in_ms(timeout_of(s, SERVER_TIMEOUT_MS)));
	if (s->sock < 0)
		return s->sock;
	report_line("Connected to bootstrap server at %s", t->server);
	return 0;
}

/* client 说了算；server 若也给了参数，就必须一致，否则有一方会白等。*/
static int compare_plans(const struct session *s)
{
	const struct tcpx_plan *mine = &s->test->plan, *peers = &s->plan;

	if (!s->test->plan_given ||
	    (mine->mode == peers->mode && mine->size == peers->size &&
	     mine->iters == peers->iters))
		return 0;
	return fail(-EPROTO,
		    "give both sides the same, or the server none at all",
		    "the client plans %ju messages of %ju bytes, this "
		    "server was told %ju of %ju bytes%s",
		    peers->iters, peers->size, mine->iters, mine->size,
		    mine->mode == peers->mode ? "" : ", in another mode");
}

static int check_ping_pong(const struct session *s, unsigned int way_back)
{
	if (s->plan.mode != TCPX_PING_PONG ||
	    (s->channels == 1 && way_back == 1))
		return 0;
	return fail(-EPROTO, "leave out --channels with --ping-pong",
		    "a ping-pong has one channel there and one back, not %u "
		    "and %u",
		    s->channels, way_back);
}

static int take_plan(struct session *s)
{
	int64_t deadline = exchange_deadline(s);
	unsigned int count = 1;
	int rc = tcpx_receive_plan(s->sock, &s->plan, deadline);

	if (!rc)
		rc = compare_plans(s);
	/* 来回各一个方向：client 也 listen，把它的 handle 交过来。*/
	if (!rc && s->plan.mode == TCPX_PING_PONG)
		rc = tcpx_receive_handles(s->sock, expected_api(s), s->handles,
					  &count, deadline);
	return rc ? rc : check_ping_pong(s, count);
}

static int take_handles(struct session *s)
{
	struct tcpx_handle mine = { 0 };
	int64_t deadline = exchange_deadline(s);
	int rc = tcpx_receive_handles(s->sock, expected_api(s), s->handles,
				      &s->channels, deadline);

	if (!rc && s->test->channels && s->test->channels != s->channels)
		rc = fail(-EPROTO, "give both sides the same --channels",
			  "the server has %u channels, this client was told %u",
			  s->channels, s->test->channels);
	if (!rc)
		rc = check_ping_pong(s, 1);
	if (rc)
		return rc;
	report_line("✓ SUCCESS: Handle received from server");
	if (s->plan.mode == TCPX_PING_PONG)
		rc = tcpx_listen(&s->net, s->test->dev, &mine,
				 &s->listeners[0]);
	if (!rc)
		rc = tcpx_send_plan(s->sock, &s->plan, deadline);
	if (!rc && s->plan.mode == TCPX_PING_PONG)
		rc = tcpx_send_handles(s->sock, s->net.api, &mine, 1, deadline);
	return rc;
}

/* ---- connect, move, close ----------------------------------------------- */

/* 一条大消息在完成之前看不出进展：按每秒 8 MiB 再多给些时间。*/
static int64_t stall_ms(const struct session *s)
{
	return timeout_of(s, STALL_TIMEOUT_MS) + (int64_t)(s->plan.size >> 13);
}

static struct tcpx_wait wait_for(const struct session *s, enum sync_step step)
{
	return (struct tcpx_wait){
		.deadline =
			step == SYNC_READY ? exchange_deadline(s) : INT64_MAX,
		.stall_ms = stall_ms(s),
		.peer_sock = s->sock,
		.peer_step = step,
	};
}

/* ping-pong 的第二个 flow 方向相反：server 连回 client。次序两边一致，不会互等。*/
static unsigned int flow_count(const struct session *s)
{
	return s->plan.mode == TCPX_PING_PONG ? 2 : s->channels;
}

static int open_flows(struct session *s)
{
	bool ping = s->plan.mode == TCPX_PING_PONG;
	int rc = 0;

	for (unsigned int i = 0; i < flow_count(s) && !rc; i++) {
		struct tcpx_flow *flow = &s->flows[i];
		bool way_back = ping && i == 1;

		flow->channel = ping ? 0 : i;
		flow->sends = is_server(s) == way_back;
		rc = flow->sends ? tcpx_connect_v5(&s->net, s->test->dev,
						   &s->handles[flow->channel],
						   wait_for(s, SYNC_READY),
						   &flow->comm)
				 : tcpx_accept_v5(&s->net,
						  &s->listeners[flow->channel],
						  wait_for(s, SYNC_READY),
						  &flow->comm);
		if (!rc)
			rc = tcpx_flow_open(flow, &s->plan, flow_count(s),
					    s->test->mem_type);
	}
	return rc;
}

static int move_messages(struct session *s, struct tcpx_outcome *out)
{
	struct tcpx_wait wait = wait_for(s, SYNC_DONE);
	bool client = !is_server(s);
	struct laps laps = { 0 };
	int rc;

	if (s->plan.mode != TCPX_PING_PONG)
		return tcpx_move(s->flows, s->channels, &wait);
	if (client && laps_init(&laps, s->plan.iters))
		return -ENOMEM;
	rc = tcpx_ping_pong(&s->flows[client ? 0 : 1],
			    &s->flows[client ? 1 : 0], &wait, client,
			    client ? &laps : NULL);
	if (!rc && client)
		out->half_us = laps_halved(&laps);
	laps_free(&laps);
	return rc;
}

static void warn_of_odd_sizes(const struct session *s)
{
	uint64_t n = 0;
	int size = 0;

	for (unsigned int i = 0; i < flow_count(s); i++) {
		n += s->flows[i].odd_sizes;
		size = s->flows[i].odd_sizes ? s->flows[i].odd_size : size;
	}
	if (n)
		report_warning(
			"believe the bytes; a program of your own should "
			"not trust this size either",
			"plugin \"%s\" (v%d) reported another size for "
			"%ju of the messages received, as %d for %ju: "
			"the bytes themselves are right",
			s->net.name, s->net.api, n, size, s->plan.size);
}

static void report_messages(const struct session *s)
{
	const char *verb = is_server(s) ? "Received" : "Sent";
	char text[256];

	warn_of_odd_sizes(s);
	if (s->plan.text && s->channels == 1) {
		report_line("✓ SUCCESS: %s %ju bytes", verb, s->plan.size);
		if (is_server(s))
			report_line("Data: '%s'",
				    tcpx_flow_text(&s->flows[0], text,
						   sizeof(text)));
		return;
	}
	report_line("✓ SUCCESS: %s %ju messages of %ju bytes on each of %u "
		    "channels, %s",
		    verb, s->plan.iters, s->plan.size, s->channels,
		    s->plan.mode == TCPX_CHECK ? "each checked"
					       : "the last ones checked");
}

// region transfer
static int transfer(struct session *s, struct tcpx_outcome *out)
{
	int64_t start;
	int rc = open_flows(s);

	/* 一方连不上，也要让另一方知道，而不是让它等到期限。*/
	rc = sock_sync_step(s->sock, SYNC_READY, rc, exchange_deadline(s));
	if (rc)
		return rc;
	report_step("Testing data transfer (%s)...",
		    is_server(s) ? "receive" : "send");
	start = now_ns();
	rc = move_messages(s, out);
	/* 应用层确认：对端说收全了，才可以关连接。*/
	rc = sock_sync_step(s->sock, SYNC_DONE, rc,
			    deadline_in_ms(stall_ms(s)));
	if (rc)
		return rc;
	out->seconds = (double)(now_ns() - start) / 1e9;
	report_messages(s);
	return 0;
}
// endregion transfer

static void fill_outcome(const struct session *s, struct tcpx_outcome *out)
{
	double bytes =
		(double)s->plan.size * (double)s->plan.iters * flow_count(s);

	out->api = s->net.api;
	out->channels = s->channels;
	out->plan = s->plan;
	out->mb_per_s = out->seconds > 0 ? bytes / out->seconds / 1e6 : 0;
}

/* 与建立时相反的次序；前面失败也走到底，返回第一个失败。*/
static int close_all(struct session *s)
{
	struct tcpx_net *listen_net = listening_net(s);
	int rc = 0;

	for (unsigned int i = 0; i < TCPX_MAX_CHANNELS; i++) {
		struct tcpx_flow *flow = &s->flows[i];
		int undo = tcpx_flow_close(flow);

		rc = rc ? rc : undo;
	}
	for (unsigned int i = 0; i < TCPX_MAX_CHANNELS; i++) {
		int undo = tcpx_close_listen(listen_net, &s->listeners[i]);

		rc = rc ? rc : undo;
	}
	sock_close(&s->sock);
	tcpx_unload_plugin(&s->listen_net);
	tcpx_unload_plugin(&s->net);
	return rc;
}

static int meet_server(struct session *s)
{
	int rc;

	report_step("Starting as CLIENT...");
	report_step("Connecting to server for handle exchange...");
	rc = connect_to_bootstrap_server(s);
	return rc ? rc : take_handles(s);
}

// region server
static int meet_client(struct session *s)
{
	int rc;

	report_step("Starting as SERVER...");
	rc = listen_on_all(s);
	if (rc)
		return rc;
	report_line("✓ SUCCESS: Listening on device %d", s->test->dev);
	report_step("Creating TCPX handle for client...");
	rc = create_bootstrap_server(s);
	return rc ? rc : take_plan(s);
}

static int run(struct session *s, struct tcpx_outcome *out)
{
	int rc = initialize(s);

	if (!rc)
		rc = is_server(s) ? meet_client(s) : meet_server(s);
	return rc ? rc : transfer(s, out);
}
// endregion server

int tcpx_run_test(const struct tcpx_test *test, struct tcpx_outcome *out)
{
	struct session *s = calloc(1, sizeof(*s)); /* 几十 KB，不放栈上 */
	int rc, undo;

	if (!s)
		return fail(-ENOMEM, NULL, "no memory for a session");
	s->test = test;
	s->plan = test->plan;
	s->channels = test->channels ? test->channels : 1;
	s->sock = -1;
	*out = (struct tcpx_outcome){ 0 };
	rc = run(s, out);
	if (!rc)
		fill_outcome(s, out);
	undo = close_all(s);
	free(s);
	return rc ? rc : undo;
}

// SPDX-License-Identifier: MIT
/*
 * tag_lat.c —— tag channel 上的 ping-pong：一来一回要多久
 *
 * 与 ucx_perftest -t tag_lat 做同样的事，好拿来比较：每一轮各发一条带 tag 的消息，
 * receive 在自己发出之后才 post。消息多长、多少轮由 client 决定，它用第一条消息（另一个
 * tag）告诉 server；每条消息的序号与长度都要核对。
 *
 * --window N：像 ucx_perftest -t tag_bw -O N，只有 client 发，总有 N 条没有完成；server
 * 总 post 着 N 个 receive。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/handshake.h"
#include "base/report.h"
#include "pair/outcome.h"
#include "tag/channel.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG_OF_PLAN   1
#define TAG_OF_ROUND  2
#define TAG_OF_SERVER 3
#define MAX_ROUNDS    100000000
#define ACCEPT_MS     300000

/* 一端的全部：要做什么、连接、channel、收发各自的 buffer。*/
struct side {
	struct rdma_options opt;
	struct tag_limits limits;
	struct rdma_resources res;
	struct tag_channel channel;
	char *out, *in;		      /* of @slots messages each */
	struct tag_request *requests; /* streaming: one for each slot */
	uint32_t slots;
	int sock, listener;
};

#define HEAD                                                    \
	"usage: tag_lat server [options] " DEVICE_OPERANDS "\n" \
	"       tag_lat client [options] <server_ip> " DEVICE_OPERANDS "\n\n"
static const char usage[] =
	"usage: tag_lat server | client <server_ip> " DEVICE_OPERANDS
	"; see --help";

static int parse_operands(struct rdma_options *opt, int argc, char *argv[])
{
	if (argc < 1)
		return wrong_usage(usage, "say server or client", NULL);
	if (!strcmp(argv[0], "server"))
		return options_device(opt, usage, argc - 1, argv + 1);
	if (strcmp(argv[0], "client") != 0)
		return wrong_usage(usage, "neither server nor client", argv[0]);
	opt->role = ROLE_CLIENT;
	return options_server(opt, usage, argc - 1, argv + 1);
}

static int parse(struct side *side, int argc, char *argv[])
{
	struct rdma_options *opt = &side->opt;
	const struct option_row rows[] = {
		{ 's', "size", "B", "bytes of each message, 0 ... # (@)",
		  NUMBER(opt->config.msg_size, 64, 0, MAX_MSG_SIZE) },
		{ 'n', "iters", "N", "round trips, or messages (@)",
		  NUMBER(opt->plan.iters, 1000, 1, MAX_ROUNDS) },
		{ 'e', "eager", "B",
		  "rendezvous above this size, the same on\nboth sides (@)",
		  NUMBER(side->limits.eager_max, TAG_EAGER_MAX, 1, 1 << 20) },
		{ 'w', "window", "N",
		  "no round trips: so many messages, 1 ... #,\noutstanding "
		  "from client to server, the same\non both sides",
		  NUMBER(opt->plan.window, 0, 1, 4096) },
		{ 't', "timeout", "SECS",
		  "limit of every wait (default: 300 for a\nclient to come, 10 "
		  "for the exchange, 5 for\na message)",
		  SECONDS(opt->timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(opt->json) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = {
		.next = usage,
		.head = HEAD,
		.rows = rows,
		.column = 21,
		.tail = "\nThe client decides about --size and --iters.\n"
			"Exit code: 0 done, 1 failed, 2 wrong usage.\n",
	};
	int rc;

	opt->role = ROLE_SERVER;
	opt->plan.mode = MODE_PINGPONG;
	rc = take_options(&line, &argc, &argv);
	if (opt->plan.window)
		opt->plan.mode = MODE_BANDWIDTH;
	return rc < 0 ? parse_operands(opt, argc, argv) : rc;
}

/* 大消息给大期限：每 MiB 多一秒，再慢的实验机也够了。*/
static int message_ms(const struct side *side)
{
	return timeout_or(&side->opt, POLL_TIMEOUT_MS) +
	       (int)(side->opt.config.msg_size >> 10);
}

static int64_t exchange_deadline(const struct side *side)
{
	return deadline_in_ms(timeout_or(&side->opt, EXCHANGE_TIMEOUT_MS));
}

static int meet_over_tcp(struct side *side)
{
	const struct rdma_options *opt = &side->opt;

	if (opt->role == ROLE_CLIENT) {
		side->sock = tcp_connect(opt->server, opt->tcp_port,
					 exchange_deadline(side));
		return side->sock < 0 ? side->sock : 0;
	}
	side->listener = tcp_listen(opt->tcp_port);
	if (side->listener < 0)
		return side->listener;
	report_fact("listening on TCP port %u", opt->tcp_port);
	side->sock =
		tcp_accept_client(side->listener, HELLO_MAGIC, NULL, 0,
				  deadline_in_ms(timeout_or(opt, ACCEPT_MS)));
	return side->sock < 0 ? side->sock : 0;
}

/* 与 rdma_client 相同的台阶，只是 INIT 之后 post 的是 channel 的一整圈 receive。*/
static int bring_up(struct side *side)
{
	struct rdma_config config = side->opt.config;
	int rc;

	report_step("open the device, make PD, MR, CQ, QP and the channel");
	tag_channel_config(&config, &side->limits);
	rc = init_rdma_resources(&side->res, &config);
	if (!rc)
		rc = modify_qp_to_init(&side->res);
	if (!rc)
		rc = tag_channel_open(&side->channel, &side->res,
				      &side->limits);
	if (rc)
		return rc;
	report_step("meet the peer over TCP; QP to RTR, then RTS");
	rc = meet_over_tcp(side);
	if (!rc)
		rc = connect_qp(&side->res, side->sock,
				exchange_deadline(side));
	return rc ? rc
		  : tag_channel_agree(&side->channel, side->sock,
				      exchange_deadline(side));
}

/* 一边总 post 着几个 receive，另一边总有几条在路上，都在开始之前就定了。*/
static int agree_on_window(struct side *side)
{
	const uint32_t window = side->opt.plan.window;
	const uint32_t mine = htobe32(window);
	uint32_t peers;
	int rc = sock_sync_data(side->sock, sizeof(mine), &mine, &peers,
				exchange_deadline(side), "window");

	if (rc || peers == mine)
		return rc;
	return fail(-EPROTO, "give --window the same value on both sides",
		    "the peer's window is %u, mine is %u (0: round trips)",
		    be32toh(peers), window);
}

struct round_plan {
	uint64_t size;
	uint64_t iters;
};

/* client 说了算：server 不必用同样的选项启动。*/
static int tell_plan(struct side *side)
{
	const struct rdma_options *opt = &side->opt;
	const struct round_plan plan = { htole64(opt->config.msg_size),
					 htole64(opt->plan.iters) };
	struct tag_request request;
	int rc = tag_send(&side->channel, &request, &plan, sizeof(plan),
			  TAG_OF_PLAN);

	return rc ? rc : tag_wait(&side->channel, &request, message_ms(side));
}

static int learn_plan(struct side *side)
{
	struct rdma_options *opt = &side->opt;
	struct round_plan plan = { 0, 0 };
	struct tag_request request;
	int rc = tag_recv(&side->channel, &request, &plan, sizeof(plan),
			  TAG_OF_PLAN, TAG_EXACT);

	if (!rc)
		rc = tag_wait(&side->channel, &request, message_ms(side));
	if (rc)
		return rc;
	opt->plan.iters = le64toh(plan.iters);
	if (request.length != sizeof(plan) ||
	    le64toh(plan.size) > MAX_MSG_SIZE || !opt->plan.iters)
		return fail(-EPROTO, "run the same build on both sides",
			    "the client's plan cannot be: %ju rounds of %ju "
			    "bytes",
			    opt->plan.iters, le64toh(plan.size));
	opt->config.msg_size = (uint32_t)le64toh(plan.size);
	return 0;
}

/* 至少 8 字节，放得下序号。*/
static size_t slot_bytes(const struct side *side)
{
	return side->opt.config.msg_size + sizeof(uint64_t);
}

/* 先摸一遍，别把缺页算进延迟。*/
static char *touched_buffer(size_t bytes)
{
	char *buf = malloc(bytes);

	return buf ? memset(buf, 1, bytes) : NULL;
}

static int make_buffers(struct side *side)
{
	const uint32_t window = side->opt.plan.window;
	const bool client = side->opt.role == ROLE_CLIENT;
	const bool sends = client || !window, receives = !client || !window;
	size_t bytes;

	side->slots = window ? window : 1;
	bytes = side->slots * slot_bytes(side);
	side->requests = calloc(side->slots, sizeof(*side->requests));
	side->out = sends ? touched_buffer(bytes) : NULL;
	side->in = receives ? touched_buffer(bytes) : NULL;
	if (side->requests && (side->out || !sends) && (side->in || !receives))
		return 0;
	return fail(-ENOMEM, "choose a smaller --size or --window",
		    "no memory for %u messages of %u bytes", side->slots,
		    side->opt.config.msg_size);
}

static size_t stamp_size(const struct side *side)
{
	size_t size = side->opt.config.msg_size;

	return size < sizeof(uint64_t) ? size : sizeof(uint64_t);
}

static char *slot_of(const struct side *side, char *slots, uint64_t nth)
{
	return slots + nth % side->slots * slot_bytes(side);
}

static int post_nth(struct side *side, uint64_t nth)
{
	return tag_recv(&side->channel, &side->requests[nth % side->slots],
			slot_of(side, side->in, nth), side->opt.config.msg_size,
			TAG_OF_ROUND, TAG_EXACT);
}

static int await_nth(struct side *side, uint64_t nth)
{
	struct tag_request *request = &side->requests[nth % side->slots];
	uint64_t size = side->opt.config.msg_size;
	uint64_t stamp = htole64(nth);
	int rc = tag_wait(&side->channel, request, message_ms(side));

	if (rc && rc != -EMSGSIZE)
		return rc;
	if (!rc && request->length == size &&
	    !memcmp(slot_of(side, side->in, nth), &stamp, stamp_size(side)))
		return 0;
	return fail(-EBADMSG, NULL,
		    "message %ju arrived wrong: %ju bytes (%ju expected)", nth,
		    request->length, size);
}

static int receive_round(struct side *side, uint64_t round)
{
	int rc = post_nth(side, round);

	return rc ? rc : await_nth(side, round);
}

/* 大消息要等对方取走，buffer 才能改；小消息早已拷走，这里不等。*/
static int send_nth(struct side *side, struct tag_request *request,
		    uint64_t nth)
{
	char *out = slot_of(side, side->out, nth);
	uint64_t stamp = htole64(nth);
	int rc = tag_wait(&side->channel, request, message_ms(side));

	memcpy(out, &stamp, stamp_size(side));
	return rc ? rc
		  : tag_send(&side->channel, request, out,
			     side->opt.config.msg_size, TAG_OF_ROUND);
}

static int run_plan(struct side *side, struct laps *laps)
{
	const struct rdma_options *opt = &side->opt;
	bool first = opt->role == ROLE_CLIENT;
	struct tag_request sent = { .status = 0 };
	int rc = 0;

	if (first)
		laps_start(laps);
	for (uint64_t i = 0; i < opt->plan.iters && !rc; i++) {
		if (!first)
			rc = receive_round(side, i);
		if (!rc)
			rc = send_nth(side, &sent, i);
		if (!rc && first)
			rc = receive_round(side, i);
		if (first)
			laps_next(laps);
	}
	if (!rc)
		rc = tag_wait(&side->channel, &sent, message_ms(side));
	return rc ? rc : tag_flush(&side->channel, message_ms(side));
}

/* server 说的两句话：receive 都 post 了；最后一条也核对过了。时间就是这之间的。*/
static int wait_for_server(struct side *side)
{
	struct tag_channel *channel = &side->channel;
	struct tag_request request;
	int rc = side->opt.role == ROLE_CLIENT
			 ? tag_recv(channel, &request, NULL, 0, TAG_OF_SERVER,
				    TAG_EXACT)
			 : tag_send(channel, &request, NULL, 0, TAG_OF_SERVER);

	return rc ? rc : tag_wait(channel, &request, message_ms(side));
}

static int send_all(struct side *side)
{
	const uint64_t iters = side->opt.plan.iters;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < iters; i++)
		rc = send_nth(side, &side->requests[i % side->slots], i);
	for (uint32_t i = 0; !rc && i < side->slots; i++)
		rc = tag_wait(&side->channel, &side->requests[i],
			      message_ms(side));
	return rc;
}

static int receive_all(struct side *side)
{
	const uint64_t iters = side->opt.plan.iters;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < iters; i++) {
		rc = await_nth(side, i);
		if (!rc && i + side->slots < iters)
			rc = post_nth(side, i + side->slots);
	}
	return rc;
}

static int prepare(struct side *side, struct laps *laps)
{
	const struct measure_plan *plan = &side->opt.plan;
	const bool client = side->opt.role == ROLE_CLIENT;
	int rc = make_buffers(side);
	const uint64_t first =
		side->slots < plan->iters ? side->slots : plan->iters;

	if (plan->mode == MODE_PINGPONG)
		return rc || !client ? rc : laps_init(laps, plan->iters);
	for (uint64_t i = 0; !client && !rc && i < first; i++)
		rc = post_nth(side, i);
	return rc ? rc : wait_for_server(side);
}

static int stream(struct side *side)
{
	int rc = side->opt.role == ROLE_CLIENT ? send_all(side)
					       : receive_all(side);

	if (!rc)
		rc = wait_for_server(side);
	return rc ? rc : tag_flush(&side->channel, message_ms(side));
}

static int measure(struct side *side, struct outcome *out)
{
	const struct rdma_options *opt = &side->opt;
	const bool there_and_back = opt->plan.mode == MODE_PINGPONG;
	struct laps laps = { 0 };
	double bytes = (double)opt->plan.iters * opt->config.msg_size;
	int64_t start;
	int rc = prepare(side, &laps);

	if (rc)
		return rc;
	start = now_ns();
	rc = there_and_back ? run_plan(side, &laps) : stream(side);
	if (!rc && opt->role == ROLE_CLIENT) {
		out->measured = true;
		out->measure.seconds = (double)(now_ns() - start) / 1e9;
		out->measure.mb_per_s = bytes * (1 + there_and_back) /
					out->measure.seconds / 1e6;
		if (there_and_back)
			out->measure.half_us = laps_halved(&laps);
	}
	laps_free(&laps);
	return rc;
}

static int talk(struct side *side)
{
	struct outcome out = { 0 };
	int rc = bring_up(side);

	if (rc)
		return rc;
	report_step(side->opt.plan.window ? "messages, one way" : "ping-pong");
	rc = agree_on_window(side);
	if (!rc)
		rc = side->opt.role == ROLE_CLIENT ? tell_plan(side)
						   : learn_plan(side);
	if (!rc)
		rc = measure(side, &out);
	report_step("meet the peer again before anything is destroyed");
	rc = sock_sync_step(side->sock, SYNC_DONE, rc, exchange_deadline(side));
	return rc ? rc : report_outcome(&side->opt, &side->res, &out);
}

int main(int argc, char *argv[])
{
	struct side side = { .sock = -1, .listener = -1 };
	int rc = parse(&side, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = talk(&side);
	sock_close(&side.sock);
	sock_close(&side.listener);
	undo = tag_channel_close(&side.channel);
	undo |= destroy_rdma_resources(&side.res);
	free(side.requests);
	free(side.out);
	free(side.in);
	return rc || undo ? 1 : 0;
}

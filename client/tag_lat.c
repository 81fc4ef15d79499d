// SPDX-License-Identifier: MIT
/*
 * tag_lat.c —— tag channel 上的 ping-pong：一来一回要多久
 *
 * 与 ucx_perftest -t tag_lat 做同样的事，好拿来比较：每一轮各发一条带 tag 的消息，
 * receive 在自己发出之后才 post。消息多长、多少轮由 client 决定，它用第一条消息（另一个
 * tag）告诉 server；每条消息的序号与长度都要核对。
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

#define TAG_OF_PLAN  1
#define TAG_OF_ROUND 2
#define MAX_ROUNDS   100000000
#define ACCEPT_MS    300000

struct tag_lat {
	struct rdma_options opt;
	struct tag_limits limits;
};

/* 一端的全部：连接、channel、收发各自的 buffer。*/
struct side {
	struct tag_lat *lat;
	struct rdma_resources res;
	struct tag_channel channel;
	char *out, *in;
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

static int parse(struct tag_lat *lat, int argc, char *argv[])
{
	struct rdma_options *opt = &lat->opt;
	const struct option_row rows[] = {
		{ 's', "size", "B", "bytes of each message, 0 ... # (@)",
		  NUMBER(opt->config.msg_size, 64, 0, MAX_MSG_SIZE) },
		{ 'n', "iters", "N", "round trips (@)",
		  NUMBER(opt->plan.iters, 1000, 1, MAX_ROUNDS) },
		{ 'e', "eager", "B",
		  "rendezvous above this size, the same on\nboth sides (@)",
		  NUMBER(lat->limits.eager_max, TAG_EAGER_MAX, 1, 1 << 20) },
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

	*lat = (struct tag_lat){ .opt = { .role = ROLE_SERVER,
					  .plan = { .mode = MODE_PINGPONG } } };
	rc = take_options(&line, &argc, &argv);
	return rc < 0 ? parse_operands(opt, argc, argv) : rc;
}

/* 大消息给大期限：每 MiB 多一秒，再慢的实验机也够了。*/
static int message_ms(const struct side *side)
{
	return timeout_or(&side->lat->opt, POLL_TIMEOUT_MS) +
	       (int)(side->lat->opt.config.msg_size >> 10);
}

static int64_t exchange_deadline(const struct side *side)
{
	return deadline_in_ms(timeout_or(&side->lat->opt, EXCHANGE_TIMEOUT_MS));
}

static int meet_over_tcp(struct side *side)
{
	const struct rdma_options *opt = &side->lat->opt;

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
	struct tag_lat *lat = side->lat;
	struct rdma_config config = lat->opt.config;
	int rc;

	report_step("open the device, make PD, MR, CQ, QP and the channel");
	tag_channel_config(&config, &lat->limits);
	rc = init_rdma_resources(&side->res, &config);
	if (!rc)
		rc = modify_qp_to_init(&side->res);
	if (!rc)
		rc = tag_channel_open(&side->channel, &side->res, &lat->limits);
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

struct round_plan {
	uint64_t size;
	uint64_t iters;
};

/* client 说了算：server 不必用同样的选项启动。*/
static int tell_plan(struct side *side)
{
	const struct rdma_options *opt = &side->lat->opt;
	const struct round_plan plan = { htole64(opt->config.msg_size),
					 htole64(opt->plan.iters) };
	struct tag_request request;
	int rc = tag_send(&side->channel, &request, &plan, sizeof(plan),
			  TAG_OF_PLAN);

	return rc ? rc : tag_wait(&side->channel, &request, message_ms(side));
}

static int learn_plan(struct side *side)
{
	struct rdma_options *opt = &side->lat->opt;
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

static int make_buffers(struct side *side)
{
	size_t size = side->lat->opt.config.msg_size;

	/* 至少 8 字节，放得下序号；先摸一遍，别把缺页算进延迟。*/
	side->out = calloc(1, size + sizeof(uint64_t));
	side->in = calloc(1, size + sizeof(uint64_t));
	if (side->out && side->in) {
		memset(side->in, 1, size);
		memset(side->out, 1, size);
		return 0;
	}
	return fail(-ENOMEM, "choose a smaller --size",
		    "no memory for two messages of %zu bytes", size);
}

static size_t stamp_size(const struct side *side)
{
	size_t size = side->lat->opt.config.msg_size;

	return size < sizeof(uint64_t) ? size : sizeof(uint64_t);
}

static int receive_round(struct side *side, uint64_t round)
{
	uint64_t size = side->lat->opt.config.msg_size;
	uint64_t stamp = htole64(round);
	struct tag_request request;
	int rc = tag_recv(&side->channel, &request, side->in, size,
			  TAG_OF_ROUND, TAG_EXACT);

	if (!rc)
		rc = tag_wait(&side->channel, &request, message_ms(side));
	if (rc && rc != -EMSGSIZE)
		return rc;
	if (!rc && request.length == size &&
	    !memcmp(side->in, &stamp, stamp_size(side)))
		return 0;
	return fail(-EBADMSG, NULL,
		    "message %ju arrived wrong: %ju bytes (%ju expected)",
		    round, request.length, size);
}

static int play(struct side *side, struct laps *laps)
{
	const struct rdma_options *opt = &side->lat->opt;
	bool first = opt->role == ROLE_CLIENT;
	uint64_t size = opt->config.msg_size;
	struct tag_request sent = { .status = 0 };
	int rc = 0;

	if (first)
		laps_start(laps);
	for (uint64_t i = 0; i < opt->plan.iters && !rc; i++) {
		uint64_t stamp = htole64(i);

		if (!first)
			rc = receive_round(side, i);
		/* 大消息要等对方取走，buffer 才能改；小消息早已拷走，这里不等。*/
		if (!rc)
			rc = tag_wait(&side->channel, &sent, message_ms(side));
		memcpy(side->out, &stamp, stamp_size(side));
		if (!rc)
			rc = tag_send(&side->channel, &sent, side->out, size,
				      TAG_OF_ROUND);
		if (!rc && first)
			rc = receive_round(side, i);
		if (first)
			laps_next(laps);
	}
	if (!rc)
		rc = tag_wait(&side->channel, &sent, message_ms(side));
	return rc ? rc : tag_flush(&side->channel, message_ms(side));
}

static int measure(struct side *side, struct outcome *out)
{
	const struct rdma_options *opt = &side->lat->opt;
	struct laps laps = { 0 };
	double bytes;
	int64_t start;
	int rc = make_buffers(side);

	if (!rc && opt->role == ROLE_CLIENT)
		rc = laps_init(&laps, opt->plan.iters);
	if (rc)
		return rc;
	start = now_ns();
	rc = play(side, &laps);
	if (!rc && opt->role == ROLE_CLIENT) {
		bytes = 2.0 * (double)opt->plan.iters * opt->config.msg_size;
		out->measured = true;
		out->measure.seconds = (double)(now_ns() - start) / 1e9;
		out->measure.mb_per_s = bytes / out->measure.seconds / 1e6;
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
	report_step("ping-pong");
	rc = side->lat->opt.role == ROLE_CLIENT ? tell_plan(side)
						: learn_plan(side);
	if (!rc)
		rc = measure(side, &out);
	report_step("meet the peer again before anything is destroyed");
	rc = sock_sync_step(side->sock, SYNC_DONE, rc, exchange_deadline(side));
	return rc ? rc : report_outcome(&side->lat->opt, &side->res, &out);
}

int main(int argc, char *argv[])
{
	struct tag_lat lat;
	struct side side = { .lat = &lat, .sock = -1, .listener = -1 };
	int rc = parse(&lat, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = talk(&side);
	sock_close(&side.sock);
	sock_close(&side.listener);
	tag_channel_close(&side.channel);
	undo = destroy_rdma_resources(&side.res);
	free(side.out);
	free(side.in);
	return rc || undo ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * ring_server.c —— 消费者：每个生产者一个 ring，不 post receive，只看内存
 *
 *	生产者 ──WRITE 消息 n──> ring 的第 n % places 个位置
 *	生产者 <──WRITE 已取走多少（credit）── 消费者
 *
 * 每个生产者有自己的 PD、MR 与 QP：它的 rkey 只打得开它自己的 ring，碰不到别人的；它在
 * 任何时刻死掉，坏的也只是它自己的 ring。死时已经完整到达的消息照样取走，只到了一半的，
 * crc 对不上，就当没来过。取到的每条都核对：序号一个接一个，内容由序号算得出来。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/pattern.h"
#include "base/report.h"
#include "pair/options.h"
#include "peers.h"
#include "remote/ring.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct server_options {
	struct rdma_options where; /* device, port, GID index */
	unsigned int clients;	   /* at once */
	uint32_t places;
	uint32_t size; /* bytes of a message at most */
	int handshake_ms;
};

struct reader {
	const struct server_options *opt;
	struct rdma_resources owner; /* the device */
};

#define USAGE "usage: ring_server [options] " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] = USAGE "\n\n"
				 "Takes messages that ring_client WRITEs into "
				 "its memory, checks each, and gives\n"
				 "credit by WRITE. It posts no receive. Each "
				 "client has its own ring, PD and QP.\n"
				 "If a client is killed, its complete messages "
				 "are taken; what it had not sent,\n"
				 "or only in part, is lost.\n\n" DEVICE_HELP;
static const char tail[] = "\nSIGINT or SIGTERM ends it. " EXIT_CODES;

static int parse(struct server_options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'r', "places", "N",
		  "messages in a ring, 2 ... # (default: @)",
		  NUMBER(opt->places, 256, 2, RING_PLACES_MOST) },
		{ 's', "size", "B",
		  "bytes of a message at most, 8 ... # (default: @)",
		  NUMBER(opt->size, 240, 8, RING_MESSAGE_MOST) },
		{ 'n', "max-clients", "N",
		  "clients at once, 1 ... # (default: @)",
		  NUMBER(opt->clients, 64, 1, PEERS_MOST) },
		{ 't', "timeout", "SECS", "limit of one handshake (default: @)",
		  SECONDS(opt->handshake_ms, EXCHANGE_TIMEOUT_MS / 1000, 1,
			  86400) },
		{ QUIET("print only failures") },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, head, tail, 21, NULL, rows };
	int rc;

	*opt = (struct server_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = options_device(&opt->where, usage, argc, argv);
	if (rc < 0 && (uint64_t)opt->places * ring_place_bytes(opt->size) >
			      MAX_MSG_SIZE / 16)
		rc = wrong_usage(usage,
				 "--places and --size make more than 64 MiB",
				 NULL);
	return rc;
}

/* ---- 给一个生产者建一个 ring --------------------------------------------------- */

static int send_plan(const struct peer *peer, int64_t deadline)
{
	const struct reader *reader = peer->service->context;
	const struct ring_plan plan = {
		.magic = htobe32(RING_MAGIC),
		.places = htobe32(reader->opt->places),
		.place_bytes = htobe32(ring_place_bytes(reader->opt->size)),
	};

	return sock_write_exact(peer->sock, &plan, sizeof(plan), deadline,
				"plan of the ring");
}

static int meet_producer(struct peer *peer, int64_t deadline)
{
	const struct reader *reader = peer->service->context;
	const uint32_t place = ring_place_bytes(reader->opt->size);
	/* 第 2 阶段的 receive slot 就是 ring：只是从不 post；send slot 里放 credit。*/
	const struct rdma_config config = { .msg_size = reader->opt->places *
							place };
	struct rdma_resources *res = &peer->res;
	int rc;

	*res = reader->owner;
	rc = create_objects(res, &config);
	if (!rc)
		rc = modify_qp_to_init(res);
	if (!rc)
		rc = exchange_cm_con_data(res, peer->sock, deadline);
	if (rc)
		return rc;
	rc = peer_connect(peer, deadline);
	return rc ? rc : send_plan(peer, deadline);
}

static void close_ring(struct peer *peer)
{
	peer->res.context = NULL; /* 设备是借来的 */
	destroy_objects(&peer->res);
}

/* ---- 取消息，还 credit -------------------------------------------------------- */

struct ring {
	struct peer *peer;
	const struct server_options *opt;
	uint32_t place_bytes;
	struct ring_message *copy;
	uint64_t taken, bytes;
	uint64_t credited; /* of taken: the producer has been told of */
	bool telling;	   /* the WRITE of credit has not completed yet */
};

static int check(const struct ring *ring)
{
	const struct ring_message *m = ring->copy;
	/* 种子是生产者的 QPN 与序号：串到别人 ring 里的消息也认得出来。*/
	const uint64_t seed =
		(uint64_t)ring->peer->res.remote.qp_num << 40 | m->number;

	if (pattern_first_wrong(m->data, m->length, seed) == m->length)
		return 0;
	return fail(-EBADMSG, NULL,
		    "client %u: message %ju of %u bytes has the wrong content",
		    ring->peer->number, (uintmax_t)m->number - 1, m->length);
}

// region ring-consume
static int take_all(struct ring *ring)
{
	const char *places = recv_slot(&ring->peer->res, 0);
	const uint64_t most = ring->credited + ring->opt->places;
	int rc = 0;

	while (!rc && ring->taken < most &&
	       ring_take(places + ring->taken % ring->opt->places *
					  ring->place_bytes,
			 ring->place_bytes, ring->taken, ring->copy)) {
		rc = check(ring);
		ring->taken++;
		ring->bytes += ring->copy->length;
	}
	return rc;
}

/*
 * 取走 ring 的四分之一，或者空闲时，才还 credit：如果每条都还，credit 比消息还
 * 多。上一个 WRITE 完成之前不发下一个：在那之前，它的 slot 仍归网卡使用。
 */
static int give_credit(struct ring *ring, bool idle)
{
	struct rdma_resources *res = &ring->peer->res;
	const uint64_t owed = ring->taken - ring->credited;
	struct ring_credit credit = ring_credit_of(ring->taken);
	struct ibv_wc wc;
	int rc = ring->telling ? try_completion(res, &wc) : 0;

	if (rc > 0)
		ring->telling = false;
	if (rc < 0 || ring->telling || !owed ||
	    (!idle && owed < ring->opt->places / 4))
		return rc < 0 ? rc : 0;
	memcpy(send_slot(res, 0), &credit, sizeof(credit));
	rc = post_write(res, 0, sizeof(credit), res->remote.addr,
			res->remote.rkey, IBV_SEND_SIGNALED);
	ring->telling = !rc;
	ring->credited = ring->taken;
	return rc;
}
// endregion ring-consume

static int read_ring(struct ring *ring)
{
	struct poll_pause pause = { 0 };
	uint64_t before;
	int rc = 0;

	while (!rc) {
		before = ring->taken;
		rc = take_all(ring);
		if (!rc)
			rc = give_credit(ring, ring->taken == before);
		if (ring->taken != before)
			pause = (struct poll_pause){ 0 };
		else if (!rc)
			rc = pause_between_polls(&pause, INT64_MAX, 0);
		/* 闲了一阵才去问 TCP：它断了，消息就到头了。*/
		if (!rc && pause.napped)
			rc = peer_wait(ring->peer, 0);
	}
	return rc;
}

static void serve_ring(struct peer *peer)
{
	const struct reader *reader = peer->service->context;
	struct ring ring = { .peer = peer,
			     .opt = reader->opt,
			     .place_bytes =
				     ring_place_bytes(reader->opt->size) };
	int rc;

	ring.copy = malloc(ring.place_bytes);
	if (!ring.copy) {
		no_memory_for_buffer(ring.place_bytes);
		return;
	}
	rc = read_ring(&ring);
	if (rc == -ECONNRESET) /* 走之前的最后几条 */
		take_all(&ring);
	report_fact("client %u (%s): took %ju messages, %ju bytes",
		    peer->number, peer->name, ring.taken, ring.bytes);
	free(ring.copy);
}

/* ---- 从头到尾 --------------------------------------------------------------- */

static int serve(const struct server_options *opt, struct reader *reader)
{
	const struct peer_service clients = {
		.who = "client",
		.more = "raise --max-clients",
		.most = opt->clients,
		.handshake_ms = opt->handshake_ms,
		.meet = meet_producer,
		.serve = serve_ring,
		.part = close_ring,
		.context = reader,
	};
	int rc;

	report_step("open the device");
	rc = open_device(&reader->owner, &opt->where.config);
	if (rc)
		return rc;
	report_step("give each client a ring, and take what it WRITEs");
	return serve_peers(&clients, opt->where.tcp_port);
}

int main(int argc, char *argv[])
{
	struct server_options opt;
	struct reader reader = { .opt = &opt };
	int rc = parse(&opt, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	expect_stop();
	rc = serve(&opt, &reader);
	report_step("close the device");
	undo = destroy_rdma_resources(&reader.owner);
	return rc || undo ? 1 : 0;
}

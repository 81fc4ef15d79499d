// SPDX-License-Identifier: MIT
/*
 * ring_client.c —— 生产者：往别人的 ring 里 WRITE 很多小消息，有 credit 才写
 *
 * 两件事都要等，缺一不可：
 *
 *	credit      消费者取走了那个位置上的旧消息。不等，就盖掉了还没看的。
 *	completion  网卡放开了本地的 slot。不等，重传时发出去的就是新内容；SQ 也会满。
 *
 * credit 说明“消息到了、也取走了”，却不说明 ACK 回来了：ACK 丢了，网卡还会重传。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/pattern.h"
#include "base/report.h"
#include "pair/options.h"
#include "remote/ring.h"

#include <endian.h>
#include <errno.h>

#define SLOTS  256u /* WRITEs that can be outstanding */
#define SIGNAL 32u  /* one of so many has a completion */

struct ring_options {
	struct rdma_options where;
	uint64_t messages;
	uint32_t size; /* UINT32_MAX: 0 ... as many as fit, mixed */
};

struct producer {
	struct rdma_resources res;
	int sock;
	int timeout_ms;
	uint32_t places, place_bytes;
	uint64_t sent;
	uint64_t completed; /* of sent: their slots are mine again */
	uint64_t taken;	    /* of sent: the consumer says so */
	double seconds;
};

#define USAGE "usage: ring_client [options] <server_ip> " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] =
	USAGE "\n\n"
	      "WRITEs messages into its ring at ring_server, as far as its "
	      "credit allows. Ends\n"
	      "when all of them have been taken and found correct. If it "
	      "fails, messages\n"
	      "without credit may have been taken or lost.\n\n"
	      "  server_ip          where ring_server runs\n" DEVICE_HELP;
static const char tail[] = "\n" EXIT_CODES;

static int parse(struct ring_options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'n', "messages", "N", "send N messages (default: @)",
		  NUMBER(opt->messages, 10000, 1, UINT32_MAX) },
		{ 's', "size", "B",
		  "bytes of each (default: mixed, from 0 to as\nmany as fit)",
		  NUMBER(opt->size, UINT32_MAX, 0, RING_MESSAGE_MOST) },
		{ 't', "timeout", "SECS",
		  "limit of every wait (default: 10 for the\nserver, 5 for all "
		  "others)",
		  SECONDS(opt->where.timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(opt->where.json) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, head, tail, 21, NULL, rows };
	int rc;

	*opt = (struct ring_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	return rc < 0 ? options_server(&opt->where, usage, argc, argv) : rc;
}

/* ---- 连上 ------------------------------------------------------------------- */

static int learn_plan(struct producer *p, uint32_t size, int64_t deadline)
{
	struct ring_plan plan;
	int rc = sock_read_exact(p->sock, &plan, sizeof(plan), deadline,
				 "plan of the ring");

	if (rc)
		return rc;
	p->places = be32toh(plan.places);
	p->place_bytes = be32toh(plan.place_bytes);
	if (be32toh(plan.magic) != RING_MAGIC || p->places < 2 ||
	    p->places > RING_PLACES_MOST ||
	    p->place_bytes <= sizeof(struct ring_message) ||
	    p->place_bytes > ring_place_bytes(RING_MESSAGE_MOST) ||
	    (uint64_t)p->places * p->place_bytes > p->res.remote.size)
		return fail(-EPROTO, "start build/ring_server there",
			    "the server has no ring for me: magic 0x%08x, %u "
			    "places of %u bytes in %u",
			    be32toh(plan.magic), p->places, p->place_bytes,
			    p->res.remote.size);
	if (size != UINT32_MAX && ring_place_bytes(size) > p->place_bytes)
		return fail(-EMSGSIZE, "start ring_server with a larger --size",
			    "a message of %u bytes does not fit into a place "
			    "of %u",
			    size, p->place_bytes);
	return 0;
}

static int open_ring(struct producer *p, const struct ring_options *opt)
{
	struct rdma_config config = opt->where.config;
	int64_t deadline;
	int rc;

	/* send slot 里是消息；唯一的 receive slot 从不 post，credit 就写在它里面。*/
	config.msg_size = ring_place_bytes(
		opt->size == UINT32_MAX ? RING_MESSAGE_MOST : opt->size);
	config.send_slots = SLOTS;
	rc = init_rdma_resources(&p->res, &config);
	if (!rc)
		rc = modify_qp_to_init(&p->res);
	if (rc)
		return rc;
	p->timeout_ms = timeout_or(&opt->where, POLL_TIMEOUT_MS);
	deadline = deadline_in_ms(timeout_or(&opt->where, EXCHANGE_TIMEOUT_MS));
	p->sock = tcp_connect(opt->where.server, opt->where.tcp_port, deadline);
	if (p->sock < 0)
		return p->sock;
	rc = connect_qp(&p->res, p->sock, deadline);
	return rc ? rc : learn_plan(p, opt->size, deadline);
}

/* ---- 写 --------------------------------------------------------------------- */

/* 看一眼两边的进展，不等。*/
static int look(struct producer *p)
{
	struct ibv_wc wc;
	uint64_t taken;
	int n;

	do {
		n = try_completion(&p->res, &wc);
		p->completed += n > 0 ? SIGNAL : 0;
	} while (n > 0);
	if (n < 0 || !ring_credit_take(recv_slot(&p->res, 0), &taken))
		return n;
	if (taken < p->taken || taken > p->sent)
		return fail(-EPROTO, "run the same build on both sides",
			    "credit for %ju messages, after %ju; sent are %ju",
			    taken, p->taken, p->sent);
	p->taken = taken;
	return 0;
}

// region ring-produce
/* 等到未被取走的不超过 @places 条，未完成的不超过 @slots 条。*/
static int wait_for_room(struct producer *p, uint64_t places, uint64_t slots)
{
	struct poll_pause pause = { 0 };
	uint64_t before;
	int rc = 0;

	for (;;) {
		before = p->taken;
		rc = rc ? rc : look(p);
		if (rc || (p->sent - p->taken <= places &&
			   p->sent - p->completed <= slots))
			return rc;
		if (p->taken != before)
			pause = (struct poll_pause){ 0 };
		/*
		 * 消费者可能中途退出：RC 要重传好几秒才能发现，TCP 立刻就知
		 * 道。
		 */
		if (pause.napped)
			rc = sock_check_peer(p->sock, SYNC_DONE);
		if (!rc)
			rc = pause_between_polls(&pause, INT64_MAX,
						 p->timeout_ms);
		if (rc == -ETIMEDOUT)
			return fail(rc, "is the server stopped?",
				    "no credit for %d ms: %ju sent, %ju taken",
				    p->timeout_ms, p->sent, p->taken);
		if (rc == -EINTR)
			return wait_failed(rc, "%s", "waiting for credit");
	}
}

static int send_one(struct producer *p, uint32_t length)
{
	const uint32_t slot = (uint32_t)(p->sent % SLOTS);
	struct ring_message *m =
		(struct ring_message *)(void *)send_slot(&p->res, slot);
	const uint64_t seed = (uint64_t)p->res.qp->qp_num << 40 | (p->sent + 1);
	const uint64_t place = p->sent % p->places * p->place_bytes;

	pattern_fill(m->data, length, seed);
	ring_seal(m, p->sent, length);
	p->sent++;
	return post_write(&p->res, slot, (uint32_t)sizeof(*m) + length,
			  p->res.remote.addr + place, p->res.remote.rkey,
			  p->sent % SIGNAL ? 0 : IBV_SEND_SIGNALED);
}
// endregion ring-produce

static int send_all(struct producer *p, const struct ring_options *opt)
{
	const uint32_t most =
		p->place_bytes - (uint32_t)sizeof(struct ring_message);
	const int64_t began = now_ns();
	int rc = 0;

	for (uint64_t i = 0; i < opt->messages && !rc; i++) {
		/* 长短不一：每种长度都会轮到，短消息后面留着上一圈长消息的尾巴。*/
		uint32_t length = opt->size != UINT32_MAX
					  ? opt->size
					  : (uint32_t)(i * 7919 % (most + 1));

		/* 总有空位就从不停顿，Ctrl-C 没有人看：所以先看一眼。*/
		rc = stop_requested()
			     ? wait_failed(-EINTR, "%s", "sending")
			     : wait_for_room(p, p->places - 1, SLOTS - 1);
		if (!rc)
			rc = send_one(p, length);
	}
	/* 最后几条没有 completion，却一定有 credit：全部取走、核对过了，才算完。*/
	if (!rc)
		rc = wait_for_room(p, 0, SLOTS);
	p->seconds = (double)(now_ns() - began) / 1e9;
	return rc;
}

/* ---- 从头到尾 --------------------------------------------------------------- */

static int print_result(const struct ring_options *opt,
			const struct producer *p)
{
	const double rate = (double)p->sent / p->seconds;

	if (opt->where.json)
		return print_json_line(
			json_pack("{s:s, s:I, s:f, s:f}", "role", "ring_client",
				  "messages", (json_int_t)p->sent, "seconds",
				  p->seconds, "messages_per_s", rate));
	report_result("%ju messages, all taken: %.0f per second", p->sent,
		      rate);
	return report_flush();
}

int main(int argc, char *argv[])
{
	struct producer producer = { .sock = -1 };
	struct ring_options opt;
	int rc = parse(&opt, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	report_step("connect to the server of the ring");
	rc = open_ring(&producer, &opt);
	if (!rc) {
		report_step("WRITE messages as far as the credit goes");
		rc = send_all(&producer, &opt);
	}
	sock_close(&producer.sock);
	undo = destroy_rdma_resources(&producer.res);
	if (!rc && !undo)
		rc = print_result(&opt, &producer);
	return rc || undo ? 1 : 0;
}

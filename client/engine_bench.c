// SPDX-License-Identifier: MIT
/*
 * engine_bench.c —— 量两样东西：一次 Ping 要多久，一秒能读多少
 *
 * 一条连接上的请求是一问一答、按次序的，所以“同时 16 个 READ”就是 16 条连接，各自在
 * 走 StartRead → (MapBuffer) → CompleteRead 的一圈；由一个事件循环照看它们。
 */
#include "engine_bench.h"

#include "base/call_failed.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/event_loop.h"
#include "base/json_line.h"
#include "base/laps.h"
#include "base/report.h"
#include "engine/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Ping --------------------------------------------------------------- */

static int ping_once(struct engine_connection *c, int wait_ms,
		     struct engine_message *request,
		     struct engine_message *answer)
{
	*request = (struct engine_message){
		.type = ENGINE_PING,
		.ping = { .timestamp_ns = engine_unix_ns(),
			  .client_id = engine_text_of("bench") },
	};
	return engine_call(c, request, ENGINE_PONG, answer, wait_ms);
}

/* 0：没有内存。*/
static size_t bytes_of(const struct engine_message *m)
{
	struct engine_stream s;
	size_t size;

	engine_stream_init(&s, -1, ENGINE_FRAME_MAX);
	size = engine_encode(m, &s) ? 0 : engine_stream_pending(&s);
	engine_stream_close(&s);
	return size;
}

static int report_pings(const struct engine_client_options *opt,
			struct laps *laps, size_t request, size_t answer)
{
	struct lap_summary half = laps_halved(laps);

	if (!request || !answer)
		return fail(-ENOMEM, NULL, "no memory for a message");
	if (opt->json)
		return print_json_line(json_pack(
			"{s:s, s:I, s:I, s:I, s:o}", "bench", "ping", "iters",
			(json_int_t)laps->done, "request_bytes",
			(json_int_t)request, "answer_bytes", (json_int_t)answer,
			"half_round_trip_us", lap_summary_as_json(&half)));
	report_round_trips(laps->done, request, &half);
	return 0;
}

int engine_bench_ping(const struct engine_client_options *opt)
{
	struct engine_connection c = { .stream.fd = -1 };
	struct engine_message request, answer;
	uint64_t iters = opt->iters ? opt->iters : 1000;
	struct laps laps;
	int rc = laps_init(&laps, iters);

	if (rc)
		return rc;
	rc = engine_connect(&c, opt->socket, deadline_in_ms(opt->wait_ms));
	if (!rc) /* 预热 */
		rc = ping_once(&c, opt->wait_ms, &request, &answer);
	laps_start(&laps);
	for (uint64_t i = 0; i < iters && !rc; i++) {
		rc = ping_once(&c, opt->wait_ms, &request, &answer);
		laps_next(&laps);
	}
	if (!rc)
		rc = report_pings(opt, &laps, bytes_of(&request),
				  bytes_of(&answer));
	engine_disconnect(&c);
	laps_free(&laps);
	return rc;
}

/* ---- 读 ----------------------------------------------------------------- */

/* 一条连接，和它正等的几个回答。*/
struct lane {
	struct bench *bench;
	struct engine_connection c;
	struct event_source source;
	unsigned int starts, maps, completes;
	char id[ENGINE_ID_SIZE];
	uint64_t size;
	uint32_t crc;
};

struct bench {
	const struct engine_client_options *opt;
	const struct engine_message start; /* StartRead */
	struct event_loop loop;
	struct timer stall;
	struct lane *lanes;
	uint64_t begun, done, bytes, iters;
	uint64_t done_before; /* when stall was set */
	int rc;
};

static int64_t deadline_of(const struct bench *b)
{
	return deadline_in_ms(b->opt->wait_ms);
}

static int begin_read(struct bench *b, struct lane *lane)
{
	b->begun++;
	lane->starts++;
	return engine_write(&lane->c, &b->start);
}

static int ask_for_map(struct bench *b, struct lane *lane)
{
	const struct engine_message m = {
		.type = ENGINE_MAP_BUFFER,
		.map_buffer = { engine_text_of(lane->id) },
	};

	lane->maps++;
	lane->c.stream.takes_fds = true;
	return engine_send(&lane->c, &m, deadline_of(b));
}

static int complete(struct bench *b, struct lane *lane)
{
	const struct engine_message m = {
		.type = ENGINE_COMPLETE_READ,
		.complete_read = { .session_id = engine_text_of(lane->id),
				   .success = true,
				   .bytes_transferred = lane->size,
				   .client_crc = { true, lane->crc } },
	};
	/*
	 * 下一个 StartRead 排在前面，跟它一起发出去：两个回答于是也一起回来，每读一次
	 * 只醒一次。
	 */
	int rc = b->begun < b->iters ? begin_read(b, lane) : 0;

	lane->completes++;
	return rc ? rc : engine_send(&lane->c, &m, deadline_of(b));
}

static int on_started(struct bench *b, struct lane *lane,
		      const struct engine_start_read_response *started)
{
	int rc = engine_keep_id(lane->id, started);

	if (rc)
		return rc;
	lane->size = started->transfer_size;
	lane->crc = started->expected_crc;
	return b->opt->map ? ask_for_map(b, lane) : complete(b, lane);
}

static int on_mapped(struct bench *b, struct lane *lane)
{
	struct engine_mapping mapping;
	uint32_t crc;
	int rc = engine_map_received(&lane->c, lane->size, &mapping);

	if (rc)
		return rc;
	crc = crc32c(0, mapping.data, mapping.size);
	engine_unmap(&mapping);
	if (crc != lane->crc)
		return fail(-EBADMSG, NULL,
			    "the bytes read have CRC-32C 0x%08x, the "
			    "engine says 0x%08x",
			    crc, lane->crc);
	return complete(b, lane);
}

static int step(struct bench *b, struct lane *lane)
{
	struct engine_message m;
	int rc = engine_receive(&lane->c, &m, deadline_of(b));

	if (rc)
		return rc;
	if (m.type == ENGINE_ERROR) {
		engine_report_refusal(&b->start, &m);
		return -EREMOTEIO;
	}
	if (m.type == ENGINE_START_READ_RESPONSE && lane->starts--)
		return on_started(b, lane, &m.started);
	if (m.type == ENGINE_MAP_BUFFER_RESPONSE && lane->maps--)
		return on_mapped(b, lane);
	if (m.type != ENGINE_COMPLETE_READ_RESPONSE || !lane->completes--)
		return fail(-EPROTO, NULL,
			    "the engine answers what nobody asked");
	if (!m.completed.success)
		return fail(-EREMOTEIO, NULL, "CompleteRead did not succeed");
	b->done++;
	b->bytes += lane->size;
	return 0;
}

static void end(struct bench *b, int rc)
{
	b->rc = rc;
	event_loop_end(&b->loop);
}

/* 这条连接上有东西：取来，到齐了几条就处理几条。*/
static void on_lane(void *owner, uint32_t events)
{
	struct lane *lane = owner;
	struct bench *b = lane->bench;
	long n = engine_stream_fill(&lane->c.stream);
	int rc = 0;

	(void)events;
	if (!n || n == -ECONNRESET)
		rc = fail(-ECONNRESET, "see the engine's own messages",
			  "the engine closed the connection");
	else if (n < 0 && n != -EAGAIN)
		rc = fail((int)n, NULL, "receiving from the engine: %s",
			  strerror((int)-n));
	while (!rc && engine_answer_is_there(&lane->c))
		rc = step(b, lane);
	if (rc || b->done == b->iters)
		end(b, rc);
}

static int watch_for_stall(struct bench *b)
{
	b->done_before = b->done;
	return timer_set(&b->loop.timers, &b->stall, deadline_of(b))
		       ? fail(-ENOMEM, NULL, "no memory for a timer")
		       : 0;
}

static void on_stall(void *owner)
{
	struct bench *b = owner;

	if (b->done > b->done_before) {
		int rc = watch_for_stall(b);

		if (rc)
			end(b, rc);
		return;
	}
	report_error("see the engine's own messages",
		     "no read has ended before the deadline");
	end(b, -ETIMEDOUT);
}

static int watch_lane(struct bench *b, struct lane *lane)
{
	int rc = event_loop_add(&b->loop, &lane->source, lane->c.stream.fd,
				EPOLLIN);

	return rc ? call_failed(-rc, "epoll_ctl(the engine's socket)") : 0;
}

static int connect_lanes(struct bench *b)
{
	int rc = 0;

	for (uint64_t i = 0; i < b->opt->in_flight && !rc; i++) {
		struct lane *lane = &b->lanes[i];

		lane->bench = b;
		lane->source = (struct event_source){ on_lane, lane, -1, 0 };
		rc = engine_connect(&lane->c, b->opt->socket, deadline_of(b));
		if (!rc)
			rc = watch_lane(b, lane);
	}
	return rc;
}

static int run(struct bench *b, double *seconds)
{
	int64_t start = now_ns();
	int rc = 0;

	for (uint64_t i = 0; i < b->opt->in_flight && !rc; i++) {
		if (b->begun == b->iters)
			break;
		rc = begin_read(b, &b->lanes[i]);
		if (!rc)
			rc = engine_flush(&b->lanes[i].c, deadline_of(b));
	}
	if (!rc)
		rc = watch_for_stall(b);
	if (!rc)
		rc = event_loop_run(&b->loop);
	*seconds = (double)(now_ns() - start) / 1e9;
	if (!rc && !b->rc && stop_requested())
		rc = fail(-EINTR, NULL, "bench: stopped by a signal");
	return rc ? rc : b->rc;
}

static int report_reads(const struct bench *b, double seconds)
{
	double mb_per_s = (double)b->bytes / 1e6 / seconds;

	if (b->opt->json)
		return print_json_line(json_pack(
			"{s:s, s:I, s:I, s:I, s:b, s:f, s:f}", "bench", "read",
			"iters", (json_int_t)b->iters, "size",
			(json_int_t)(b->bytes / b->iters), "in_flight",
			(json_int_t)b->opt->in_flight, "mapped", b->opt->map,
			"seconds", seconds, "mb_per_s", mb_per_s));
	report_result("%ju reads of %ju bytes, %ju in flight: %.2f MB/s",
		      b->iters, (b->bytes / b->iters), b->opt->in_flight,
		      mb_per_s);
	return 0;
}

int engine_bench_read(const struct engine_client_options *opt,
		      const struct engine_start_read *request)
{
	struct bench b = { .opt = opt,
			   .start = { .type = ENGINE_START_READ,
				      .start_read = *request },
			   .iters = opt->iters ? opt->iters : 1000 };
	double seconds;
	int rc;

	b.stall = (struct timer){ .fire = on_stall, .owner = &b };
	b.lanes = calloc(opt->in_flight, sizeof(*b.lanes));
	if (!b.lanes)
		return fail(-ENOMEM, "choose fewer --in-flight", "no memory");
	for (uint64_t i = 0; i < opt->in_flight; i++)
		b.lanes[i].c.stream.fd = -1;
	rc = event_loop_open(&b.loop);
	if (rc)
		goto free_lanes;
	rc = connect_lanes(&b);
	if (!rc)
		rc = run(&b, &seconds);
	if (!rc)
		rc = report_reads(&b, seconds);
	for (uint64_t i = 0; i < opt->in_flight; i++)
		engine_disconnect(&b.lanes[i].c);
	event_loop_close(&b.loop);
free_lanes:
	free(b.lanes);
	return rc;
}

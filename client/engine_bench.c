// SPDX-License-Identifier: MIT
/*
 * engine_bench.c —— 量两样东西：一次 Ping 要多久，一秒能读多少
 *
 * 一条连接上的请求是一问一答、按次序的，所以“同时 16 个 READ”就是 16 条连接，各自在
 * 走 StartRead → (MapBuffer) → CompleteRead 的一圈；由一个 poll 循环照看它们。
 */
#include "engine_bench.h"

#include "crc32c.h"
#include "deadline.h"
#include "engine_session.h"
#include "laps.h"
#include "report.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MS 500 /* 至多这么久就看一眼停止标志 */

static int timeout_ms(const struct engine_client_options *opt)
{
	return (int)opt->timeout_secs * 1000;
}

static int print_json(json_t *root)
{
	if (!root) {
		report_error(NULL, "no memory for the JSON result");
		return -ENOMEM;
	}
	json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	json_decref(root);
	putchar('\n');
	return 0;
}

/* ---- Ping --------------------------------------------------------------- */

static int ping_once(struct engine_connection *c, int wait_ms)
{
	const struct engine_message request = {
		.type = ENGINE_PING,
		.ping = { .timestamp_ns = engine_unix_ns(),
			  .client_id = engine_text_of("bench") },
	};
	struct engine_message answer;

	return engine_call(c, &request, ENGINE_PONG, &answer, wait_ms);
}

static int report_pings(const struct engine_client_options *opt,
			struct laps *laps, uint64_t iters)
{
	struct lap_summary half = laps_halved(laps);

	if (opt->json)
		return print_json(json_pack("{s:s, s:I, s:o}", "bench", "ping",
					    "iters", (json_int_t)iters,
					    "half_round_trip_us",
					    lap_summary_as_json(&half)));
	report_result("%llu Pings: half round trip min %.2f median %.2f p99 "
		      "%.2f max %.2f us",
		      (unsigned long long)iters, half.min, half.median,
		      half.p99, half.max);
	return 0;
}

int engine_bench_ping(const struct engine_client_options *opt)
{
	struct engine_connection c = { .stream.fd = -1 };
	uint64_t iters = opt->iters ? opt->iters : 1000;
	struct laps laps;
	int rc = laps_init(&laps, iters);

	if (rc)
		return rc;
	rc = engine_connect(&c, opt->socket, deadline_in_ms(timeout_ms(opt)));
	if (!rc)
		rc = ping_once(&c, timeout_ms(opt)); /* 预热 */
	laps_start(&laps);
	for (uint64_t i = 0; i < iters && !rc; i++) {
		rc = ping_once(&c, timeout_ms(opt));
		laps_next(&laps);
	}
	if (!rc)
		rc = report_pings(opt, &laps, iters);
	engine_disconnect(&c);
	laps_free(&laps);
	return rc;
}

/* ---- 读 ----------------------------------------------------------------- */

/* 一条连接，和它正等的回答。*/
struct lane {
	struct engine_connection c;
	enum engine_type awaits;
	char id[ENGINE_ID_SIZE];
	uint64_t size;
	uint32_t crc;
	bool idle; /* 没有要它做的了 */
};

struct bench {
	const struct engine_client_options *opt;
	const struct engine_message start; /* StartRead */
	struct lane *lanes;
	struct pollfd *fds;
	uint64_t begun, done, bytes, iters;
};

static int64_t deadline_of(const struct bench *b)
{
	return deadline_in_ms(timeout_ms(b->opt));
}

static int begin_read(struct bench *b, struct lane *lane)
{
	b->begun++;
	return engine_send(&lane->c, &b->start, deadline_of(b));
}

static int ask_for_map(struct bench *b, struct lane *lane)
{
	const struct engine_message m = {
		.type = ENGINE_MAP_BUFFER,
		.map_buffer = { engine_text_of(lane->id) },
	};

	lane->awaits = ENGINE_MAP_BUFFER_RESPONSE;
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
	int rc = engine_send(&lane->c, &m, deadline_of(b));

	lane->awaits = ENGINE_COMPLETE_READ_RESPONSE;
	/* 下一个 StartRead 紧跟着发出去：省下一次来回里的空等。*/
	if (!rc && b->begun < b->iters)
		rc = begin_read(b, lane);
	else
		lane->idle = true;
	return rc;
}

static int on_started(struct bench *b, struct lane *lane,
		      const struct engine_start_read_response *started)
{
	if (started->session_id.size != ENGINE_ID_SIZE - 1) {
		report_error(NULL, "the engine's session id has %zu bytes",
			     started->session_id.size);
		return -EPROTO;
	}
	memcpy(lane->id, started->session_id.data, ENGINE_ID_SIZE - 1);
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
	if (crc != lane->crc) {
		report_error(NULL,
			     "the bytes read have CRC-32C 0x%08x, the "
			     "engine says 0x%08x",
			     crc, lane->crc);
		return -EBADMSG;
	}
	return complete(b, lane);
}

static int on_completed(struct bench *b, struct lane *lane,
			const struct engine_complete_read_response *completed)
{
	if (!completed->success) {
		report_error(NULL, "CompleteRead did not succeed");
		return -EREMOTEIO;
	}
	b->done++;
	b->bytes += lane->size;
	lane->awaits = ENGINE_START_READ_RESPONSE;
	return 0;
}

// region lane
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
	if (m.type != lane->awaits) {
		report_error(NULL, "the engine answers out of order");
		return -EPROTO;
	}
	if (m.type == ENGINE_START_READ_RESPONSE)
		return on_started(b, lane, &m.started);
	if (m.type == ENGINE_MAP_BUFFER_RESPONSE)
		return on_mapped(b, lane);
	return on_completed(b, lane, &m.completed);
}
// endregion lane

static int step_lanes(struct bench *b)
{
	int n = poll(b->fds, b->opt->in_flight, POLL_MS);
	int rc = 0;

	if (stop_requested()) {
		report_error(NULL, "bench: stopped by a signal");
		return -EINTR;
	}
	for (uint64_t i = 0; i < b->opt->in_flight && n > 0 && !rc; i++) {
		if (!b->fds[i].revents)
			continue;
		do {
			rc = step(b, &b->lanes[i]);
		} while (!rc && engine_answer_is_there(&b->lanes[i].c));
		if (b->lanes[i].idle &&
		    b->lanes[i].awaits == ENGINE_START_READ_RESPONSE)
			b->fds[i].fd = -1;
	}
	return rc;
}

static int connect_lanes(struct bench *b)
{
	int rc = 0;

	for (uint64_t i = 0; i < b->opt->in_flight && !rc; i++) {
		rc = engine_connect(&b->lanes[i].c, b->opt->socket,
				    deadline_of(b));
		b->fds[i] = (struct pollfd){ .fd = b->lanes[i].c.stream.fd,
					     .events = POLLIN };
	}
	return rc;
}

static int run(struct bench *b, double *seconds)
{
	int64_t start = now_ns(), last = start;
	uint64_t done = 0;
	int rc = 0;

	for (uint64_t i = 0; i < b->opt->in_flight && !rc; i++) {
		b->lanes[i].awaits = ENGINE_START_READ_RESPONSE;
		if (b->begun < b->iters)
			rc = begin_read(b, &b->lanes[i]);
		else
			b->fds[i].fd = -1;
	}
	while (b->done < b->iters && !rc) {
		rc = step_lanes(b);
		if (b->done != done || !last)
			last = now_ns();
		done = b->done;
		if (!rc &&
		    now_ns() - last > (int64_t)timeout_ms(b->opt) * 1000000) {
			report_error("see the engine's own messages",
				     "no read has ended before the deadline");
			rc = -ETIMEDOUT;
		}
	}
	*seconds = (double)(now_ns() - start) / 1e9;
	return rc;
}

static int report_reads(const struct bench *b, double seconds)
{
	double mb_per_s = (double)b->bytes / 1e6 / seconds;

	if (b->opt->json)
		return print_json(json_pack(
			"{s:s, s:I, s:I, s:I, s:b, s:f, s:f}", "bench", "read",
			"iters", (json_int_t)b->iters, "size",
			(json_int_t)(b->bytes / b->iters), "in_flight",
			(json_int_t)b->opt->in_flight, "mapped", b->opt->map,
			"seconds", seconds, "mb_per_s", mb_per_s));
	report_result("%llu reads of %llu bytes, %llu in flight: %.2f MB/s",
		      (unsigned long long)b->iters,
		      (unsigned long long)(b->bytes / b->iters),
		      (unsigned long long)b->opt->in_flight, mb_per_s);
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
	int rc = 0;

	b.lanes = calloc(opt->in_flight, sizeof(*b.lanes));
	b.fds = calloc(opt->in_flight, sizeof(*b.fds));
	if (!b.lanes || !b.fds) {
		report_error("choose fewer --in-flight", "no memory");
		rc = -ENOMEM;
	}
	for (uint64_t i = 0; i < opt->in_flight && b.lanes; i++)
		b.lanes[i].c.stream.fd = -1;
	if (!rc)
		rc = connect_lanes(&b);
	if (!rc)
		rc = run(&b, &seconds);
	if (!rc)
		rc = report_reads(&b, seconds);
	for (uint64_t i = 0; i < opt->in_flight && b.lanes; i++)
		engine_disconnect(&b.lanes[i].c);
	free(b.lanes);
	free(b.fds);
	return rc;
}

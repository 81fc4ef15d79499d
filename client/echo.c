// SPDX-License-Identifier: MIT
/*
 * echo.c —— ucx_echo 与 sock_echo 共用：命令行、发什么、怎样核对、怎样报告
 *
 * 两个程序要并排读、并排比，所以与传输无关的都在这里，只写一次。
 */
#include "echo.h"

#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/pattern.h"
#include "base/report.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COUNT    100000000
#define PATTERN_SEED 0x75637865

/* ---- 命令行 ------------------------------------------------------------- */

#define HEAD                             \
	"usage: %1$s server [options]\n" \
	"       %1$s client <server_ip> [options]\n\n"
#define NEXT "usage: %s server | client <server_ip> [options]; see --help"

/* 选项之间的关系最后检查：它们可以以任何次序出现。*/
static int complete_options(struct echo_options *opt, const char *next)
{
	bool sized = opt->size != UINT64_MAX;

	opt->server = !opt->address;
	if (opt->server && (opt->message || sized || opt->count || opt->bench))
		return wrong_usage(next,
				   "--message, --size, --count and --bench are "
				   "the client's",
				   NULL);
	if (!opt->server && opt->clients)
		return wrong_usage(next, "--clients is the server's", NULL);
	if (opt->message && (sized || opt->bench))
		return wrong_usage(
			next, "--message does not go with --size or --bench",
			NULL);
	if (!opt->count)
		opt->count = opt->bench ? 10000 : 1;
	if (!sized && opt->bench)
		opt->size = 8;
	if (!sized && !opt->bench) {
		if (!opt->message)
			opt->message = "hello, world";
		opt->size = strlen(opt->message);
	}
	return -1;
}

static int parse(struct echo_options *opt, const char *program, int argc,
		 char *argv[])
{
	char next[128], head[128];
	const struct option_row rows[] = {
		{ 'p', "port", "P", "port of the server (default: @)",
		  NUMBER(opt->port, 13337, 1, UINT16_MAX) },
		{ 'B', "busy", NULL, "poll instead of sleeping",
		  FLAG(opt->busy) },
		{ 'l', "limit", "B", "largest object taken (default: @)",
		  NUMBER(opt->limit, ECHO_MAX_SIZE, 0, ECHO_MAX_SIZE) },
		{ 'i', "info-timeout", "SECS",
		  "\nlimit of the peer info exchange (default: @);\na socket "
		  "has none",
		  SECONDS(opt->info_ms, 5, 1, 3600) },
		{ 't', "timeout", "SECS",
		  "limit of every other wait (default: 300 for a\nclient's "
		  "next object, 10 for all others)",
		  SECONDS(opt->timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(opt->json) },
		{ HELP },
		{ .help = "the client:" },
		{ 'm', "message", "TEXT",
		  "send this (default: \"hello, world\")", TEXT(opt->message) },
		{ 's', "size", "B", "send a pattern of B bytes, 0 ... #",
		  NUMBER(opt->size, UINT64_MAX, 0, ECHO_MAX_SIZE) },
		{ 'n', "count", "N", "send N objects (default: 1)",
		  NUMBER(opt->count, 0, 1, MAX_COUNT) },
		{ 'b', "bench", NULL,
		  "measure -n round trips (default: 10000) of one\nmessage of "
		  "-s bytes (default: 8) each way",
		  FLAG(opt->bench) },
		{ .help = "the server goes on until SIGINT or SIGTERM, or:" },
		{ 'c', "clients", "N", "end after N clients",
		  NUMBER(opt->clients, 0, 1, MAX_COUNT) },
		{ 0 },
	};
	const struct command_line line = {
		.next = next,
		.head = head,
		.rows = rows,
		.column = 21,
		.tail = "\nExit code: 0 done, 1 failed (with --clients: one of "
			"them), 2 wrong usage.\n",
	};
	int rc;

	snprintf(next, sizeof(next), NEXT, program);
	snprintf(head, sizeof(head), HEAD, program);
	*opt = (struct echo_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = take_role(next, argc, argv, &opt->address);
	return rc < 0 ? complete_options(opt, next) : rc;
}

int echo_timeout(const struct echo_options *opt, int default_ms)
{
	return opt->timeout_ms ? opt->timeout_ms : default_ms;
}

/* ---- 内容 --------------------------------------------------------------- */

static int run_client(const struct echo_options *opt, echo_client_fn *client,
		      struct echo_outcome *out)
{
	char *object = malloc(opt->size ? opt->size : 1);
	struct laps laps = { 0 };
	int rc;

	if (!object)
		return fail(-ENOMEM, "choose a smaller --size",
			    "no memory for an object of %ju bytes", opt->size);
	if (opt->message)
		memcpy(object, opt->message, opt->size);
	else
		pattern_fill(object, opt->size, PATTERN_SEED);
	rc = opt->bench ? laps_init(&laps, opt->count) : 0;
	if (!rc)
		rc = client(opt, object, &laps, out);
	if (!rc && opt->bench)
		out->half_us = laps_halved(&laps);
	laps_free(&laps);
	free(object);
	return rc;
}

int echo_check(const struct echo_options *opt, const void *sent,
	       const void *got, uint64_t size)
{
	const unsigned char *a = sent, *b = got;
	uint64_t at = 0;

	if (size == opt->size && !memcmp(sent, got, size))
		return 0;
	if (size != opt->size)
		return fail(-EBADMSG, "is that an echo server?",
			    "the echo has %ju bytes instead of %ju", size,
			    opt->size);
	while (a[at] == b[at])
		at++;
	return fail(-EBADMSG, "is that an echo server?",
		    "the echo differs: byte %ju of %ju is 0x%02x instead of "
		    "0x%02x",
		    at, size, b[at], a[at]);
}

void echo_count(struct echo_outcome *out, const void *data, uint64_t size)
{
	if (!out->objects++)
		printable_text(out->text, sizeof(out->text), data,
			       size < sizeof(out->text) ? size
							: sizeof(out->text));
	out->bytes += size;
}

/* ---- ping-pong ---------------------------------------------------------- */

struct echo_bench echo_bench_of(const struct echo_options *opt)
{
	struct echo_bench bench = { .size = opt->size, .rounds = opt->count };

	memcpy(bench.magic, ECHO_BENCH_MAGIC, sizeof(bench.magic));
	return bench;
}

bool echo_bench_asked(void *object, uint64_t size, uint64_t limit)
{
	struct echo_bench *bench = object;

	if (size != sizeof(*bench) ||
	    memcmp(bench->magic, ECHO_BENCH_MAGIC, sizeof(bench->magic)) ||
	    bench->agreed || bench->size > limit || !bench->rounds ||
	    bench->rounds > MAX_COUNT)
		return false;
	bench->agreed = 1;
	return true;
}

int echo_bench_agreed(const struct echo_bench *mine, const void *object,
		      uint64_t size)
{
	struct echo_bench expected = *mine;

	expected.agreed = 1;
	if (size == sizeof(expected) && !memcmp(object, &expected, size))
		return 0;
	return fail(-EPROTO,
		    "let the server be this program too, with a --limit that "
		    "is large enough",
		    "the server does not play ping-pong with %ju bytes",
		    mine->size);
}

/* ---- 结果 --------------------------------------------------------------- */

static json_t *client_as_json(const struct echo_options *opt,
			      const struct echo_outcome *out)
{
	json_t *root =
		json_pack("{s:s, s:s, s:s, s:I, s:I, s:f}", "role", "client",
			  "transport", out->transport, "mode",
			  opt->bench ? "ping-pong" : "echo", "size",
			  (json_int_t)opt->size, "count",
			  (json_int_t)opt->count, "seconds", out->seconds);

	if (root && opt->bench)
		json_object_set_new(root, "half_round_trip_us",
				    lap_summary_as_json(&out->half_us));
	if (root && opt->message)
		json_object_set_new(root, "text", json_string(out->text));
	return root;
}

static int print_json(const struct echo_options *opt,
		      const struct echo_outcome *out)
{
	json_t *root = opt->server
			       ? json_pack("{s:s, s:I, s:I, s:I, s:I}", "role",
					   "server", "clients",
					   (json_int_t)out->clients, "failed",
					   (json_int_t)out->failed, "objects",
					   (json_int_t)out->objects, "bytes",
					   (json_int_t)out->bytes)
			       : client_as_json(opt, out);

	return print_json_line(root);
}

static void print_text(const struct echo_options *opt,
		       const struct echo_outcome *out)
{
	const struct lap_summary *half = &out->half_us;

	if (opt->server)
		report_result("%ju clients, %ju of them failed; %ju objects "
			      "echoed, %ju bytes",
			      out->clients, out->failed, out->objects,
			      out->bytes);
	else if (opt->bench)
		report_result("%ju round trips of %ju bytes over %s: half "
			      "round trip min %.2f median %.2f p99 %.2f max "
			      "%.2f us",
			      opt->count, opt->size, out->transport, half->min,
			      half->median, half->p99, half->max);
	else if (opt->message)
		report_result("echoed %ju bytes: \"%s\"", opt->size, out->text);
	else
		report_result("echoed %ju objects of %ju bytes, each byte "
			      "checked",
			      out->objects, opt->size);
}

static int report(const struct echo_options *opt,
		  const struct echo_outcome *out)
{
	int rc = 0;

	if (opt->json)
		rc = print_json(opt, out);
	else
		print_text(opt, out);
	return rc ? rc : report_flush();
}

int echo_main(const char *program, echo_server_fn *server,
	      echo_client_fn *client, int argc, char *argv[])
{
	struct echo_options opt;
	struct echo_outcome out = { 0 };
	int rc;

	setlocale(LC_CTYPE, "");
	rc = parse(&opt, program, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = opt.server ? server(&opt, &out) : run_client(&opt, client, &out);
	if (!rc)
		rc = report(&opt, &out);
	return rc || (opt.clients && out.failed) ? 1 : 0;
}

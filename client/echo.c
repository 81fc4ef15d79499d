// SPDX-License-Identifier: MIT
/*
 * echo.c —— ucx_echo 与 sock_echo 共用：命令行、发什么、怎样核对、怎样报告
 *
 * 两个程序要并排读、并排比，所以与传输无关的都在这里，只写一次。
 */
#include "echo.h"

#include "base/arguments.h"
#include "base/json_line.h"
#include "base/pattern.h"
#include "base/report.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT	    13337
#define DEFAULT_INFO_S	    5
#define DEFAULT_MESSAGE	    "hello, world"
#define DEFAULT_BENCH_SIZE  8
#define DEFAULT_BENCH_COUNT 10000
#define MAX_COUNT	    100000000
#define PATTERN_SEED	    0x75637865
#define SHORT_OPTIONS	    ":p:m:s:n:bBc:l:i:t:qjh"

/* ---- 命令行 ------------------------------------------------------------- */

static void print_help(const char *program)
{
	printf("usage: %s server [options]\n"
	       "       %s client <server_ip> [options]\n"
	       "\n"
	       "  -p, --port P       port of the server (default: %d)\n"
	       "  -B, --busy         poll, do not sleep\n"
	       "  -l, --limit B      largest object taken (default: %u)\n"
	       "  -i, --info-timeout SECS\n"
	       "                     limit of the peer info exchange (default: "
	       "%d);\n"
	       "                     a socket has none\n"
	       "  -t, --timeout SECS limit of every other wait (default: 300 "
	       "for a\n"
	       "                     client's next object, 10 for all others)\n"
	       "  -q, --quiet        print only the result and failures\n"
	       "  -j, --json         print the result as one JSON object\n"
	       "  -h, --help         print this and exit\n"
	       "the client:\n"
	       "  -m, --message TEXT send this (default: \"%s\")\n"
	       "  -s, --size B       send a pattern of B bytes, 0 ... %u\n"
	       "  -n, --count N      send so many objects (default: 1)\n"
	       "  -b, --bench        measure -n round trips (default: %d) of "
	       "one\n"
	       "                     message of -s bytes (default: %d) each "
	       "way\n"
	       "the server goes on until SIGINT or SIGTERM, or:\n"
	       "  -c, --clients N    end after N clients\n"
	       "\n"
	       "Exit code: 0 done, 1 failed (with --clients: one of them), 2 "
	       "wrong usage.\n",
	       program, program, DEFAULT_PORT, ECHO_MAX_SIZE, DEFAULT_INFO_S,
	       DEFAULT_MESSAGE, ECHO_MAX_SIZE, DEFAULT_BENCH_COUNT,
	       DEFAULT_BENCH_SIZE);
}

static int bad_usage(const char *program, const char *what, const char *value)
{
	char next[128];

	snprintf(next, sizeof(next),
		 "usage: %s server | client <server_ip> [options]; see --help",
		 program);
	return wrong_usage(next, what, value);
}

static int parse_numeric(struct echo_options *opt, int c)
{
	static const struct {
		int c;
		uint64_t low, high;
		const char *what;
	} ranges[] = {
		{ 'p', 1, 65535, "--port is not 1 ... 65535" },
		{ 's', 0, ECHO_MAX_SIZE, "--size is not 0 ... 1073741824" },
		{ 'n', 1, MAX_COUNT, "--count is not 1 ... 100000000" },
		{ 'c', 1, MAX_COUNT, "--clients is not 1 ... 100000000" },
		{ 'l', 0, ECHO_MAX_SIZE, "--limit is not 0 ... 1073741824" },
		{ 'i', 1, 3600, "--info-timeout is not 1 ... 3600 seconds" },
		{ 't', 1, 86400, "--timeout is not 1 ... 86400 seconds" },
	};
	uint64_t n;
	size_t i = 0;

	while (ranges[i].c != c)
		i++;
	if (!parse_number(optarg, ranges[i].low, ranges[i].high, &n))
		return bad_usage(opt->program, ranges[i].what, optarg);
	if (c == 'p')
		opt->port = (uint16_t)n;
	else if (c == 's')
		opt->size = n;
	else if (c == 'n')
		opt->count = n;
	else if (c == 'c')
		opt->clients = n;
	else if (c == 'l')
		opt->limit = n;
	else if (c == 'i')
		opt->info_ms = (int)n * 1000;
	else
		opt->timeout_ms = (int)n * 1000;
	return -1;
}

static int parse_option(struct echo_options *opt, int c)
{
	switch (c) {
	case 'm':
		opt->message = optarg;
		return -1;
	case 'b':
		opt->bench = true;
		return -1;
	case 'B':
		opt->busy = true;
		return -1;
	case 'j':
		opt->json = true;
		/* fall through */
	case 'q':
		report_set_level(REPORT_QUIET);
		return -1;
	case 'h':
		print_help(opt->program);
		return 0;
	}
	return parse_numeric(opt, c);
}

static int parse_positional(struct echo_options *opt, int argc, char *argv[])
{
	bool client = argc > 0 && !strcmp(argv[0], "client");

	if (argc < 1)
		return bad_usage(opt->program, "the role is missing", NULL);
	if (!client && strcmp(argv[0], "server"))
		return bad_usage(opt->program,
				 "the role is not server or client", argv[0]);
	if (client && (argc < 2 || !*argv[1]))
		return bad_usage(opt->program, "the server is missing", NULL);
	if (argc > (client ? 2 : 1))
		return bad_usage(opt->program, "too many arguments",
				 argv[client ? 2 : 1]);
	opt->server = !client;
	opt->address = client ? argv[1] : NULL;
	return -1;
}

/* 选项之间的关系最后检查：它们可以以任何次序出现。*/
static int settle(struct echo_options *opt)
{
	bool sized = opt->size != UINT64_MAX;

	if (opt->server && (opt->message || sized || opt->count || opt->bench))
		return bad_usage(opt->program,
				 "--message, --size, --count and --bench are "
				 "the client's",
				 NULL);
	if (!opt->server && opt->clients)
		return bad_usage(opt->program, "--clients is the server's",
				 NULL);
	if (opt->message && (sized || opt->bench))
		return bad_usage(opt->program,
				 "--message does not go with --size or --bench",
				 NULL);
	if (!opt->count)
		opt->count = opt->bench ? DEFAULT_BENCH_COUNT : 1;
	if (!sized && opt->bench)
		opt->size = DEFAULT_BENCH_SIZE;
	if (!sized && !opt->bench) {
		if (!opt->message)
			opt->message = DEFAULT_MESSAGE;
		opt->size = strlen(opt->message);
	}
	return -1;
}

int echo_parse(struct echo_options *opt, const char *program, int argc,
	       char *argv[])
{
	static const struct option longs[] = {
		{ "port", required_argument, NULL, 'p' },
		{ "message", required_argument, NULL, 'm' },
		{ "size", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },
		{ "bench", no_argument, NULL, 'b' },
		{ "busy", no_argument, NULL, 'B' },
		{ "clients", required_argument, NULL, 'c' },
		{ "limit", required_argument, NULL, 'l' },
		{ "info-timeout", required_argument, NULL, 'i' },
		{ "timeout", required_argument, NULL, 't' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	char value[64];
	int c, rc;

	*opt = (struct echo_options){
		.program = program,
		.port = DEFAULT_PORT,
		.size = UINT64_MAX, /* 没有给 */
		.limit = ECHO_MAX_SIZE,
		.info_ms = DEFAULT_INFO_S * 1000,
	};
	opterr = 0;
	while ((c = getopt_long(argc, argv, SHORT_OPTIONS, longs, NULL)) !=
	       -1) {
		if (c == ':' || c == '?')
			return bad_usage(program,
					 wrong_option(c, argv, SHORT_OPTIONS,
						      value, sizeof(value)),
					 value);
		rc = parse_option(opt, c);
		if (rc >= 0)
			return rc;
	}
	rc = parse_positional(opt, argc - optind, argv + optind);
	return rc < 0 ? settle(opt) : rc;
}

int echo_timeout(const struct echo_options *opt, int default_ms)
{
	return opt->timeout_ms ? opt->timeout_ms : default_ms;
}

/* ---- 内容 --------------------------------------------------------------- */

void *echo_object(const struct echo_options *opt)
{
	char *object = malloc(opt->size ? opt->size : 1);

	if (!object) {
		report_error("choose a smaller --size",
			     "no memory for an object of %llu bytes",
			     (unsigned long long)opt->size);
		return NULL;
	}
	if (opt->message)
		memcpy(object, opt->message, opt->size);
	else
		pattern_fill(object, opt->size, PATTERN_SEED);
	return object;
}

int echo_check(const struct echo_options *opt, const void *sent,
	       const void *got, uint64_t size)
{
	const unsigned char *a = sent, *b = got;
	uint64_t at = 0;

	if (size == opt->size && !memcmp(sent, got, size))
		return 0;
	if (size != opt->size) {
		report_error("is that an echo server?",
			     "the echo has %llu bytes instead of %llu",
			     (unsigned long long)size,
			     (unsigned long long)opt->size);
		return -EBADMSG;
	}
	while (a[at] == b[at])
		at++;
	report_error("is that an echo server?",
		     "the echo differs: byte %llu of %llu is 0x%02x instead of "
		     "0x%02x",
		     (unsigned long long)at, (unsigned long long)size, b[at],
		     a[at]);
	return -EBADMSG;
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
	    bench->agreed || bench->size > limit || bench->rounds > MAX_COUNT)
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
	report_error("let the server be this program too, with a --limit that "
		     "is large enough",
		     "the server does not play ping-pong with %llu bytes",
		     (unsigned long long)mine->size);
	return -EPROTO;
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

	if (root && out->measured)
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
		report_result("%llu clients, %llu of them failed; %llu objects "
			      "echoed, %llu bytes",
			      (unsigned long long)out->clients,
			      (unsigned long long)out->failed,
			      (unsigned long long)out->objects,
			      (unsigned long long)out->bytes);
	else if (out->measured)
		report_result("%llu round trips of %llu bytes over %s: half "
			      "round trip min %.2f median %.2f p99 %.2f max "
			      "%.2f us",
			      (unsigned long long)opt->count,
			      (unsigned long long)opt->size, out->transport,
			      half->min, half->median, half->p99, half->max);
	else if (opt->message)
		report_result("echoed %llu bytes: \"%s\"",
			      (unsigned long long)opt->size, out->text);
	else
		report_result("echoed %llu objects of %llu bytes, each byte "
			      "checked",
			      (unsigned long long)out->objects,
			      (unsigned long long)opt->size);
}

int echo_report(const struct echo_options *opt, const struct echo_outcome *out)
{
	int rc = 0;

	if (opt->json)
		rc = print_json(opt, out);
	else
		print_text(opt, out);
	return rc ? rc : report_flush();
}

// SPDX-License-Identifier: MIT
/*
 * engine_client_options.c —— engine_client 的命令行：先是动词，再是选项和位置参数
 */
#include "engine_client_options.h"

#include "base/arguments.h"
#include "base/report.h"

#include <stdio.h>
#include <string.h>

static const struct verb {
	const char *name;
	enum engine_command command;
	bool reads;
	int operands;
	const char *options;
} verbs[] = {
	{ "ping", ENGINE_DO_PING, false, 0, "stjqn" },
	{ "caps", ENGINE_DO_CAPS, false, 0, "stjq" },
	{ "read", ENGINE_DO_READ, true, 3, "stjqaoOSTp" },
	{ "bench ping", ENGINE_DO_BENCH, false, 0, "stjqn" },
	{ "bench read", ENGINE_DO_BENCH, true, 3, "stjqaOSTnfm" },
};

static const char usage[] = "usage: engine_client ping|caps|read|bench "
			    "--socket PATH ...; see --help";
static const char head[] =
	"usage: engine_client ping|caps --socket PATH [options]\n"
	"       engine_client read --socket PATH [options] VOLUME NEEDLE "
	"COOKIE\n"
	"       engine_client bench ping --socket PATH [options]\n"
	"       engine_client bench read --socket PATH [options] VOLUME NEEDLE "
	"COOKIE\n"
	"\n"
	"  ping     is the engine there?\n"
	"  caps     what it is and can do\n"
	"  read     a needle, or a range of it, to standard output or a file, "
	"if\n"
	"           its CRC-32C is right\n"
	"  bench    round trips of Ping, or reads per second\n"
	"\n";

static int complete_options(struct engine_client_options *opt,
			    const struct verb *verb, int argc, char *argv[])
{
	const struct option_row operands[] = {
		{ .name = "VOLUME",
		  NUMBER(opt->volume, 0, 0, UINT32_MAX),
		  .range = "0 ... 2^32 - 1" },
		{ .name = "NEEDLE", NUMBER(opt->needle, 0, 0, UINT64_MAX) },
		{ .name = "COOKIE",
		  HEX(opt->cookie, UINT32_MAX),
		  .range = "0 ... 2^32 - 1" },
		{ 0 },
	};
	int rc;

	if (argc < verb->operands)
		return wrong_usage(usage, "VOLUME, NEEDLE or COOKIE is missing",
				   NULL);
	if (argc > verb->operands)
		return wrong_usage(usage, "too many arguments",
				   argv[verb->operands]);
	rc = take_operands(usage, operands, argc, argv);
	if (rc >= 0)
		return rc;
	if (!opt->socket)
		return wrong_usage(usage, "--socket is missing", NULL);
	if (opt->command == ENGINE_DO_READ && opt->json && !opt->output)
		return wrong_usage(usage,
				   "--json needs --output: the bytes and the "
				   "result cannot both go to standard output",
				   NULL);
	return -1;
}

/* 动词是一个词或两个词；用掉几个，就从 argv 里拿走几个。*/
static const struct verb *find_verb(int *argc, char **argv[])
{
	char name[32];

	for (int words = 1; words <= 2 && words < *argc; words++) {
		snprintf(name, sizeof(name), words == 1 ? "%s" : "%s %s",
			 (*argv)[1], words == 1 ? "" : (*argv)[2]);
		for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
			if (strcmp(verbs[i].name, name) != 0)
				continue;
			*argc -= words;
			*argv += words;
			return &verbs[i];
		}
	}
	return NULL;
}

int engine_client_options_parse(struct engine_client_options *opt, int argc,
				char *argv[])
{
	const struct option_row rows[] = {
		{ 's', "socket", "PATH", "the engine's", TEXT(opt->socket) },
		{ 'a', "auth-token-file", "F", "read: the token to show",
		  TEXT(opt->token_file) },
		{ 'O', "offset", "B", "read: begin there (default: @)",
		  NUMBER(opt->offset, 0, 0, UINT64_MAX) },
		{ 'S', "size", "B", "read: so many bytes (default: to the end)",
		  NUMBER(opt->size, 0, 0, UINT64_MAX) },
		{ 'o', "output", "FILE", "read: write to this file",
		  TEXT(opt->output) },
		{ 'T', "session-timeout", "SECS",
		  "read: (default: the engine's)",
		  NUMBER(opt->session_secs, 0, 0, UINT64_MAX) },
		{ 'p', "progress", NULL,
		  "read: lines of progress on standard error; a\nterminal "
		  "shows it anyway",
		  FLAG(opt->progress) },
		{ 'n', "iters", "N", "ping (1), bench (1000)",
		  NUMBER(opt->iters, 0, 1, 100000000) },
		{ 'f', "in-flight", "N", "bench read: at once, 1 ... # (@)",
		  NUMBER(opt->in_flight, 16, 1, ENGINE_IN_FLIGHT_MOST) },
		{ 'm', "map", NULL,
		  "bench read: map every read, check its CRC-32C",
		  FLAG(opt->map) },
		{ 't', "timeout", "SECS", "limit of every wait (@)",
		  SECONDS(opt->wait_ms, 30, 1, 86400), .range = "1 ... 86400" },
		{ QUIET("print only results and failures"),
		  OPTION_TO(opt->quiet), .least = true },
		{ JSON(opt->json) },
		{ HELP },
		{ 0 },
	};
	struct command_line line = {
		.next = usage,
		.head = head,
		.rows = rows,
		.column = 23,
		.letters = "",
		.tail = "\n" EXIT_CODES,
	};
	const bool help = argc > 1 && (!strcmp(argv[1], "-h") ||
				       !strcmp(argv[1], "--help"));
	const struct verb *verb = find_verb(&argc, &argv);
	int rc;

	*opt = (struct engine_client_options){ 0 };
	if (!verb)
		return help ? take_options(&line, &argc, &argv)
			    : wrong_usage(usage,
					  "the command is not ping, caps, "
					  "read, bench ping or bench read",
					  argc > 1 ? argv[1] : NULL);
	opt->command = verb->command;
	opt->bench_reads = verb->reads;
	line.letters = verb->options;
	rc = take_options(&line, &argc, &argv);
	opt->quiet |= opt->json;
	return rc < 0 ? complete_options(opt, verb, argc, argv) : rc;
}

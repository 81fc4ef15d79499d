// SPDX-License-Identifier: MIT
/*
 * engine_client_options.c —— engine_client 的命令行：先是动词，再是选项和位置参数
 */
#include "engine_client_options.h"

#include "base/arguments.h"
#include "base/report.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SHORT_OPTIONS ":s:a:o:O:S:T:t:n:f:mpqjh"

static const struct verb {
	const char *name;
	enum engine_command command;
	bool reads;
	int operands;
	const char *options; /* besides s, t, j, q, h */
} verbs[] = {
	{ "ping", ENGINE_DO_PING, false, 0, "n" },
	{ "caps", ENGINE_DO_CAPS, false, 0, "" },
	{ "read", ENGINE_DO_READ, true, 3, "aoOSTp" },
	{ "bench ping", ENGINE_DO_BENCH, false, 0, "n" },
	{ "bench read", ENGINE_DO_BENCH, true, 3, "aOSTnfm" },
};

static void print_help(void)
{
	printf("usage: engine_client ping|caps --socket PATH [options]\n"
	       "       engine_client read --socket PATH [options] VOLUME "
	       "NEEDLE COOKIE\n"
	       "       engine_client bench ping --socket PATH [options]\n"
	       "       engine_client bench read --socket PATH [options] "
	       "VOLUME NEEDLE COOKIE\n"
	       "\n"
	       "  ping     is the engine there?\n"
	       "  caps     what it is and can do\n"
	       "  read     a needle, or a range of it, to standard output or "
	       "a file, if\n"
	       "           its CRC-32C is right\n"
	       "  bench    round trips of Ping, or reads per second\n"
	       "\n"
	       "  -s, --socket PATH    the engine's\n"
	       "  -a, --auth-token-file F  read: the token to show\n"
	       "  -O, --offset B       read: begin there (default: 0)\n"
	       "  -S, --size B         read: so many bytes (default: to the "
	       "end)\n"
	       "  -o, --output FILE    read: write to this file\n"
	       "  -T, --session-timeout SECS  read: (default: the engine's)\n"
	       "  -p, --progress       read: lines of progress on standard "
	       "error; a\n"
	       "                       terminal shows it anyway\n"
	       "  -n, --iters N        ping (1), bench (1000)\n"
	       "  -f, --in-flight N    bench read: at once, 1 ... %d (16)\n"
	       "  -m, --map            bench read: map every read, check its "
	       "CRC-32C\n"
	       "  -t, --timeout SECS   limit of every wait (30)\n"
	       "  -q, --quiet          print only results and failures\n"
	       "  -j, --json           print the result as one JSON object\n"
	       "  -h, --help           print this and exit\n"
	       "\n"
	       "Exit code: 0 done, 1 failed, 2 wrong usage.\n",
	       ENGINE_IN_FLIGHT_MOST);
}

static int bad_usage(const char *what, const char *value)
{
	return wrong_usage(
		"usage: engine_client ping|caps|read|bench --socket PATH "
		"...; see --help",
		what, value);
}

#define AT(member) offsetof(struct engine_client_options, member)

/* 带数字的选项，以及按次序的三个位置参数。*/
static const struct number_option numbers[] = {
	{ 'O', AT(offset), 0, UINT64_MAX, "--offset is not 0 ... 2^64 - 1" },
	{ 'S', AT(size), 0, UINT64_MAX, "--size is not 0 ... 2^64 - 1" },
	{ 'T', AT(session_secs), 0, UINT64_MAX,
	  "--session-timeout is not 0 ... 2^64 - 1" },
	{ 't', AT(timeout_secs), 1, 86400, "--timeout is not 1 ... 86400" },
	{ 'n', AT(iters), 1, 100000000, "--iters is not 1 ... 100000000" },
	{ 'f', AT(in_flight), 1, ENGINE_IN_FLIGHT_MOST,
	  "--in-flight is not 1 ... 1024" },
};

static const struct number_option operands[] = {
	{ 0, AT(volume), 0, UINT32_MAX, "VOLUME is not 0 ... 2^32 - 1" },
	{ 0, AT(needle), 0, UINT64_MAX, "NEEDLE is not 0 ... 2^64 - 1" },
	{ 0, AT(cookie), 0, UINT32_MAX, "COOKIE is not 0 ... 2^32 - 1" },
};

static int parse_option(struct engine_client_options *opt,
			const struct verb *verb, int c)
{
	const struct number_option *number =
		find_number(numbers, sizeof(numbers) / sizeof(numbers[0]), c);
	const char flag[] = { '-', (char)c, '\0' };

	if (!strchr("stjqh", c) && !strchr(verb->options, c))
		return bad_usage("this command does not take the option", flag);
	if (number)
		return take_number(opt, number, optarg)
			       ? -1
			       : bad_usage(number->wrong, optarg);
	switch (c) {
	case 's':
		opt->socket = optarg;
		break;
	case 'a':
		opt->token_file = optarg;
		break;
	case 'o':
		opt->output = optarg;
		break;
	case 'm':
		opt->map = true;
		break;
	case 'p':
		opt->progress = true;
		break;
	case 'j':
		opt->json = true;
		/* fall through */
	case 'q':
		opt->quiet = true;
		report_set_level(REPORT_QUIET);
		break;
	case 'h':
		print_help();
		return 0;
	}
	return -1;
}

static int settle(struct engine_client_options *opt, const struct verb *verb,
		  int argc, char *argv[])
{
	if (argc != verb->operands)
		return bad_usage(argc < verb->operands
					 ? "VOLUME, NEEDLE or COOKIE is missing"
					 : "too many arguments",
				 argc < verb->operands ? NULL
						       : argv[verb->operands]);
	for (int i = 0; i < argc; i++)
		if (!take_number(opt, &operands[i], argv[i]))
			return bad_usage(operands[i].wrong, argv[i]);
	if (!opt->socket)
		return bad_usage("--socket is missing", NULL);
	if (opt->command == ENGINE_DO_READ && opt->json && !opt->output)
		return bad_usage("--json needs --output: the bytes and the "
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
	static const struct option longs[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "auth-token-file", required_argument, NULL, 'a' },
		{ "output", required_argument, NULL, 'o' },
		{ "offset", required_argument, NULL, 'O' },
		{ "size", required_argument, NULL, 'S' },
		{ "session-timeout", required_argument, NULL, 'T' },
		{ "timeout", required_argument, NULL, 't' },
		{ "iters", required_argument, NULL, 'n' },
		{ "in-flight", required_argument, NULL, 'f' },
		{ "map", no_argument, NULL, 'm' },
		{ "progress", no_argument, NULL, 'p' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const struct verb *verb;
	char value[64];
	int c, rc;

	*opt = (struct engine_client_options){ .in_flight = 16,
					       .timeout_secs = 30 };
	if (argc > 1 &&
	    (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
		print_help();
		return 0;
	}
	verb = find_verb(&argc, &argv);
	if (!verb)
		return bad_usage("the command is not ping, caps, read, bench "
				 "ping or bench read",
				 argc > 1 ? argv[1] : NULL);
	opt->command = verb->command;
	opt->bench_reads = verb->reads;
	opterr = 0;
	while ((c = getopt_long(argc, argv, SHORT_OPTIONS, longs, NULL)) !=
	       -1) {
		if (c == ':' || c == '?')
			return bad_usage(wrong_option(c, argv, SHORT_OPTIONS,
						      value, sizeof(value)),
					 value);
		rc = parse_option(opt, verb, c);
		if (rc >= 0)
			return rc;
	}
	return settle(opt, verb, argc - optind, argv + optind);
}

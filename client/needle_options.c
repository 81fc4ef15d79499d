// SPDX-License-Identifier: MIT
/*
 * needle_options.c —— build/needle 的命令行：先是动词，再是选项和位置参数
 */
#include "needle_options.h"

#include "base/arguments.h"
#include "base/report.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define SHORT_OPTIONS	":S:f:jt:n:V:m:M:s:h"
#define MAX_COUNT	1000000000
#define MAX_VOLUMES	100000
#define MAX_PATTERN	(UINT64_C(1) << 40)
#define DEFAULT_MAX	65536
#define DEFAULT_WAIT_MS 60000

/* 每个动词：名字、要几个位置参数、认得哪些选项（--store、--help 都认得）。*/
static const struct verb {
	const char *name;
	enum needle_command command;
	int least, most;
	const char *options;
} verbs[] = {
	{ "put", NEEDLE_PUT, 2, 3, "ft" },
	{ "get", NEEDLE_GET, 2, 3, "" },
	{ "list", NEEDLE_LIST, 0, 0, "j" },
	{ "verify", NEEDLE_VERIFY, 0, 0, "" },
	{ "make", NEEDLE_MAKE, 0, 0, "tnVmMs" },
};

static void print_help(void)
{
	printf("usage: needle put --store DIR [options] VOLUME NEEDLE "
	       "[COOKIE]\n"
	       "       needle get --store DIR VOLUME NEEDLE [COOKIE]\n"
	       "       needle list --store DIR [--json]\n"
	       "       needle verify --store DIR\n"
	       "       needle make --store DIR --count N [options]\n"
	       "\n"
	       "  put      append a needle from standard input; without COOKIE "
	       "a\n"
	       "           random one, which is printed\n"
	       "  get      its bytes to standard output, if their CRC-32C is "
	       "right,\n"
	       "           and the cookie, if given\n"
	       "  list     all needles\n"
	       "  verify   read everything and check every CRC-32C\n"
	       "  make     fill volumes 1 ... V with needles 1 ... N of bytes "
	       "that\n"
	       "           follow from the seed\n"
	       "\n"
	       "  -S, --store DIR    the folder of the volumes\n"
	       "  -f, --file PATH    put: read this file\n"
	       "  -j, --json         list: one JSON object (needle ids are "
	       "strings:\n"
	       "                     they have 64 bits)\n"
	       "  -n, --count N      make: so many needles\n"
	       "  -V, --volumes V    make: in so many volumes (default: 1)\n"
	       "  -m, --min B        make: bytes of the smallest (default: 1)\n"
	       "  -M, --max B        make: of the largest (default: %d, or "
	       "--min)\n"
	       "  -s, --seed S       make: (default: 1)\n"
	       "  -t, --timeout SECS limit of the wait for another writer, and "
	       "for\n"
	       "                     standard input (default: %d)\n"
	       "  -h, --help         print this and exit\n"
	       "\n"
	       "Exit code: 0 done, 1 failed, 2 wrong usage.\n",
	       DEFAULT_MAX, DEFAULT_WAIT_MS / 1000);
}

static int bad_usage(const char *what, const char *value)
{
	return wrong_usage(
		"usage: needle put|get|list|verify|make --store DIR ...; "
		"see --help",
		what, value);
}

/* 带数字的选项：范围与去处列成一张表。*/
static int parse_numeric(struct needle_options *opt, int c)
{
	uint64_t seconds = 0, volumes = 0;
	const struct {
		int c;
		uint64_t low, high, *to;
		const char *what;
	} ranges[] = {
		{ 'n', 1, MAX_COUNT, &opt->count,
		  "--count is not 1 ... 1000000000" },
		{ 'V', 1, MAX_VOLUMES, &volumes,
		  "--volumes is not 1 ... 100000" },
		{ 'm', 0, MAX_PATTERN, &opt->pattern.min,
		  "--min is not 0 ... 2^40" },
		{ 'M', 0, MAX_PATTERN, &opt->pattern.max,
		  "--max is not 0 ... 2^40" },
		{ 's', 0, UINT64_MAX, &opt->pattern.seed,
		  "--seed is not 0 ... 2^64 - 1" },
		{ 't', 1, 86400, &seconds,
		  "--timeout is not 1 ... 86400 seconds" },
	};
	size_t i = 0;

	while (ranges[i].c != c)
		i++;
	if (!parse_number(optarg, ranges[i].low, ranges[i].high, ranges[i].to))
		return bad_usage(ranges[i].what, optarg);
	if (seconds)
		opt->wait_ms = (int)seconds * 1000;
	if (volumes)
		opt->volumes = (uint32_t)volumes;
	return -1;
}

static int parse_option(struct needle_options *opt, const struct verb *verb,
			int c)
{
	const char flag[] = { '-', (char)c, '\0' };

	if (c == 'h') {
		print_help();
		return 0;
	}
	if (c != 'S' && !strchr(verb->options, c))
		return bad_usage("this command does not take the option", flag);
	switch (c) {
	case 'S':
		if (!*optarg)
			return bad_usage("--store is empty", NULL);
		opt->store = optarg;
		return -1;
	case 'f':
		opt->file = optarg;
		return -1;
	case 'j':
		opt->json = true;
		return -1;
	}
	return parse_numeric(opt, c);
}

static int parse_positional(struct needle_options *opt, const struct verb *verb,
			    int argc, char *argv[])
{
	uint64_t n;

	if (argc > verb->most)
		return bad_usage("too many arguments", argv[verb->most]);
	if (argc < verb->least)
		return bad_usage("VOLUME and NEEDLE are missing", NULL);
	if (!verb->most)
		return -1;
	if (!parse_number(argv[0], 0, UINT32_MAX, &n))
		return bad_usage("VOLUME is not 0 ... 4294967295", argv[0]);
	opt->volume_id = (uint32_t)n;
	if (!parse_number(argv[1], 0, UINT64_MAX, &opt->needle_id))
		return bad_usage("NEEDLE is not 0 ... 2^64 - 1", argv[1]);
	if (argc < 3)
		return -1;
	if (!parse_number(argv[2], 0, UINT32_MAX, &n))
		return bad_usage("COOKIE is not 0 ... 4294967295", argv[2]);
	opt->cookie = (uint32_t)n;
	opt->have_cookie = true;
	return -1;
}

/* 选项之间的关系放在最后检查：它们可以以任何顺序出现。*/
static int settle(struct needle_options *opt)
{
	if (!opt->store)
		return bad_usage("--store is missing", NULL);
	if (opt->command != NEEDLE_MAKE)
		return -1;
	if (!opt->count)
		return bad_usage("--count is missing", NULL);
	if (opt->pattern.max == UINT64_MAX)
		opt->pattern.max = opt->pattern.min > DEFAULT_MAX
					   ? opt->pattern.min
					   : DEFAULT_MAX;
	if (opt->pattern.min > opt->pattern.max)
		return bad_usage("--min is larger than --max", NULL);
	return -1;
}

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

static int parse_options(struct needle_options *opt, const struct verb *verb,
			 int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "store", required_argument, NULL, 'S' },
		{ "file", required_argument, NULL, 'f' },
		{ "json", no_argument, NULL, 'j' },
		{ "timeout", required_argument, NULL, 't' },
		{ "count", required_argument, NULL, 'n' },
		{ "volumes", required_argument, NULL, 'V' },
		{ "min", required_argument, NULL, 'm' },
		{ "max", required_argument, NULL, 'M' },
		{ "seed", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	char value[64];
	int c, rc;

	opterr = 0;
	while ((c = getopt_long(argc, argv, SHORT_OPTIONS, longs, NULL)) !=
	       -1) {
		if (c == ':' || c == '?') {
			const char *what = wrong_option(c, argv, SHORT_OPTIONS,
							value, sizeof(value));

			return bad_usage(what, value);
		}
		rc = parse_option(opt, verb, c);
		if (rc >= 0)
			return rc;
	}
	rc = parse_positional(opt, verb, argc - optind, argv + optind);
	return rc >= 0 ? rc : settle(opt);
}

int needle_options_parse(struct needle_options *opt, int argc, char *argv[])
{
	const struct verb *verb;

	*opt = (struct needle_options){
		.wait_ms = DEFAULT_WAIT_MS,
		.volumes = 1,
		.pattern = { .seed = 1, .min = 1, .max = UINT64_MAX },
	};
	if (argc < 2)
		return bad_usage("the command is missing", NULL);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		print_help();
		return 0;
	}
	verb = find_verb(argv[1]);
	if (!verb)
		return bad_usage("there is no such command", argv[1]);
	opt->command = verb->command;
	/* 动词已经取走：其余部分就像一个独立程序的参数。*/
	return parse_options(opt, verb, argc - 1, argv + 1);
}

// SPDX-License-Identifier: MIT
/*
 * needle_options.c —— build/needle 的命令行：先是动词，再是选项和位置参数
 */
#include "needle_options.h"

#include "base/arguments.h"

#include <stdio.h>
#include <string.h>

#define MAX_PATTERN (UINT64_C(1) << 40)
#define DEFAULT_MAX 65536

/* 每个动词：名字、要几个位置参数、认得哪些选项（--help 都认得）。*/
static const struct verb {
	const char *name;
	enum needle_command command;
	int least, most;
	const char *options;
} verbs[] = {
	{ "put", NEEDLE_PUT, 2, 3, "Sft" },
	{ "get", NEEDLE_GET, 2, 3, "S" },
	{ "list", NEEDLE_LIST, 0, 0, "Sj" },
	{ "verify", NEEDLE_VERIFY, 0, 0, "S" },
	{ "make", NEEDLE_MAKE, 0, 0, "StnVmMs" },
};

static const char usage[] =
	"usage: needle put|get|list|verify|make --store DIR ...; see --help";
static const char head[] =
	"usage: needle put --store DIR [options] VOLUME NEEDLE [COOKIE]\n"
	"       needle get --store DIR VOLUME NEEDLE [COOKIE]\n"
	"       needle list --store DIR [--json]\n"
	"       needle verify --store DIR\n"
	"       needle make --store DIR --count N [options]\n"
	"\n"
	"  put      append a needle from standard input; without COOKIE a\n"
	"           random one, which is printed; 0x... is one in hex\n"
	"  get      its bytes to standard output, if their CRC-32C is right,\n"
	"           and the cookie, if given\n"
	"  list     all needles\n"
	"  verify   read everything and check every CRC-32C\n"
	"  make     fill volumes 1 ... V with needles 1 ... N of bytes that\n"
	"           follow from the seed\n"
	"\n";

static int parse_operands(struct needle_options *opt, const struct verb *verb,
			  int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ .name = "VOLUME", NUMBER(opt->volume_id, 0, 0, UINT32_MAX) },
		{ .name = "NEEDLE", NUMBER(opt->needle_id, 0, 0, UINT64_MAX) },
		{ .name = "COOKIE", HEX(opt->cookie, UINT32_MAX) },
		{ 0 },
	};

	if (argc > verb->most)
		return wrong_usage(usage, "too many arguments",
				   argv[verb->most]);
	if (argc < verb->least)
		return wrong_usage(usage, "VOLUME and NEEDLE are missing",
				   NULL);
	opt->have_cookie = argc == 3;
	return take_operands(usage, rows, argc, argv);
}

/* 选项之间的关系放在最后检查：它们可以以任何顺序出现。*/
static int complete_options(struct needle_options *opt)
{
	if (!opt->store)
		return wrong_usage(usage, "--store is missing", NULL);
	if (!*opt->store)
		return wrong_usage(usage, "--store is empty", NULL);
	if (opt->command != NEEDLE_MAKE)
		return -1;
	if (!opt->count)
		return wrong_usage(usage, "--count is missing", NULL);
	if (opt->pattern.max == UINT64_MAX)
		opt->pattern.max = opt->pattern.min > DEFAULT_MAX
					   ? opt->pattern.min
					   : DEFAULT_MAX;
	if (opt->pattern.min > opt->pattern.max)
		return wrong_usage(usage, "--min is larger than --max", NULL);
	return -1;
}

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

int needle_options_parse(struct needle_options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'S', "store", "DIR", "the folder of the volumes",
		  TEXT(opt->store) },
		{ 'f', "file", "PATH", "put: read this file", TEXT(opt->file) },
		{ 'j', "json", NULL,
		  "list: one JSON object (needle ids are strings:\nthey have "
		  "64 bits)",
		  FLAG(opt->json) },
		{ 'n', "count", "N", "make: N needles",
		  NUMBER(opt->count, 0, 1, 1000000000) },
		{ 'V', "volumes", "V", "make: in V volumes (default: @)",
		  NUMBER(opt->volumes, 1, 1, 100000) },
		{ 'm', "min", "B", "make: bytes of the smallest (default: @)",
		  NUMBER(opt->pattern.min, 1, 0, MAX_PATTERN),
		  .range = "0 ... 2^40" },
		{ 'M', "max", "B",
		  "make: bytes of the largest (default: 65536,\nor --min)",
		  NUMBER(opt->pattern.max, UINT64_MAX, 0, MAX_PATTERN),
		  .range = "0 ... 2^40" },
		{ 's', "seed", "S", "make: seed of the bytes (default: @)",
		  NUMBER(opt->pattern.seed, 1, 0, UINT64_MAX) },
		{ 't', "timeout", "SECS",
		  "limit of the wait for another writer, and for\nstandard "
		  "input (default: @)",
		  SECONDS(opt->wait_ms, 60, 1, 86400) },
		{ HELP },
		{ 0 },
	};
	struct command_line line = {
		.next = usage,
		.head = head,
		.rows = rows,
		.column = 21,
		.letters = "",
		.tail = "\n" EXIT_CODES,
	};
	const struct verb *verb = argc > 1 ? find_verb(argv[1]) : NULL;
	int rc;

	*opt = (struct needle_options){ 0 };
	if (argc < 2)
		return wrong_usage(usage, "the command is missing", NULL);
	if (!verb && strcmp(argv[1], "--help") && strcmp(argv[1], "-h"))
		return wrong_usage(usage, "there is no such command", argv[1]);
	if (verb) { /* 动词取走：其余部分就像一个独立程序的参数。*/
		opt->command = verb->command;
		line.letters = verb->options;
		argc--;
		argv++;
	}
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = parse_operands(opt, verb, argc, argv);
	return rc < 0 ? complete_options(opt) : rc;
}

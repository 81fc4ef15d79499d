// SPDX-License-Identifier: MIT
/*
 * arguments.c —— 各程序的命令行，一张表说尽
 *
 * 一行就是一个选项：名字、去处、范围、缺省值、说明。解析、检查、报错、--help 都照着这
 * 张表做，所以说明不会与程序两样。
 * 每个数都检查到底：atoi("70000abc") 会悄悄给出 70000，再截成 16 位就是 4464。
 */
#include "arguments.h"

#include "report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG_ONLY 256 /* getopt_long 的返回值：没有字母的，用行号加上它 */

static bool parse_digits(const char *text, int base, uint64_t low,
			 uint64_t high, uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9') /* strtoull 会接受 "-1" 和空白 */
		return false;
	errno = 0;
	*value = strtoull(text, &end, base);
	return !errno && !*end && *value >= low && *value <= high;
}

bool parse_number(const char *text, uint64_t low, uint64_t high,
		  uint64_t *value)
{
	return parse_digits(text, 10, low, high, value);
}

int wrong_usage(const char *next, const char *what, const char *value)
{
	return fail(EXIT_USAGE, next, "%s%s%s", what, value ? ": " : "",
		    value ? value : "");
}

/*
 * 参数写反了（rdma_client rxe1 10.99.0.1）或漏了（rdma_server 18515）：没有设备会
 * 叫这样的名字，与其等到“no device is named”，不如现在就说出写反的是什么。
 */
static const char *not_a_device(const char *name)
{
	unsigned char address[sizeof(struct in6_addr)];
	uint64_t n;

	if (inet_pton(AF_INET, name, address) == 1 ||
	    inet_pton(AF_INET6, name, address) == 1)
		return "an IP address stands where device_name belongs";
	if (parse_number(name, 0, UINT64_MAX, &n))
		return "a number stands where device_name belongs";
	return NULL;
}

const char *not_a_server(const char *name)
{
	char path[300];

	if (!*name || *name == '.' || strchr(name, '/'))
		return NULL; /* 不是 sysfs 目录里的一个名字 */
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", name);
	return access(path, F_OK) ? NULL
				  : "a device stands where the server belongs";
}

/* ---- 一个值 -------------------------------------------------------------- */

static const struct {
	uint64_t size;
	const char *name;
} units[] = {
	[OPTION_NUMBER] = { 1, "" },
	[OPTION_HEX] = { 1, "" },
	[OPTION_SECONDS] = { 1000, " seconds" },
	[OPTION_MEBIBYTES] = { 1 << 20, " MiB" },
	[OPTION_SET] = { 1, "" },
	[OPTION_QUIET] = { 1, "" },
};

/* @row->to 为 NULL 时，size 是 0：什么也不存。*/
static void store(const struct option_row *row, uint64_t n)
{
	n *= units[row->kind].size;
	switch (row->size) {
	case sizeof(uint8_t):
		*(uint8_t *)row->to = (uint8_t)n;
		break;
	case sizeof(uint16_t):
		*(uint16_t *)row->to = (uint16_t)n;
		break;
	case sizeof(uint32_t):
		*(uint32_t *)row->to = (uint32_t)n;
		break;
	case sizeof(uint64_t):
		*(uint64_t *)row->to = n;
		break;
	}
}

/* 返回表有几行。*/
static int store_standards(const struct option_row *rows)
{
	int n = 0;

	for (; rows[n].name || rows[n].help; n++)
		if (rows[n].kind > OPTION_DEVICE)
			store(&rows[n], rows[n].standard);
	return n;
}

static int out_of_range(const char *next, const struct option_row *row,
			const char *text)
{
	char range[64], what[128];

	if (row->most == UINT64_MAX)
		snprintf(range, sizeof(range), "%ju ... 2^64 - 1", row->least);
	else
		snprintf(range, sizeof(range), "%ju ... %ju%s", row->least,
			 row->most, units[row->kind].name);
	snprintf(what, sizeof(what), "%s%s is not %s", row->help ? "--" : "",
		 row->name, row->range ? row->range : range);
	return wrong_usage(next, what, text);
}

static int take(const char *next, const struct option_row *row,
		const char *text)
{
	const char *what;
	int base = 10;
	uint64_t n;

	switch (row->kind) {
	case OPTION_DEVICE:
		what = not_a_device(text);
		if (what)
			return wrong_usage(next, what, text);
		/* fall through */
	case OPTION_TEXT:
		*(const char **)row->to = text;
		return -1;
	case OPTION_HEX:
		base = strncmp(text, "0x", 2) ? 10 : 16;
		/* fall through */
	case OPTION_NUMBER:
	case OPTION_SECONDS:
	case OPTION_MEBIBYTES:
		if (!parse_digits(text, base, row->least, row->most, &n))
			return out_of_range(next, row, text);
		store(row, n);
		return -1;
	case OPTION_QUIET:
		report_set_level(REPORT_QUIET);
		/* fall through */
	case OPTION_SET:
		store(row, row->least);
	}
	return -1;
}

int take_operands(const char *next, const struct option_row *rows, int argc,
		  char *argv[])
{
	int most = store_standards(rows), rc = -1;

	if (argc > most)
		return wrong_usage(next, "too many arguments", argv[most]);
	for (int i = 0; i < argc && rc < 0; i++)
		rc = take(next, &rows[i], argv[i]);
	return rc;
}

int take_role(const char *next, int argc, char *argv[], const char **server)
{
	const bool client = argc > 0 && !strcmp(argv[0], "client");

	if (argc < 1)
		return wrong_usage(next, "the role is missing", NULL);
	if (!client && strcmp(argv[0], "server") != 0)
		return wrong_usage(next, "the role is not server or client",
				   argv[0]);
	if (client && (argc < 2 || !*argv[1]))
		return wrong_usage(next, "the server is missing", NULL);
	if (argc > 1 + client)
		return wrong_usage(next, "too many arguments",
				   argv[1 + client]);
	*server = client ? argv[1] : NULL;
	return -1;
}

/* ---- --help ------------------------------------------------------------- */

static void print_row(const struct option_row *row, int column)
{
	char left[64];
	int n = snprintf(left, sizeof(left), "  -%c, --%s%s%s", row->letter,
			 row->name, row->argument ? " " : "",
			 row->argument ? row->argument : "");

	if (!row->letter)
		memset(left + 2, ' ', strlen("-c, "));
	fputs(left, stdout);
	if (*row->help != '\n')
		printf("%*s", n < column ? column - n : 2, "");
	for (const char *c = row->help; *c; c++)
		if (*c == '\n')
			printf("\n%*s", column, "");
		else if (*c == '@')
			printf("%ju", row->standard);
		else if (*c == '#')
			printf("%ju", row->most);
		else
			putchar(*c);
	putchar('\n');
}

static int print_help(const struct command_line *line)
{
	fputs(line->head, stdout);
	for (const struct option_row *row = line->rows; row->help; row++)
		if (row->name)
			print_row(row, line->column);
		else
			puts(row->help);
	fputs(line->tail, stdout);
	return 0;
}

/* ---- 选项 ---------------------------------------------------------------- */

static const struct option_row *find_row(const struct option_row *rows, int c)
{
	for (int i = 0; rows[i].help; i++)
		if (rows[i].name &&
		    (rows[i].letter ? c == rows[i].letter : c == LONG_ONLY + i))
			return &rows[i];
	return NULL;
}

/* 表改写成 getopt_long 要的样子。开头的 ':'：缺少参数时返回 ':' 而不是 '?'。*/
static void for_getopt(const struct option_row *rows, char *letters,
		       struct option *longs)
{
	*letters++ = ':';
	for (int i = 0; rows[i].help; i++) {
		if (!rows[i].name)
			continue;
		*longs++ = (struct option){
			rows[i].name,
			rows[i].argument ? required_argument : no_argument,
			NULL,
			rows[i].letter ? rows[i].letter : LONG_ONLY + i,
		};
		if (!rows[i].letter)
			continue;
		*letters++ = rows[i].letter;
		if (rows[i].argument)
			*letters++ = ':';
	}
	*letters = '\0';
	*longs = (struct option){ 0 };
}

/* getopt_long 说不出“下一步”，所以让它安静（opterr = 0），由我们来说。*/
static int wrong_option(const struct command_line *line, int c,
			const char *value)
{
	const char flag[] = { '-', (char)optopt, '\0' };

	if (c == ':')
		return wrong_usage(line->next, "this option needs an argument",
				   value);
	if (!optopt)
		return wrong_usage(line->next, "unknown or ambiguous option",
				   value);
	if (find_row(line->rows, optopt))
		return wrong_usage(line->next, "this option takes no argument",
				   value);
	return wrong_usage(line->next, "unknown option", flag);
}

int take_options(const struct command_line *line, int *argc, char **argv[])
{
	struct option longs[OPTIONS_MOST + 1];
	char letters[2 * OPTIONS_MOST + 2];
	int c, rc = -1;

	for_getopt(line->rows, letters, longs);
	store_standards(line->rows);
	opterr = 0;
	while (rc < 0 &&
	       (c = getopt_long(*argc, *argv, letters, longs, NULL)) != -1) {
		const char flag[] = { '-', (char)c, '\0' };

		if (c == ':' || c == '?')
			rc = wrong_option(line, c, (*argv)[optind - 1]);
		else if (c == 'h')
			rc = print_help(line);
		else if (line->letters && !strchr(line->letters, c))
			rc = wrong_usage(
				line->next,
				"this command does not take the option", flag);
		else
			rc = take(line->next, find_row(line->rows, c), optarg);
	}
	*argc -= optind;
	*argv += optind;
	return rc;
}

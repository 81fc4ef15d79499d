// SPDX-License-Identifier: MIT
/*
 * engine_options.c —— rdma_engine 的命令行
 *
 * 上限都给了默认值，也都能改：测试要把它们调小，好在一秒之内走到极限。
 */
#include "engine_options.h"

#include "base/arguments.h"
#include "base/report.h"
#include "engine/remote_read.h"
#include "engine/session.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define SHORT_OPTIONS ":s:p:d:g:n:c:m:a:t:r:w:qh"
#define MEBIBYTE      (UINT64_C(1) << 20)

static void print_help(void)
{
	printf("usage: rdma_engine --socket PATH --peer HOST[:PORT] [options]\n"
	       "\n"
	       "Reads needles from a storage node (needle_server) with RDMA "
	       "READ, for\n"
	       "clients on a Unix socket.\n"
	       "\n"
	       "  -s, --socket PATH    where clients connect; only this user "
	       "may\n"
	       "  -p, --peer HOST[:PORT]  the storage node (port: %d)\n"
	       "  -d, --device NAME    RDMA device (default: the first "
	       "usable)\n"
	       "  -g, --gid-index N    GID table slot (default: chosen by "
	       "type)\n"
	       "  -n, --max-sessions N sessions at once (default: 1000)\n"
	       "  -c, --max-clients N  clients at once (default: 1024)\n"
	       "  -m, --max-memory MIB for the bytes read, together "
	       "(default: 1024)\n"
	       "  -a, --auth-token-file F  clients must show this token\n"
	       "  -t, --session-timeout SECS  of sessions that name none "
	       "(%d)\n"
	       "  -r, --read-timeout SECS  of a read that makes no progress "
	       "(10)\n"
	       "  -w, --client-timeout SECS  of a client that stands still "
	       "(30)\n"
	       "      --depth N        READs posted at once (%d)\n"
	       "      --chunk BYTES    of one READ at most (%u)\n"
	       "  -q, --quiet          print only failures\n"
	       "  -h, --help           print this and exit\n"
	       "\n"
	       "SIGINT or SIGTERM ends it. Exit code: 0 done, 1 failed, 2 "
	       "wrong usage.\n",
	       DEFAULT_TCP_PORT, ENGINE_TIMEOUT_SECS, REMOTE_READ_DEPTH,
	       REMOTE_READ_CHUNK);
}

static int bad_usage(const char *what, const char *value)
{
	return wrong_usage(
		"usage: rdma_engine --socket PATH --peer HOST[:PORT] "
		"[options]; see --help",
		what, value);
}

/* HOST、HOST:PORT、[IPv6]:PORT。没有方括号而有两个以上冒号的，整个是 IPv6 地址。*/
static int parse_peer(struct engine_options *opt, const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t length = strlen(text);
	uint64_t port = DEFAULT_TCP_PORT;

	if (colon && *text != '[' && strchr(text, ':') != colon)
		colon = NULL;
	if (colon && *text == '[' && colon[-1] != ']')
		colon = NULL;
	if (colon) {
		if (!parse_number(colon + 1, 1, 65535, &port))
			return bad_usage("--peer's port is not 1 ... 65535",
					 text);
		length = (size_t)(colon - text);
	}
	if (length > 2 && *text == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (!length || length >= sizeof(opt->host))
		return bad_usage("--peer is not HOST or HOST:PORT", text);
	memcpy(opt->host, text, length);
	opt->host[length] = '\0';
	opt->port = (uint16_t)port;
	return -1;
}

/* 只是一个数的选项：字母、去处、范围。*/
static const struct number_option numbers[] = {
// clang-format off
#define NUMBER(option, member, low, high, wrong) \
	{ option, offsetof(struct engine_options, member), low, high, wrong }
	// clang-format on
	NUMBER('n', max_sessions, 1, 1000000,
	       "--max-sessions is not 1 ... 1000000"),
	NUMBER('c', max_clients, 1, 100000,
	       "--max-clients is not 1 ... 100000"),
	NUMBER('m', max_memory, 1, 1 << 24,
	       "--max-memory is not 1 ... 16777216 MiB"),
	NUMBER('t', session_secs, 1, 86400,
	       "--session-timeout is not 1 ... 86400"),
	NUMBER('r', read_secs, 1, 3600, "--read-timeout is not 1 ... 3600"),
	NUMBER('w', client_secs, 1, 3600, "--client-timeout is not 1 ... 3600"),
	NUMBER('D', depth, 1, 8192, "--depth is not 1 ... 8192"),
	NUMBER('C', chunk, 1, 1 << 30, "--chunk is not 1 ... 1073741824"),
#undef NUMBER
};

static int parse_option(struct engine_options *opt, int c, char *argv[])
{
	const struct number_option *number =
		find_number(numbers, sizeof(numbers) / sizeof(numbers[0]), c);
	char value[64];
	uint64_t n;

	if (number)
		return take_number(opt, number, optarg)
			       ? -1
			       : bad_usage(number->wrong, optarg);
	switch (c) {
	case 's':
		opt->socket = optarg;
		return -1;
	case 'p':
		return parse_peer(opt, optarg);
	case 'd':
		opt->device = optarg;
		return -1;
	case 'a':
		opt->token_file = optarg;
		return -1;
	case 'g':
		if (!parse_number(optarg, 0, 255, &n))
			return bad_usage("--gid-index is not 0 ... 255",
					 optarg);
		opt->gid_index = (int)n;
		return -1;
	case 'q':
		report_set_level(REPORT_QUIET);
		return -1;
	case 'h':
		print_help();
		return 0;
	}
	return bad_usage(wrong_option(c, argv, SHORT_OPTIONS, value,
				      sizeof(value)),
			 value);
}

static int settle(struct engine_options *opt, int argc, char *argv[])
{
	if (argc > 0)
		return bad_usage("too many arguments", argv[0]);
	if (!opt->socket)
		return bad_usage("--socket is missing", NULL);
	if (!opt->port)
		return bad_usage("--peer is missing", NULL);
	opt->max_memory *= MEBIBYTE;
	return -1;
}

int engine_options_parse(struct engine_options *opt, int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "peer", required_argument, NULL, 'p' },
		{ "device", required_argument, NULL, 'd' },
		{ "gid-index", required_argument, NULL, 'g' },
		{ "max-sessions", required_argument, NULL, 'n' },
		{ "max-clients", required_argument, NULL, 'c' },
		{ "max-memory", required_argument, NULL, 'm' },
		{ "auth-token-file", required_argument, NULL, 'a' },
		{ "session-timeout", required_argument, NULL, 't' },
		{ "read-timeout", required_argument, NULL, 'r' },
		{ "client-timeout", required_argument, NULL, 'w' },
		{ "depth", required_argument, NULL, 'D' },
		{ "chunk", required_argument, NULL, 'C' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, rc;

	*opt = (struct engine_options){
		.gid_index = GID_INDEX_AUTO,
		.max_sessions = 1000,
		.max_clients = 1024,
		.max_memory = 1024,
		.session_secs = ENGINE_TIMEOUT_SECS,
		.read_secs = 10,
		.client_secs = 30,
		.depth = REMOTE_READ_DEPTH,
		.chunk = REMOTE_READ_CHUNK,
	};
	opterr = 0;
	while ((c = getopt_long(argc, argv, SHORT_OPTIONS, longs, NULL)) !=
	       -1) {
		rc = parse_option(opt, c, argv);
		if (rc >= 0)
			return rc;
	}
	return settle(opt, argc - optind, argv + optind);
}

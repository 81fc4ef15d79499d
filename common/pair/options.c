// SPDX-License-Identifier: MIT
/*
 * options.c —— rdma_server 与 rdma_client 共用的命令行
 *
 * 位置参数与教材一致（设备名、端口、GID index 都可省略），其余用 getopt_long。
 * 每个数都检查到底：atoi("70000abc") 会悄悄给出 70000，再截成 16 位就是 4464。
 */
#include "options.h"

#include "base/arguments.h"
#include "base/report.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WINDOW	128
#define DEFAULT_BW_ITER 1000
#define MAX_ITERS	100000000
/* 开头的 ':'：缺少参数时返回 ':' 而不是 '?' */
#define SHORT_OPTIONS ":s:n:bw:em:t:qjh"

static const char *program(enum role role)
{
	return role == ROLE_SERVER ? "rdma_server" : "rdma_client";
}

static const char *synopsis(enum role role)
{
	return role == ROLE_SERVER
		       ? "[options] [device_name] [port] [gid_index]"
		       : "[options] <server_ip> [device_name] [port] "
			 "[gid_index]";
}

static void print_help(enum role role)
{
	printf("usage: %s %s\n"
	       "\n"
	       "  device_name        RDMA device (default: the first usable)\n"
	       "  port               TCP port of the server (default: %d)\n"
	       "  gid_index          GID table slot (default: chosen by type)\n"
	       "\n"
	       "  -s, --size B       bytes of one message (default: %d)\n"
	       "  -n, --iters N      measure N round trips\n"
	       "  -b, --bw           measure bandwidth, client to server\n"
	       "  -w, --window N     --bw: sends outstanding at most (%d)\n"
	       "  -e, --events       sleep until completions come, do not "
	       "poll\n"
	       "  -m, --message TEXT the text to send\n"
	       "  -t, --timeout SECS limit of every wait (default: %s;\n"
	       "                     10 for the exchange, 5 for a completion)\n"
	       "  -q, --quiet        print only the result and failures\n"
	       "  -j, --json         print the result as one JSON object\n"
	       "  -h, --help         print this and exit\n"
	       "\n"
	       "Give -s, -n, -b the same values on both sides.\n"
	       "Exit code: 0 done, 1 failed, 2 wrong usage.\n",
	       program(role), synopsis(role), DEFAULT_TCP_PORT,
	       DEFAULT_MSG_SIZE, DEFAULT_WINDOW,
	       role == ROLE_SERVER ? "300 for a client to come"
				   : "10 for the server to be there");
}

static int bad_usage(enum role role, const char *what, const char *value)
{
	char next[160];

	snprintf(next, sizeof(next), "usage: %s %s; see --help", program(role),
		 synopsis(role));
	return wrong_usage(next, what, value);
}

const char *options_device(struct rdma_options *opt, int argc, char *argv[],
			   const char **value)
{
	uint64_t n;

	*value = argc > 3 ? argv[3] : NULL;
	if (argc > 3)
		return "too many arguments";
	if (argc > 0) {
		const char *what = not_a_device(argv[0]);

		*value = argv[0];
		if (what)
			return what;
		opt->config.device_name = argv[0];
	}
	if (argc > 1) {
		*value = argv[1];
		if (!parse_number(argv[1], 1, 65535, &n))
			return "port is not 1 ... 65535";
		opt->tcp_port = (uint16_t)n;
	}
	if (argc > 2) {
		*value = argv[2];
		if (!parse_number(argv[2], 0, 255, &n))
			return "gid_index is not 0 ... 255";
		opt->config.gid_index = (int)n;
	}
	return NULL;
}

static int parse_positional(struct rdma_options *opt, int argc, char *argv[])
{
	const char *what, *value;

	if (opt->role == ROLE_CLIENT) {
		if (argc < 1 || !*argv[0])
			return bad_usage(opt->role, "the server is missing",
					 NULL);
		what = not_a_server(argv[0]);
		if (what)
			return bad_usage(opt->role, what, argv[0]);
		opt->server = argv[0];
		argc--;
		argv++;
	}
	what = options_device(opt, argc, argv, &value);
	return what ? bad_usage(opt->role, what, value) : -1;
}

static int parse_option(struct rdma_options *opt, int c)
{
	uint64_t n;

	switch (c) {
	case 's':
		if (!parse_number(optarg, 1, MAX_MSG_SIZE, &n))
			return bad_usage(opt->role,
					 "--size is not 1 ... 1073741824",
					 optarg);
		opt->config.msg_size = (uint32_t)n;
		return -1;
	case 'n':
		if (!parse_number(optarg, 1, MAX_ITERS, &opt->plan.iters))
			return bad_usage(opt->role,
					 "--iters is not 1 ... 100000000",
					 optarg);
		return -1;
	case 'w':
		if (!parse_number(optarg, 1, 4096, &n))
			return bad_usage(opt->role,
					 "--window is not 1 ... 4096", optarg);
		opt->plan.window = (uint32_t)n;
		return -1;
	case 't':
		if (!parse_number(optarg, 1, 86400, &n))
			return bad_usage(opt->role,
					 "--timeout is not 1 ... 86400 seconds",
					 optarg);
		opt->timeout_ms = (int)n * 1000;
		return -1;
	case 'b':
		opt->plan.mode = MODE_BANDWIDTH;
		return -1;
	case 'e':
		opt->config.events = true;
		return -1;
	case 'm':
		opt->message = optarg;
		return -1;
	case 'j':
		opt->json = true;
		/* fall through */
	case 'q':
		report_set_level(REPORT_QUIET);
		return -1;
	case 'h':
		print_help(opt->role);
		return 0;
	}
	return EXIT_USAGE;
}

static int bad_option(enum role role, int c, char *argv[])
{
	char value[64];
	const char *what =
		wrong_option(c, argv, SHORT_OPTIONS, value, sizeof(value));

	return bad_usage(role, what, value);
}

/* 选项之间的关系放在最后检查：它们可以以任何顺序出现。*/
static int settle(struct rdma_options *opt)
{
	if (opt->plan.mode == MODE_BANDWIDTH) {
		if (!opt->plan.iters)
			opt->plan.iters = DEFAULT_BW_ITER;
	} else if (opt->plan.iters) {
		opt->plan.mode = MODE_PINGPONG;
	}
	if (opt->message && opt->plan.mode != MODE_ONCE)
		return bad_usage(opt->role,
				 "--message does not go with --iters or --bw",
				 NULL);
	if (!opt->message)
		opt->message = opt->role == ROLE_SERVER
				       ? "Hello from RDMA server!"
				       : "Hello from RDMA client!";
	if (opt->plan.mode == MODE_ONCE &&
	    strlen(opt->message) + 1 > opt->config.msg_size)
		return bad_usage(opt->role,
				 "the message and its NUL are longer than "
				 "--size",
				 opt->message);
	measure_slots(&opt->config, &opt->plan);
	return -1;
}

int options_parse(struct rdma_options *opt, enum role role, int argc,
		  char *argv[])
{
	static const struct option longs[] = {
		{ "size", required_argument, NULL, 's' },
		{ "iters", required_argument, NULL, 'n' },
		{ "bw", no_argument, NULL, 'b' },
		{ "window", required_argument, NULL, 'w' },
		{ "events", no_argument, NULL, 'e' },
		{ "message", required_argument, NULL, 'm' },
		{ "timeout", required_argument, NULL, 't' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, rc;

	*opt = (struct rdma_options){
		.role = role,
		.tcp_port = DEFAULT_TCP_PORT,
		.config = { .gid_index = GID_INDEX_AUTO,
			    .msg_size = DEFAULT_MSG_SIZE },
		.plan = { .window = DEFAULT_WINDOW },
	};
	opterr = 0;
	while ((c = getopt_long(argc, argv, SHORT_OPTIONS, longs, NULL)) !=
	       -1) {
		rc = c == ':' || c == '?' ? bad_option(role, c, argv)
					  : parse_option(opt, c);
		if (rc >= 0)
			return rc;
	}
	rc = parse_positional(opt, argc - optind, argv + optind);
	return rc >= 0 ? rc : settle(opt);
}

int timeout_or(const struct rdma_options *opt, int default_ms)
{
	return opt->timeout_ms ? opt->timeout_ms : default_ms;
}

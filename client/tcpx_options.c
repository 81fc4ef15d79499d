// SPDX-License-Identifier: MIT
/*
 * tcpx_options.c —— test_connection 的命令行
 *
 * 角色与地址是位置参数，与 000 号文档一致；其余用 getopt_long，可写在前后任何位置。
 */
#include "tcpx_options.h"

#include "base/arguments.h"
#include "base/report.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define SHORT_OPTIONS	":d:s:n:c:p:a:P:Mblt:qjh"
#define DEFAULT_BW_SIZE (1u << 20)
#define DEFAULT_BW_ITER 1000
#define MAX_ITERS	100000000

static void print_help(void)
{
	printf("usage: test_connection [options] server\n"
	       "       test_connection [options] client <server_ip>\n"
	       "\n"
	       "  -d, --dev N        the plugin's device (default: 0)\n"
	       "  -s, --size B       send patterns of B bytes, 0 ... %u, not\n"
	       "                     the text\n"
	       "  -n, --iters N      messages on each channel (default: 1)\n"
	       "  -c, --channels N   handles and connections, 1 ... %d; the\n"
	       "                     server decides (default: 1)\n"
	       "  -p, --port P       TCP port of the bootstrap (default: %d)\n"
	       "  -a, --net-api vN   v5 ... v8 of the plugin's interface\n"
	       "                     (default: its newest)\n"
	       "  -P, --plugin PATH  the plugin (default: "
	       "$UCCL_TCPX_PLUGIN_PATH,\n"
	       "                     else libnccl-net-lab.so beside this "
	       "program)\n"
	       "  -M, --mix-api      mix versions, as lesson 06 shows: the\n"
	       "                     server listens through v7, all else is "
	       "v5\n"
	       "                     (default plugin: libnccl-net-mixed.so)\n"
	       "  -b, --bw           measure throughput, client to server\n"
	       "  -l, --ping-pong    measure latency\n"
	       "  -t, --timeout SECS limit of every wait (default: 300 for a\n"
	       "                     client to come, 10 for all others)\n"
	       "  -q, --quiet        print only the result and failures\n"
	       "  -j, --json         print the result as one JSON object\n"
	       "  -h, --help         print this and exit\n"
	       "\n"
	       "The client decides about --size, --iters, --bw and "
	       "--ping-pong.\n"
	       "UCCL_TCPX_DEBUG=1 shows each call of the plugin.\n"
	       "Exit code: 0 done, 1 failed, 2 wrong usage.\n",
	       TCPX_MAX_SIZE, TCPX_MAX_CHANNELS, TCPX_DEFAULT_PORT);
}

static int bad_usage(const char *what, const char *value)
{
	return wrong_usage("usage: test_connection [options] server | client "
			   "<server_ip>; see --help",
			   what, value);
}

static int parse_api(struct tcpx_test *test, const char *text)
{
	if (text[0] != 'v' || text[1] < '0' + NCCL_NET_OLDEST ||
	    text[1] > '0' + NCCL_NET_NEWEST || text[2])
		return bad_usage("--net-api is not v5, v6, v7 or v8", text);
	test->api = text[1] - '0';
	return -1;
}

/* 带数字的选项：名字、范围与去处列成一张表。*/
static int parse_numeric(struct tcpx_test *test, int c)
{
	static const struct {
		int c;
		uint64_t low, high;
		const char *what;
	} ranges[] = {
		{ 'd', 0, 65535, "--dev is not 0 ... 65535" },
		{ 's', 0, TCPX_MAX_SIZE, "--size is not 0 ... 1073741824" },
		{ 'n', 1, MAX_ITERS, "--iters is not 1 ... 100000000" },
		{ 'c', 1, TCPX_MAX_CHANNELS, "--channels is not 1 ... 64" },
		{ 'p', 1, 65535, "--port is not 1 ... 65535" },
		{ 't', 1, 86400, "--timeout is not 1 ... 86400 seconds" },
	};
	uint64_t n;
	size_t i = 0;

	while (ranges[i].c != c)
		i++;
	if (!parse_number(optarg, ranges[i].low, ranges[i].high, &n))
		return bad_usage(ranges[i].what, optarg);
	if (c == 'd')
		test->dev = (int)n;
	else if (c == 'c')
		test->channels = (unsigned int)n;
	else if (c == 'p')
		test->port = (uint16_t)n;
	else if (c == 't')
		test->timeout_ms = (int)n * 1000;
	else if (c == 'n')
		test->plan.iters = n;
	else
		test->plan.size = n;
	if (c == 's')
		test->plan.text = false;
	test->plan_given |= c == 's' || c == 'n';
	return -1;
}

static int parse_option(struct tcpx_options *opt, int c)
{
	struct tcpx_test *test = &opt->test;

	switch (c) {
	case 'a':
		return parse_api(test, optarg);
	case 'P':
		test->plugin = optarg;
		return -1;
	case 'M':
		test->listen_api = 7;
		test->api = 5;
		return -1;
	case 'b':
	case 'l':
		test->plan.mode = c == 'b' ? TCPX_BANDWIDTH : TCPX_PING_PONG;
		test->plan_given = true;
		return -1;
	case 'j':
		opt->json = true;
		/* fall through */
	case 'q':
		report_set_level(REPORT_QUIET);
		return -1;
	case 'h':
		print_help();
		return 0;
	}
	return parse_numeric(test, c);
}

static int parse_positional(struct tcpx_test *test, int argc, char *argv[])
{
	bool client = argc > 0 && !strcmp(argv[0], "client");

	if (argc < 1)
		return bad_usage("the role is missing", NULL);
	if (!client && strcmp(argv[0], "server"))
		return bad_usage("the role is not server or client", argv[0]);
	if (client && (argc < 2 || !*argv[1]))
		return bad_usage("the server is missing", NULL);
	if (argc > (client ? 2 : 1))
		return bad_usage("too many arguments", argv[client ? 2 : 1]);
	if (client)
		test->server = argv[1];
	return -1;
}

/* 没有给出的，按方式补上默认值。*/
static void settle(struct tcpx_plan *plan)
{
	bool measures = plan->mode != TCPX_CHECK;

	if (!plan->iters)
		plan->iters = measures ? DEFAULT_BW_ITER : 1;
	if (plan->text && measures) {
		plan->text = false;
		plan->size =
			plan->mode == TCPX_BANDWIDTH ? DEFAULT_BW_SIZE : 64;
	}
}

int tcpx_options_parse(struct tcpx_options *opt, int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "dev", required_argument, NULL, 'd' },
		{ "size", required_argument, NULL, 's' },
		{ "iters", required_argument, NULL, 'n' },
		{ "channels", required_argument, NULL, 'c' },
		{ "port", required_argument, NULL, 'p' },
		{ "net-api", required_argument, NULL, 'a' },
		{ "plugin", required_argument, NULL, 'P' },
		{ "mix-api", no_argument, NULL, 'M' },
		{ "bw", no_argument, NULL, 'b' },
		{ "ping-pong", no_argument, NULL, 'l' },
		{ "timeout", required_argument, NULL, 't' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	char value[64];
	int c, rc;

	*opt = (struct tcpx_options){
		.test = { .port = TCPX_DEFAULT_PORT,
			  .mem_type = NCCL_PTR_HOST,
			  .plan = { .size = sizeof(TCPX_TEXT), .text = true } },
	};
	opterr = 0;
	while ((c = getopt_long(argc, argv, SHORT_OPTIONS, longs, NULL)) !=
	       -1) {
		if (c == ':' || c == '?')
			return bad_usage(wrong_option(c, argv, SHORT_OPTIONS,
						      value, sizeof(value)),
					 value);
		rc = parse_option(opt, c);
		if (rc >= 0)
			return rc;
	}
	rc = parse_positional(&opt->test, argc - optind, argv + optind);
	if (rc < 0)
		settle(&opt->test.plan);
	return rc;
}

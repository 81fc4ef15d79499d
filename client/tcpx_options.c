// SPDX-License-Identifier: MIT
/*
 * tcpx_options.c —— test_connection 的命令行
 *
 * 角色与地址是位置参数，与 000 号文档一致；其余用 getopt_long，可写在前后任何位置。
 */
#include "tcpx_options.h"

#include "base/arguments.h"

#include <string.h>

#define HEAD                                        \
	"usage: test_connection [options] server\n" \
	"       test_connection [options] client <server_ip>\n\n"
#define TAIL                                                                  \
	"\nThe client decides about --size, --iters, --bw and --ping-pong.\n" \
	"UCCL_TCPX_DEBUG=1 shows each call of the plugin.\n"                  \
	"Exit code: 0 done, 1 failed, 2 wrong usage.\n"
static const char usage[] = "usage: test_connection [options] server | client "
			    "<server_ip>; see --help";

/* 没有给出的，按方式补上默认值；给了哪些，server 一方要知道。*/
static int settle(struct tcpx_test *test, uint64_t size, const char *api)
{
	struct tcpx_plan *plan = &test->plan;
	const bool measures = plan->mode != TCPX_CHECK;

	test->plan_given = size != UINT64_MAX || plan->iters || measures;
	if (!plan->iters)
		plan->iters = measures ? 1000 : 1;
	plan->text = size == UINT64_MAX && !measures;
	plan->size = size != UINT64_MAX		    ? size
		     : plan->mode == TCPX_CHECK	    ? sizeof(TCPX_TEXT)
		     : plan->mode == TCPX_BANDWIDTH ? 1 << 20
						    : 64;
	if (test->listen_api)
		test->api = 5;
	if (!api)
		return -1;
	if (api[0] != 'v' || api[1] < '0' + NCCL_NET_OLDEST ||
	    api[1] > '0' + NCCL_NET_NEWEST || api[2])
		return wrong_usage(usage, "--net-api is not v5, v6, v7 or v8",
				   api);
	test->api = api[1] - '0';
	return -1;
}

int tcpx_options_parse(struct tcpx_options *opt, int argc, char *argv[])
{
	struct tcpx_test *test = &opt->test;
	const char *api = NULL;
	uint64_t size;
	const struct option_row rows[] = {
		{ 'd', "dev", "N", "the plugin's device (default: @)",
		  NUMBER(test->dev, 0, 0, UINT16_MAX) },
		{ 's', "size", "B",
		  "send patterns of B bytes, 0 ... #, not\nthe text",
		  NUMBER(size, UINT64_MAX, 0, TCPX_MAX_SIZE) },
		{ 'n', "iters", "N", "messages on each channel (default: 1)",
		  NUMBER(test->plan.iters, 0, 1, 100000000) },
		{ 'c', "channels", "N",
		  "handles and connections, 1 ... #; the\nserver decides "
		  "(default: 1)",
		  NUMBER(test->channels, 0, 1, TCPX_MAX_CHANNELS) },
		{ 'p', "port", "P", "TCP port of the bootstrap (default: @)",
		  NUMBER(test->port, TCPX_DEFAULT_PORT, 1, UINT16_MAX) },
		{ 'a', "net-api", "vN",
		  "v5 ... v8 of the plugin's interface\n(default: its newest)",
		  TEXT(api) },
		{ 'P', "plugin", "PATH",
		  "the plugin (default: $UCCL_TCPX_PLUGIN_PATH,\nelse "
		  "libnccl-net-lab.so beside this program)",
		  TEXT(test->plugin) },
		{ 'M', "mix-api", NULL,
		  "mix versions, as lesson 06 shows: the\nserver listens "
		  "through v7, all else is v5\n(default plugin: "
		  "libnccl-net-mixed.so)",
		  SET(test->listen_api, 7) },
		{ 'b', "bw", NULL, "measure throughput, client to server",
		  SET(test->plan.mode, TCPX_BANDWIDTH) },
		{ 'l', "ping-pong", NULL, "measure latency",
		  SET(test->plan.mode, TCPX_PING_PONG) },
		{ 't', "timeout", "SECS",
		  "limit of every wait (default: 300 for a\nclient to come, 10 "
		  "for all others)",
		  SECONDS(test->timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(opt->json) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, HEAD, TAIL, 21, NULL, rows };
	int rc;

	*opt = (struct tcpx_options){ .test.mem_type = NCCL_PTR_HOST };
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = take_role(usage, argc, argv, &test->server);
	return rc < 0 ? settle(test, size, api) : rc;
}

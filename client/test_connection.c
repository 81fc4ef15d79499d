// SPDX-License-Identifier: MIT
/*
 * test_connection.c —— 两个节点、一个插件、没有共享文件系统
 *
 * 一个程序，两种角色：server 收，client 发。每一步的道理都在 common/tcpx/session.c
 * （次序）、tcpx/exchange.c（handle 如何交到对端）与 tcpx/calls.c（插件的契约）里。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/report.h"
#include "tcpx/session.h"

#include <locale.h>

struct tcpx_options {
	struct tcpx_test test;
	bool json; /* 结果印成一个 JSON 对象 */
};

/* ---- 命令行：角色与地址是位置参数，与 000 号文档一致 ---------------------- */

#define HEAD                                        \
	"usage: test_connection [options] server\n" \
	"       test_connection [options] client <server_ip>\n\n"
#define TAIL                                                                  \
	"\nThe client decides about --size, --iters, --bw and --ping-pong.\n" \
	"UCCL_TCPX_DEBUG=1 shows each call of the plugin.\n" EXIT_CODES
static const char usage[] = "usage: test_connection [options] server | client "
			    "<server_ip>; see --help";

/* 没有给出的，按方式补上默认值；给了哪些，server 一方要知道。*/
static int complete_options(struct tcpx_test *test, uint64_t size,
			    const char *api)
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

static int parse(struct tcpx_options *opt, int argc, char *argv[])
{
	struct tcpx_test *test = &opt->test;
	const char *api = NULL;
	uint64_t size = 0;
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
	return rc < 0 ? complete_options(test, size, api) : rc;
}

/* ---- 结果 --------------------------------------------------------------- */

static int print_json(const struct tcpx_test *test,
		      const struct tcpx_outcome *out)
{
	static const char *const modes[] = { "check", "bandwidth",
					     "ping-pong" };
	json_t *root =
		json_pack("{s:s, s:i, s:s, s:i, s:I, s:I, s:f, s:f}", "role",
			  test->server ? "client" : "server", "net_api",
			  out->api, "mode", modes[out->plan.mode], "channels",
			  (int)out->channels, "size",
			  (json_int_t)out->plan.size, "iters",
			  (json_int_t)out->plan.iters, "seconds", out->seconds,
			  "mb_per_s", out->mb_per_s);

	if (root && out->plan.mode == TCPX_PING_PONG && test->server)
		json_object_set_new(root, "half_round_trip_us",
				    lap_summary_as_json(&out->half_us));
	return print_json_line(root);
}

static int print_result(const struct tcpx_options *opt,
			const struct tcpx_outcome *out)
{
	if (opt->json)
		return print_json(&opt->test, out);
	if (out->plan.mode == TCPX_BANDWIDTH)
		report_result("%ju messages of %ju bytes: %.2f MB/s",
			      out->plan.iters, out->plan.size, out->mb_per_s);
	else if (out->plan.mode == TCPX_PING_PONG && opt->test.server)
		report_round_trips(out->plan.iters, out->plan.size,
				   &out->half_us);
	return 0;
}

int main(int argc, char *argv[])
{
	struct tcpx_options opt;
	struct tcpx_outcome out;
	int rc;

	setlocale(LC_CTYPE, "");
	rc = parse(&opt, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = tcpx_run_test(&opt.test, &out);
	if (!rc)
		rc = print_result(&opt, &out);
	if (!rc)
		rc = report_flush();
	return rc ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * test_connection.c —— 两个节点、一个插件、没有共享文件系统
 *
 * 一个程序，两种角色：server 收，client 发。每一步的道理都在 common/tcpx/session.c
 * （次序）、tcpx/exchange.c（handle 如何交到对端）与 tcpx/calls.c（插件的契约）里。
 */
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/report.h"
#include "tcpx_options.h"

#include <locale.h>

static const char *mode_of(const struct tcpx_plan *plan)
{
	static const char *const names[] = { "check", "bandwidth",
					     "ping-pong" };

	return names[plan->mode];
}

static int print_json(const struct tcpx_test *test,
		      const struct tcpx_outcome *out)
{
	json_t *root =
		json_pack("{s:s, s:i, s:s, s:i, s:I, s:I, s:f, s:f}", "role",
			  test->server ? "client" : "server", "net_api",
			  out->api, "mode", mode_of(&out->plan), "channels",
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
	rc = tcpx_options_parse(&opt, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = opt.test.server ? tcpx_test_client(&opt.test, &out)
			     : tcpx_test_server(&opt.test, &out);
	if (!rc)
		rc = print_result(&opt, &out);
	if (!rc)
		rc = report_flush();
	return rc ? 1 : 0;
}

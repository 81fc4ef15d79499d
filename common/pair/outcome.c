// SPDX-License-Identifier: MIT
/*
 * outcome.c —— server 与 client 的结果怎样呈现：一行字，或一个 JSON 对象
 */
#include "outcome.h"

#include "base/json_line.h"
#include "base/laps.h"
#include "base/report.h"

#include <string.h>

uint32_t message_size(const struct rdma_options *opt,
		      const struct rdma_resources *res)
{
	return opt->plan.mode == MODE_ONCE ? (uint32_t)strlen(opt->message) + 1
					   : res->msg_size;
}

static json_t *side_as_json(const struct cm_con_data_t *side)
{
	char gid[GID_TEXT_SIZE];

	return json_pack("{s:i, s:i, s:s, s:i}", "qpn", (int)side->qp_num,
			 "psn", (int)side->psn, "gid", gid_text(gid, side->gid),
			 "active_mtu",
			 (int)mtu_bytes((enum ibv_mtu)side->active_mtu));
}

static void add_result(json_t *root, const struct rdma_options *opt,
		       const struct outcome *out)
{
	const struct measure_result *m = &out->measure;

	if (opt->plan.mode == MODE_ONCE) {
		json_object_set_new(root, "sent_bytes",
				    json_integer(out->sent_bytes));
		json_object_set_new(root, "received_bytes",
				    json_integer(out->received_bytes));
		json_object_set_new(root, "received_text",
				    json_string(out->text));
		return;
	}
	json_object_set_new(root, "iters",
			    json_integer((json_int_t)opt->plan.iters));
	if (!out->measured)
		return;
	json_object_set_new(root, "seconds", json_real(m->seconds));
	json_object_set_new(root, "mb_per_s", json_real(m->mb_per_s));
	if (opt->plan.mode == MODE_PINGPONG)
		json_object_set_new(root, "half_round_trip_us",
				    lap_summary_as_json(&m->half_us));
}

static int print_json(const struct rdma_options *opt,
		      const struct rdma_resources *res,
		      const struct outcome *out)
{
	struct cm_con_data_t mine = cm_con_data_of(res);
	json_t *root = json_pack(
		"{s:s, s:s, s:i, s:i, s:s, s:i, s:o, s:o}", "role",
		opt->role == ROLE_SERVER ? "server" : "client", "device",
		ibv_get_device_name(res->context->device), "gid_index",
		res->gid_index, "path_mtu", (int)mtu_bytes(path_mtu(res)),
		"mode", mode_name(opt->plan.mode), "size",
		(int)opt->config.msg_size, "local", side_as_json(&mine),
		"remote", side_as_json(&res->remote));

	if (root)
		add_result(root, opt, out);
	return print_json_line(root);
}

void show_device(const struct rdma_resources *res)
{
	report_fact("%s port %u, GID index %u",
		    ibv_get_device_name(res->context->device), res->ib_port,
		    res->gid_index);
}

int report_outcome(const struct rdma_options *opt,
		   const struct rdma_resources *res, const struct outcome *out)
{
	const struct measure_result *m = &out->measure;
	unsigned long long iters = opt->plan.iters;
	int rc = 0;

	if (opt->json)
		rc = print_json(opt, res, out);
	else if (opt->plan.mode == MODE_ONCE)
		report_result("received %u bytes: \"%s\"", out->received_bytes,
			      out->text);
	else if (!out->measured)
		report_result("%llu messages of %u bytes, all as expected",
			      iters, opt->config.msg_size);
	else if (opt->plan.mode == MODE_BANDWIDTH)
		report_result("%llu messages of %u bytes: %.2f MB/s", iters,
			      opt->config.msg_size, m->mb_per_s);
	else
		report_round_trips(iters, opt->config.msg_size, &m->half_us);
	return rc ? rc : report_flush();
}

// SPDX-License-Identifier: MIT
/*
 * cm.c —— 第 11 课：librdmacm 的每一步，和每一步之后 QP 在哪里
 *
 *	11-rdma-cm server [options]
 *	11-rdma-cm client [options] <server_ip>
 *
 * 步骤是第 11 阶段的；这里在每一步之后去问内核，并且能让 server 拒绝、不答、被杀，让
 * client 带坏的 private data、忘记 ack。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/report.h"
#include "explain/qp_table.h"
#include "rdma_common.h"

#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define USAGE	  "11-rdma-cm server | client [options] <server_ip>"
#define LONG_MS	  (60 * 1000)
#define ANSWER_MS 4000 /* client 等 ESTABLISHED */

struct options {
	const char *server;
	uint16_t port;
	bool reject, silent, die, no_ack, ours;
	uint32_t private_data, idle_ms;
};

struct run {
	const struct options *opt;
	struct cm_connection cm;
	struct rdma_resources res;
};

static const struct rdma_config config = { .msg_size = 64,
					   .gid_index = GID_INDEX_AUTO };

static void show_state(struct run *run, const char *after)
{
	struct ibv_qp_attr attr;

	if (!query_qp(&run->res, &attr))
		report_fact("%-18s QP in %s", after,
			    qp_state_name(attr.qp_state));
}

// region show-rts
/* librdmacm 给 QP 的值：最后一次 modify_qp 之后，向内核问。*/
static void show_attributes(struct run *run)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;

	if (ibv_query_qp(run->res.qp, &a,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_MIN_RNR_TIMER,
			 &init))
		return;
	report_fact("%-18s QP in %s", "ESTABLISHED", qp_state_name(a.qp_state));
	report_fact("  path MTU %u, timeout %u, retry_cnt %u, rnr_retry %u",
		    mtu_bytes(a.path_mtu), a.timeout, a.retry_cnt, a.rnr_retry);
	report_fact("  min_rnr_timer %u, max_rd_atomic %u, sgid_index %u, "
		    "hop_limit %u",
		    a.min_rnr_timer, a.max_rd_atomic, a.ah_attr.grh.sgid_index,
		    a.ah_attr.grh.hop_limit);
}
// endregion show-rts

/* ---- server -------------------------------------------------------------- */

static int receive(struct run *run)
{
	int rc = poll_completion(&run->res, WR_ID_RECV(0), NULL, LONG_MS);

	if (!rc)
		report_fact("%-18s \"%s\"", "RECV", recv_slot(&run->res, 0));
	return rc;
}

// region server
static int serve(struct run *run)
{
	static const char nothing[CM_EXTRA_SIZE];
	struct cm_connection *cm = &run->cm;
	struct cm_event event;
	int rc;

	rc = listen_for_requests(cm, run->opt->port);
	if (rc)
		return rc;
	report_fact("%-18s port %u", "rdma_listen", run->opt->port);
	report_flush();
	rc = await_cm_request(cm, &run->res, deadline_in_ms(LONG_MS));
	if (rc)
		return rc;
	report_fact("%-18s on %s", "CONNECT_REQUEST",
		    ibv_get_device_name(run->res.context->device));
	if (run->opt->silent) /* 内核会替我们告诉 client“再等等”（MRA） */
		return deadline_sleep_ms(LONG_MS, INT64_MAX);
	if (run->opt->reject)
		return reject_request(cm, -EBUSY);
	rc = create_objects_on_id(cm, &run->res, &config);
	if (!rc)
		rc = post_all_receives(&run->res);
	if (rc)
		return rc;
	show_state(run, "rdma_create_qp");
	rc = accept_request(cm, &run->res, nothing, deadline_in_ms(LONG_MS));
	if (rc)
		return rc;
	show_attributes(run);
	if (run->opt->die)
		raise(SIGKILL);
	rc = receive(run);
	if (!rc)
		rc = await_cm_event(cm, cm->id, RDMA_CM_EVENT_DISCONNECTED,
				    deadline_in_ms(LONG_MS), &event);
	if (rc)
		return rc;
	show_state(run, "DISCONNECTED");
	rdma_disconnect(cm->id);
	show_state(run, "rdma_disconnect");
	return 0;
}
// endregion server

/* ---- client -------------------------------------------------------------- */

// region no-ack
/* 取到了事件，却没有 ack：rdma_destroy_id 要等它的事件都还回来。*/
static int forget_ack(const struct rdma_cm_id *resolved)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(id, NULL, rdma_get_peer_addr((void *)resolved),
			      2000) ||
	    rdma_get_cm_event(channel, &event))
		return call_failed(errno, "rdma_resolve_addr()");
	report_fact("%-18s not acknowledged", rdma_event_str(event->event));
	rdma_destroy_id(id);
	report_fact("rdma_destroy_id has returned");
	return 0;
}
// endregion no-ack

// region private-data
/* 自己调用 rdma_connect：这么长的 private data，不是我们的 hello。*/
static int connect_with(struct run *run, uint32_t length)
{
	static const char data[256] = "not our hello";
	struct rdma_conn_param param = { .private_data = data,
					 .private_data_len = (uint8_t)length };
	struct cm_event event;

	if (rdma_connect(run->cm.id, &param))
		return verb_failed(errno,
				   explain_cm_call("connect", errno, false,
						   length, false),
				   "rdma_connect(private_data_len %u)", length);
	return await_cm_event(&run->cm, run->cm.id, RDMA_CM_EVENT_ESTABLISHED,
			      deadline_in_ms(LONG_MS), &event);
}
// endregion private-data

// region idle
/* 什么也不发，看有没有事件来；然后发一条，看多久之后知道。*/
static int idle_then_send(struct run *run)
{
	struct cm_event event = { 0 };
	int64_t began = now_ns();
	int rc;

	rc = wait_fd(run->cm.channel->fd, POLLIN,
		     began + run->opt->idle_ms * 1000000LL);
	if (rc)
		report_fact("%-18s after %u s", "no event",
			    run->opt->idle_ms / 1000);
	else if (!await_cm_event(&run->cm, run->cm.id,
				 RDMA_CM_EVENT_DISCONNECTED, began, &event))
		report_fact("%-18s status %d", "DISCONNECTED", event.status);
	show_state(run, "");
	began = now_ns();
	rc = post_send(&run->res, 0, 16, true);
	if (!rc)
		rc = poll_completion(&run->res, WR_ID_SEND(0), NULL, LONG_MS);
	report_fact("%-18s after %.0f s", rc ? "SEND failed" : "SEND completed",
		    (double)(now_ns() - began) / 1e9);
	show_state(run, "");
	return rc;
}
// endregion idle

// region client
static int client(struct run *run)
{
	static const char nothing[CM_EXTRA_SIZE];
	struct cm_connection *cm = &run->cm;
	const struct ibv_sa_path_rec *path;
	int rc;

	rc = resolve_server(cm, &run->res, run->opt->server, run->opt->port,
			    deadline_in_ms(LONG_MS));
	if (rc)
		return rc;
	if (run->opt->no_ack)
		return forget_ack(cm->id);
	path = cm->id->route.path_rec;
	report_fact("%-18s %s is reached through %s", "ADDR_RESOLVED", cm->peer,
		    ibv_get_device_name(run->res.context->device));
	report_fact("%-18s path MTU %u, packet life time %u", "ROUTE_RESOLVED",
		    mtu_bytes(path->mtu), path->packet_life_time);
	rc = create_objects_on_id(cm, &run->res, &config);
	if (!rc)
		rc = post_all_receives(&run->res);
	if (rc)
		return rc;
	show_state(run, "rdma_create_qp");
	if (run->opt->private_data)
		rc = connect_with(run, run->opt->private_data);
	else
		rc = request_connection(cm, &run->res, nothing,
					deadline_in_ms(ANSWER_MS));
	if (rc == -EAGAIN) /* rdma_client 会再试；这里要看的就是它 */
		rc = cm_event_failed(RDMA_CM_EVENT_REJECTED, 8, cm->peer);
	if (rc)
		return rc;
	show_attributes(run);
	strcpy(send_slot(&run->res, 0), "hello");
	if (run->opt->idle_ms)
		return idle_then_send(run);
	rc = post_send(&run->res, 0, 16, true);
	if (!rc)
		rc = poll_completion(&run->res, WR_ID_SEND(0), NULL, LONG_MS);
	if (!rc)
		rc = disconnect_cm(cm, true, deadline_in_ms(LONG_MS));
	if (!rc)
		show_state(run, "rdma_disconnect");
	return rc;
}
// endregion client

/* ---- 命令行 -------------------------------------------------------------- */

static int parse(struct options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'p', "port", "N", "librdmacm's port (default: @)",
		  NUMBER(opt->port, 7471, 1, UINT16_MAX) },
		{ 0, "reject", NULL, "server: say no, with EBUSY as the reason",
		  FLAG(opt->reject) },
		{ 0, "silent", NULL, "server: do not answer for a minute",
		  FLAG(opt->silent) },
		{ 0, "die", NULL, "server: be killed when connected",
		  FLAG(opt->die) },
		{ 0, "private-data", "N",
		  "client: N bytes of something in rdma_connect",
		  NUMBER(opt->private_data, 0, 1, 255) },
		{ 0, "idle", "SECS",
		  "client: only wait for an event so long, then SEND",
		  SECONDS(opt->idle_ms, 0, 1, 600) },
		{ 0, "no-ack", NULL,
		  "client: forget one event, and destroy its id",
		  FLAG(opt->no_ack) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = {
		.head = "usage: " USAGE "\n\n",
		.next = USAGE,
		.rows = rows,
		.column = 21,
		.tail = "\n" EXIT_CODES,
	};
	int rc;

	*opt = (struct options){ 0 };
	rc = take_options(&line, &argc, &argv);
	return rc < 0 ? take_role(USAGE, argc, argv, &opt->server) : rc;
}

int main(int argc, char *argv[])
{
	struct options opt;
	struct run run = { .opt = &opt };
	int rc = parse(&opt, argc, argv), undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = opt.server ? client(&run) : serve(&run);
	undo = close_connection(&run.cm, &run.res);
	return rc || undo ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * rdma_client.c —— 先发后收的一端
 *
 * 这里只有“次序”，每一步的道理都在 common/ 对应的那个文件里。与 rdma_server.c
 * 并排读：两边的步骤一一对应，只有连接的方向和收发的先后相反。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "pair/outcome.h"

#include <errno.h>
#include <locale.h>
#include <string.h>

static int connect_to_server(const struct rdma_options *opt)
{
	int sock = tcp_connect(
		opt->server, opt->tcp_port,
		deadline_in_ms(timeout_or(opt, EXCHANGE_TIMEOUT_MS)));

	if (sock >= 0)
		report_fact("connected to %s, TCP port %u", opt->server,
			    opt->tcp_port);
	return sock;
}

// region send-message
static int send_message(const struct rdma_options *opt,
			struct rdma_resources *res, struct outcome *out)
{
	uint32_t length = message_size(opt, res);
	int rc;

	memcpy(send_slot(res, 0), opt->message, length);
	rc = post_send(res, 0, length, true);
	if (!rc)
		rc = poll_completion(res, WR_ID_SEND(0), NULL,
				     timeout_or(opt, POLL_TIMEOUT_MS));
	if (rc)
		return rc;
	out->sent_bytes = length;
	report_fact("SEND of %u bytes completed: the peer has acknowledged it",
		    length);
	return 0;
}
// endregion send-message

// region receive-message
static int receive_message(const struct rdma_options *opt,
			   struct rdma_resources *res, struct outcome *out)
{
	struct ibv_wc wc;
	/*
	 * 期限从现在算起，而不是从 post_receive 那一刻：那时对端可能还没连上。
	 */
	int rc = poll_completion(res, WR_ID_RECV(0), &wc,
				 timeout_or(opt, POLL_TIMEOUT_MS));

	if (rc)
		return rc;
	/* byte_len 才是真正收到的长度；buffer 其余部分仍是旧内容。*/
	out->received_bytes = wc.byte_len;
	printable_text(out->text, sizeof(out->text), recv_slot(res, 0),
		       wc.byte_len);
	report_fact("RECV of %u bytes completed: \"%s\"", wc.byte_len,
		    out->text);
	return 0;
}
// endregion receive-message

static int send_then_receive(const struct rdma_options *opt,
			     struct rdma_resources *res, struct outcome *out)
{
	int rc;

	if (opt->plan.mode != MODE_ONCE) {
		out->measured = true;
		return measure_run(res, &opt->plan, true,
				   timeout_or(opt, POLL_TIMEOUT_MS),
				   &out->measure);
	}
	rc = send_message(opt, res, out);
	return rc ? rc : receive_message(opt, res, out);
}

// region client-steps
static int talk(const struct rdma_options *opt, struct rdma_resources *res,
		int *sock)
{
	const int64_t exchange_ms = timeout_or(opt, EXCHANGE_TIMEOUT_MS);
	struct outcome out = { 0 };
	int64_t deadline;
	int rc;

	report_step("QP to INIT; post receives before the peer may send");
	rc = modify_qp_to_init(res);
	if (!rc)
		rc = post_all_receives(res);
	if (rc)
		return rc;

	report_step("connect to the server over TCP");
	*sock = connect_to_server(opt);
	if (*sock < 0)
		return *sock;

	report_step("exchange QPN, PSN and GID; QP to RTR, then RTS");
	deadline = deadline_in_ms(exchange_ms);
	rc = exchange_cm_con_data(res, *sock, deadline);
	if (rc)
		return rc;
	show_both_sides(cm_con_data_of(res), res->remote);
	rc = modify_qp_to_rtr(res);
	if (!rc)
		rc = modify_qp_to_rts(res);
	/*
	 * 同步：对端也到了 RTS，receive 也 post 好了，才可以发第一个包。自己失败了，
	 * 也在这里告诉对端。
	 */
	rc = sock_sync_step(*sock, SYNC_READY, rc, deadline);
	if (!rc)
		rc = agree_on_plan(res, &opt->plan, message_size(opt, res),
				   *sock, deadline);
	if (rc)
		return rc;

	report_step("send, then receive");
	rc = send_then_receive(opt, res, &out);

	report_step("synchronize with the server before destroying anything");
	rc = sock_sync_step(*sock, SYNC_DONE, rc, deadline_in_ms(exchange_ms));
	return rc ? rc : report_outcome(opt, res, &out);
}
// endregion client-steps

// region client-cm
/* 步骤与上面一一对应；cm_connect.c 里的 librdmacm 代替 TCP 和 modify_qp。*/
static int connect_by_cm(const struct rdma_options *opt,
			 struct cm_connection *cm, struct rdma_resources *res)
{
	const int timeout_ms = timeout_or(opt, EXCHANGE_TIMEOUT_MS);
	const int64_t deadline = deadline_in_ms(timeout_ms);
	struct plan_msg plan;
	int rc;

	/* server 也许还没有启动：被拒绝的 id 不能再用，从头再来。*/
	for (;;) {
		rc = resolve_server(cm, res, opt->server, opt->tcp_port,
				    deadline_in_ms(timeout_ms));
		if (!rc)
			rc = create_objects_on_id(cm, res, &opt->config);
		if (!rc)
			rc = post_all_receives(res);
		if (rc)
			return rc;
		plan = plan_msg_of(&opt->plan, message_size(opt, res));
		rc = request_connection(cm, res, (char *)&plan, deadline);
		if (rc != -EAGAIN)
			return rc;
		rc = close_connection(cm, res);
		if (!rc)
			rc = deadline_sleep_ms(100, deadline);
		if (rc)
			return rc;
	}
}

static int talk_by_cm(const struct rdma_options *opt, struct cm_connection *cm,
		      struct rdma_resources *res)
{
	struct outcome out = { 0 };
	struct plan_msg peers;
	int rc;

	report_step("resolve the address; make PD, MR, CQ and QP; connect");
	rc = connect_by_cm(opt, cm, res);
	if (rc)
		return rc;
	report_fact("connected to %s", cm->peer);
	show_device(res);
	show_both_sides(cm_con_data_of(res), res->remote);
	memcpy(&peers, cm->extra, sizeof(peers));
	rc = compare_plans(res, &opt->plan, message_size(opt, res), peers);

	report_step("send, then receive");
	if (!rc)
		rc = send_then_receive(opt, res, &out);

	/* 谁最后一个 completion 是 SEND，谁就知道对端都收到了，由它先断。*/
	report_step("disconnect before destroying anything");
	if (!rc)
		rc = disconnect_cm(
			cm, opt->plan.mode == MODE_BANDWIDTH,
			deadline_in_ms(timeout_or(opt, EXCHANGE_TIMEOUT_MS)));
	return rc ? rc : report_outcome(opt, res, &out);
}
// endregion client-cm

static int by_cm(const struct rdma_options *opt)
{
	struct cm_connection cm = { 0 };
	struct rdma_resources res = { 0 };
	int rc = talk_by_cm(opt, &cm, &res), undo;

	report_step("destroy QP, CQ, MR, PD and id");
	undo = close_connection(&cm, &res);
	return rc || undo ? 1 : 0;
}

int main(int argc, char *argv[])
{
	struct rdma_resources res = { 0 };
	struct rdma_options opt;
	int sock = -1;
	int rc, undo;

	setlocale(LC_CTYPE, "");
	rc = options_parse(&opt, ROLE_CLIENT, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	if (opt.cm)
		return by_cm(&opt);

	report_step("open the device, make PD, MR, CQ and QP");
	rc = init_rdma_resources(&res, &opt.config);
	if (rc)
		return 1;
	show_device(&res);
	rc = talk(&opt, &res, &sock);

	report_step("destroy QP, CQ, MR, PD; close the device");
	sock_close(&sock);
	undo = destroy_rdma_resources(&res);
	return rc || undo ? 1 : 0;
}

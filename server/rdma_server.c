// SPDX-License-Identifier: MIT
/*
 * rdma_server.c —— 先收后发的一端
 *
 * 这里只有“次序”，每一步的道理都在 common/ 对应的那个文件里。与 rdma_client.c
 * 并排读：两边的步骤一一对应，只有连接的方向和收发的先后相反。
 */
#include "base/deadline.h"
#include "base/handshake.h"
#include "base/report.h"
#include "many.h"
#include "pair/outcome.h"

#include <locale.h>
#include <string.h>

/* 等一个 client 连上来；之后不再听：第二个 client 会被立即拒绝，而不是空等。*/
static int wait_for_client(const struct rdma_options *opt)
{
	int listen_sock = tcp_listen(opt->tcp_port);
	int sock;

	if (listen_sock < 0)
		return listen_sock;
	report_fact("listening on TCP port %u", opt->tcp_port);
	sock = tcp_accept_client(listen_sock, HELLO_MAGIC, NULL, 0,
				 deadline_in_ms(timeout_or(opt, 300 * 1000)));
	sock_close(&listen_sock);
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

static int receive_then_send(const struct rdma_options *opt,
			     struct rdma_resources *res, struct outcome *out)
{
	int rc;

	if (opt->plan.mode != MODE_ONCE)
		return measure_run(res, &opt->plan, false,
				   timeout_or(opt, POLL_TIMEOUT_MS),
				   &out->measure);
	rc = receive_message(opt, res, out);
	return rc ? rc : send_message(opt, res, out);
}

// region server-steps
static int serve(const struct rdma_options *opt, struct rdma_resources *res,
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

	report_step("wait for a client over TCP");
	*sock = wait_for_client(opt);
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

	report_step("receive, then send");
	rc = receive_then_send(opt, res, &out);

	report_step("synchronize with the client before destroying anything");
	rc = sock_sync_step(*sock, SYNC_DONE, rc, deadline_in_ms(exchange_ms));
	return rc ? rc : report_outcome(opt, res, &out);
}
// endregion server-steps

// region server-cm
/* 步骤与上面一一对应；cm_connect.c 里的 librdmacm 代替 TCP 和 modify_qp。*/
static int serve_by_cm(const struct rdma_options *opt, struct cm_connection *cm,
		       struct rdma_resources *res)
{
	const int64_t exchange_ms = timeout_or(opt, EXCHANGE_TIMEOUT_MS);
	struct plan_msg plan, peers;
	struct outcome out = { 0 };
	int rc;

	report_step("wait for a connection request");
	rc = listen_for_requests(cm, opt->tcp_port);
	if (rc)
		return rc;
	report_fact("listening on RDMA port %u", opt->tcp_port);
	rc = await_cm_request(cm, res,
			      deadline_in_ms(timeout_or(opt, 300 * 1000)));
	if (rc)
		return rc;

	report_step("make PD, MR, CQ and QP on the device that it came to");
	rc = create_objects_on_id(cm, res, &opt->config);
	if (!rc)
		rc = post_all_receives(res);
	if (!rc) {
		memcpy(&peers, cm->extra, sizeof(peers));
		rc = compare_plans(res, &opt->plan, message_size(opt, res),
				   peers);
	}
	if (rc)
		return reject_request(cm, rc);

	report_step("accept: librdmacm brings the QP to RTR, then RTS");
	plan = plan_msg_of(&opt->plan, message_size(opt, res));
	rc = accept_request(cm, res, (char *)&plan,
			    deadline_in_ms(exchange_ms));
	if (rc)
		return rc;
	show_device(res);
	show_both_sides(cm_con_data_of(res), res->remote);

	report_step("receive, then send");
	rc = receive_then_send(opt, res, &out);

	/* 谁最后一个 completion 是 SEND，谁就知道对端都收到了，由它先断。*/
	report_step("disconnect before destroying anything");
	if (!rc)
		rc = disconnect_cm(cm, opt->plan.mode != MODE_BANDWIDTH,
				   deadline_in_ms(exchange_ms));
	return rc ? rc : report_outcome(opt, res, &out);
}
// endregion server-cm

static int by_cm(const struct rdma_options *opt)
{
	struct cm_connection cm = { 0 };
	struct rdma_resources res = { 0 };
	int rc = serve_by_cm(opt, &cm, &res), undo;

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
	rc = options_parse(&opt, ROLE_SERVER, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	if (opt.many)
		return serve_many(&opt);
	if (opt.cm)
		return by_cm(&opt);

	report_step("open the device, make PD, MR, CQ and QP");
	rc = init_rdma_resources(&res, &opt.config);
	if (rc)
		return 1;
	show_device(&res);
	rc = serve(&opt, &res, &sock);

	report_step("destroy QP, CQ, MR, PD; close the device");
	sock_close(&sock);
	undo = destroy_rdma_resources(&res);
	return rc || undo ? 1 : 0;
}

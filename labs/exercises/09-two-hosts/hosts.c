// SPDX-License-Identifier: MIT
/*
 * hosts.c —— 练习 9：六份抓包的诊断；一个不看路径 MTU、也不看重试上限的程序
 *
 *	hosts answers				六个答案
 *	hosts server [DEVICE [LATE_MS]]		晚这么久才 post receive；-1：不 post
 *	hosts client SERVER_IP [DEVICE]
 */
#include "base/deadline.h"
#include "base/report.h"
#include "rdma_common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- 一、诊断 ---------------------------------------------------------------- */

enum cause {
	UNKNOWN,
	FIREWALL, /* 有一端的防火墙丢弃进来的 UDP 4791 */
	GONE,	  /* 对端的进程已经不在 */
	LOSS,	  /* 路上丢了个别 packet */
	MTU,	  /* packet 大于发送端网卡的 MTU */
	TIMEOUT,  /* 本地 ACK timeout 小于往返时间 */
	RECEIVE,  /* 没有 receive（RNR） */
	KEY,	  /* rkey、地址或访问权不对 */
	PSN,	  /* 两端的第一个 PSN 对不上 */
	REORDER	  /* 路上后发先至 */
};

/*
 * labs/wire labs/exercises/09-two-hosts/cases/N：B 是 client，抓包在 A 上。
 * host：毛病在哪一端；路上丢的，算发出它的那一端。
 * packet：labs/wire 的 # 号，第一个显出毛病的 packet：
 * 头一个得不到回答的；头一个不该重发的；NAK；再没有下文的最后一个。
 */
static const struct answer {
	char host; /* 'A', 'B' */
	enum cause cause;
	int packet;
} answers[] = {
	{ 'A', FIREWALL, 1 }, /* 1 */
	{ 'B', FIREWALL, 7 }, /* 2 */
	{ 'B', LOSS, 10 },    /* 3 */
	{ 'A', GONE, 21 },    /* 4 */
	{ 'B', MTU, 31 },     /* 5 */
	{ 'B', TIMEOUT, 2 },  /* 6 */
};

static int show_answers(void)
{
	static const char *const word[] = { "unknown", "firewall", "gone",
					    "loss",    "mtu",	   "timeout",
					    "receive", "key",	   "psn",
					    "reorder" };

	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++)
		printf("%zu %c %s %d\n", i + 1, answers[i].host,
		       word[answers[i].cause], answers[i].packet);
	return 0;
}

/* ---- 二、程序 ---------------------------------------------------------------- */

#define COUNT	       12
#define SIZE	       9000
#define WAIT_MS	       2500 /* 等一个 completion */
#define SERVER_WAIT_MS 8000

/* INIT → RTR：两端的路径 MTU 必须一样，而且两端的网卡都放得下。*/
static int to_rtr(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = rtr_attributes(res);
	enum ibv_mtu mine = res->port_attr.active_mtu;
	enum ibv_mtu peers = (enum ibv_mtu)res->remote.active_mtu;

	attr.path_mtu = mine < peers ? mine : peers;
	attr.min_rnr_timer = 27; /* 122.88 ms：挡回对端时，请它等这么久 */
	return modify_qp(res, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER);
}

/*
 * RTR → RTS。要求：线断 0.3 秒、receive 晚来 0.3 秒，消息都要到；对端没了，或者
 * 一直不 post receive，2 秒之内以 status 12、13 结束。
 */
static int to_rts(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = rts_attributes(res);

	attr.timeout = 15; /* 4.096 us × 2^15 = 134 ms，共 (retry_cnt + 1) 次 */
	attr.retry_cnt = 6; /* rxe：7 是永远 */
	attr.rnr_retry = 6; /* 7 是永远 */
	return modify_qp(res, &attr,
			 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC);
}

static int connect_hosts(struct rdma_resources *res, int sock, int late_ms)
{
	int64_t deadline = deadline_in_ms(EXCHANGE_TIMEOUT_MS);
	int rc = modify_qp_to_init(res);

	if (!rc && !late_ms)
		rc = post_all_receives(res);
	if (!rc)
		rc = exchange_cm_con_data(res, sock, deadline);
	if (!rc)
		rc = to_rtr(res);
	if (!rc)
		rc = to_rts(res);
	return sock_sync_step(sock, SYNC_READY, rc, deadline);
}

/* 全部发出去，再等：@done 是得到 ACK 的条数。*/
static int send_all(struct rdma_resources *res, uint32_t *done)
{
	struct ibv_wc wc;
	int rc = 0;

	for (uint32_t i = 0; i < COUNT && !rc; i++) {
		memset(send_slot(res, i), (int)('a' + i), SIZE);
		rc = post_send(res, i, SIZE, true);
	}
	while (!rc && *done < COUNT) {
		rc = await_completion(res, 0, &wc, WAIT_MS);
		*done += !rc;
	}
	return rc;
}

static uint32_t received(struct rdma_resources *res, int sock, int late_ms)
{
	struct ibv_wc wc;
	bool told = false; /* client 完了或者放弃了，在 TCP 上说了话 */
	uint32_t n = 0;
	int rc = 0;

	if (late_ms > 0)
		deadline_sleep_ms(late_ms, INT64_MAX);
	if (late_ms > 0)
		rc = post_all_receives(res);
	while (!rc && n < COUNT) {
		rc = try_completion(res, &wc);
		if (!rc && told)
			break; /* 那之前的 completion 都取完了 */
		if (!rc)
			told = !wait_fd(sock, POLLIN, deadline_in_ms(1));
		else if (rc == 1 &&
			 recv_slot(res, WR_ID_SLOT(wc.wr_id))[SIZE - 1] ==
				 (char)('a' + n))
			n++;
		rc = rc < 0 ? rc : 0;
	}
	return n;
}

/* 结束时经 TCP 互相说：我发成、收到了多少条。*/
static int compare(int sock, uint32_t mine, uint32_t *peers)
{
	uint32_t out = htonl(mine), in = 0;
	int rc = sock_sync_data(sock, sizeof(out), &out, &in,
				deadline_in_ms(SERVER_WAIT_MS), "the counts");

	if (!rc)
		*peers = ntohl(in);
	return rc;
}

static int run_client(struct rdma_resources *res, int sock)
{
	uint32_t acknowledged = 0, arrived = 0;
	int rc = connect_hosts(res, sock, 0);

	if (rc)
		return rc;
	rc = send_all(res, &acknowledged);
	/* 没有 ACK，不等于没有到：到了多少只有对端知道。*/
	if (compare(sock, acknowledged, &arrived))
		printf("acknowledged %u, arrived unknown\n", acknowledged);
	else
		printf("acknowledged %u, arrived %u\n", acknowledged, arrived);
	return rc;
}

static int run_server(struct rdma_resources *res, int sock, int late_ms)
{
	uint32_t acknowledged, n;
	int rc = connect_hosts(res, sock, late_ms);

	if (rc)
		return rc;
	n = received(res, sock, late_ms);
	rc = compare(sock, n, &acknowledged);
	printf("received %u of %u\n", n, COUNT);
	return rc;
}

static int meet(const char *server)
{
	int listening, sock;

	if (server)
		return tcp_connect(server, DEFAULT_TCP_PORT,
				   deadline_in_ms(EXCHANGE_TIMEOUT_MS));
	listening = tcp_listen(DEFAULT_TCP_PORT);
	if (listening < 0)
		return listening;
	sock = tcp_accept(listening, deadline_in_ms(SERVER_WAIT_MS));
	sock_close(&listening);
	return sock;
}

static int run(const char *server, const char *device, int late_ms)
{
	struct rdma_config config = { .device_name = device,
				      .gid_index = GID_INDEX_AUTO,
				      .msg_size = SIZE,
				      .recv_slots = COUNT,
				      .send_slots = COUNT };
	struct rdma_resources res = { 0 };
	int rc = init_rdma_resources(&res, &config), sock, undo;

	if (rc)
		return rc;
	sock = meet(server);
	rc = sock;
	if (sock >= 0)
		rc = server ? run_client(&res, sock)
			    : run_server(&res, sock, late_ms);
	sock_close(&sock);
	undo = destroy_rdma_resources(&res);
	return rc ? rc : undo;
}

int main(int argc, char *argv[])
{
	setlinebuf(stdout);
	report_set_level(REPORT_QUIET);
	catch_stop_signals();
	if (argc == 2 && !strcmp(argv[1], "answers"))
		return show_answers();
	if (argc >= 2 && !strcmp(argv[1], "server"))
		return run(NULL, argc > 2 ? argv[2] : NULL,
			   argc > 3 ? atoi(argv[3]) : 0)
			       ? 1
			       : 0;
	if (argc >= 3 && !strcmp(argv[1], "client"))
		return run(argv[2], argc > 3 ? argv[3] : NULL, 0) ? 1 : 0;
	return 2;
}

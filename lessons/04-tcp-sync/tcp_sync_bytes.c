// SPDX-License-Identifier: MIT
/*
 * 第 4 课：TCP 交换，逐字节地看
 *
 * 程序分成两个进程。子进程照常调用 common/tcp_sync.c 的 connect_qp()；父进程不用
 * 它，而是“手工”扮演对端：把收到的每个字节按字段打印出来，再亲手写回应答。最后两边
 * 的 QP 真的都到了 RTS——说明线上的字节就是这些，没有别的。
 */
#include "../lesson.h"
#include "base/call_failed.h"
#include "base/deadline.h"
#include "base/report.h"
#include "explain/qp_table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SILENT_MS 3000 /* how long the silent peer is waited for */

struct field {
	const char *name;
	size_t size; /* bytes on the wire */
};

// region layout
static const struct field hello_fields[] = {
	{ "magic \"RCME\"", 4 }, { "version", 2 }, { "length", 2 }, { 0 }
};

static const struct field cm_fields[] = {
	{ "qp_num", 4 }, { "lid", 2 },	      { "gid", 16 },
	{ "psn", 4 },	 { "active_mtu", 1 }, { "addr", 8 },
	{ "rkey", 4 },	 { "size", 4 },	      { 0 },
};

static const struct field sync_fields[] = {
	{ "magic \"SYNC\"", 4 }, { "step", 4 }, { "status", 4 }, { 0 }
};
// endregion layout

static void dump(const struct field *fields, const unsigned char *wire)
{
	size_t offset = 0;

	for (; fields->name; fields++) {
		char hex[3 * 16 + 1];

		for (size_t i = 0; i < fields->size; i++)
			sprintf(hex + 3 * i, "%02x ", wire[offset + i]);
		report_fact("%3zu  %-13s %s", offset, fields->name, hex);
		offset += fields->size;
	}
}

/* 读一条消息、打印、原样送回。*/
static int read_and_answer(int sock, const struct field *fields, size_t size,
			   const char *what)
{
	int64_t deadline = deadline_in_ms(EXCHANGE_TIMEOUT_MS);
	unsigned char wire[64];
	int rc = sock_read_exact(sock, wire, size, deadline, what);

	if (rc)
		return rc;
	report_step("the peer's %s: %zu bytes", what, size);
	dump(fields, wire);
	return sock_write_exact(sock, wire, size, deadline, what);
}

/* hello 占 8 字节、sync 占 12 字节；我们与对端同版本，原样送回就是正确的应答。*/
enum {
	HELLO_SIZE = 8,
	SYNC_SIZE = 12
};

// region by-hand
static int peer_by_hand(struct rdma_resources *res, int sock)
{
	struct cm_con_data_t mine = cm_con_data_to_wire(cm_con_data_of(res));
	struct cm_con_data_t peers;
	int rc = read_and_answer(sock, hello_fields, HELLO_SIZE, "hello");

	if (!rc)
		rc = sock_read_exact(sock, &peers, sizeof(peers),
				     deadline_in_ms(EXCHANGE_TIMEOUT_MS),
				     "cm_con_data_t");
	if (rc)
		return rc;
	report_step("the peer's cm_con_data_t: %zu bytes", sizeof(peers));
	dump(cm_fields, (unsigned char *)&peers);
	rc = sock_write_exact(sock, &mine, sizeof(mine),
			      deadline_in_ms(EXCHANGE_TIMEOUT_MS),
			      "cm_con_data_t");
	if (rc)
		return rc;
	res->remote = cm_con_data_to_wire(peers);
	rc = modify_qp_to_rtr(res);
	if (!rc)
		rc = modify_qp_to_rts(res);
	return rc ? rc
		  : read_and_answer(sock, sync_fields, SYNC_SIZE,
				    "sync message");
}
// endregion by-hand

static int good_peer(struct rdma_resources *res, int sock)
{
	struct ibv_qp_attr attr;
	int rc = peer_by_hand(res, sock);

	if (rc)
		return rc;
	report_step("both QPs have met");
	rc = query_qp(res, &attr);
	report_fact("my QP 0x%06x is in %s, connected to QP 0x%06x",
		    res->qp->qp_num, qp_state_name(attr.qp_state),
		    attr.dest_qp_num);
	return rc;
}

// region bad-peer
/* 一个坏掉的对端：每种坏法都应让另一边给出清楚的错误，而不是挂住或崩溃。*/
struct bad_peer {
	int sock;
	/* hello，然后是 cm_con_data_t，还没有转成网络字节序 */
	unsigned char wire[HELLO_SIZE + sizeof(struct cm_con_data_t)];
};

static int answer(struct bad_peer *p, size_t size)
{
	return sock_write_exact(p->sock, p->wire, size,
				deadline_in_ms(EXCHANGE_TIMEOUT_MS), "answer");
}

static int byte_order(void *peer)
{
	return answer(peer, HELLO_SIZE + sizeof(struct cm_con_data_t));
}

static int version(void *peer)
{
	((struct bad_peer *)peer)->wire[5] = 2;
	return answer(peer, HELLO_SIZE);
}

static int half(void *peer)
{
	return answer(peer, HELLO_SIZE + 20);
}

static int silent(void *peer)
{
	(void)peer;
	return deadline_sleep_ms(SILENT_MS + 500, INT64_MAX);
}
// endregion bad-peer

static const struct lesson_break breaks[] = {
	{ "byte-order", "answer with qp_num and psn in host byte order",
	  byte_order },
	{ "version", "answer with another protocol version", version },
	{ "half", "answer with half a cm_con_data_t and hang up", half },
	{ "silent", "accept the connection and say nothing", silent },
	{ 0 },
};

/* 对端的 hello 总要先收下，它也是我们的；然后才各坏各的。*/
static int bad_peer(const struct lesson *lesson, struct rdma_resources *res,
		    int sock)
{
	struct cm_con_data_t mine = cm_con_data_of(res);
	struct bad_peer peer = { .sock = sock };
	int rc = sock_read_exact(sock, peer.wire, HELLO_SIZE,
				 deadline_in_ms(EXCHANGE_TIMEOUT_MS), "hello");

	memcpy(peer.wire + HELLO_SIZE, &mine, sizeof(mine));
	return rc ? rc : lesson_plant(lesson, &peer);
}

static uint16_t port_of(int listen_sock)
{
	struct sockaddr_in6 addr;
	socklen_t len = sizeof(addr);

	if (getsockname(listen_sock, (struct sockaddr *)&addr, &len))
		return 0;
	return ntohs(addr.sin6_port); /* 与 sockaddr_in 的端口同一位置 */
}

/* 两个进程共同的前半段：建好对象，到 INIT。成不成，都由调用者拆。*/
static int prepare(struct rdma_resources *res, const struct rdma_config *config)
{
	int rc = init_rdma_resources(res, config);

	return rc ? rc : modify_qp_to_init(res);
}

/* 子进程：普通的一端，只用 stage 4 的现成函数。*/
static int ordinary_side(const struct lesson *lesson, uint16_t port)
{
	int64_t deadline = deadline_in_ms(lesson_breaks(lesson, "silent")
						  ? SILENT_MS
						  : EXCHANGE_TIMEOUT_MS);
	struct rdma_resources res = { 0 };
	int sock = -1;
	int rc = prepare(&res, &lesson->config);

	report_set_level(REPORT_QUIET);
	if (!rc) {
		sock = tcp_connect("127.0.0.1", port, deadline);
		rc = sock < 0 ? sock : connect_qp(&res, sock, deadline);
	}
	sock_close(&sock);
	return destroy_rdma_resources(&res) ? -EIO : rc;
}

static int hand_side(const struct lesson *lesson, int listen_sock)
{
	struct rdma_resources res = { 0 };
	int sock = tcp_accept(listen_sock, deadline_in_ms(EXCHANGE_TIMEOUT_MS));
	int rc, undo;

	if (sock < 0)
		return sock;
	/* 对端连上了（那时它的 QP 已经建好），才建自己的：QPN 的先后就固定了。*/
	rc = prepare(&res, &lesson->config);
	if (!rc)
		rc = lesson->broken ? bad_peer(lesson, &res, sock)
				    : good_peer(&res, sock);
	sock_close(&sock);
	undo = destroy_rdma_resources(&res);
	return rc ? rc : undo;
}

int main(int argc, char *argv[])
{
	struct lesson lesson;
	int status = 0;
	int rc = lesson_parse(&lesson, breaks, argc, argv);
	int listen_sock;
	pid_t child;

	if (rc >= 0)
		return rc;
	listen_sock = tcp_listen(0); /* 0：由内核挑一个空闲端口 */
	if (listen_sock < 0)
		return 1;
	fflush(NULL);
	/* 先 fork 再打开设备：verbs 对象不应跨 fork 共用。*/
	child = fork();
	if (child == 0)
		_exit(ordinary_side(&lesson, port_of(listen_sock)) ? 1 : 0);
	if (child < 0) {
		call_failed(errno, "fork()");
		return 1;
	}
	rc = hand_side(&lesson, listen_sock);
	sock_close(&listen_sock);
	waitpid(child, &status, 0);
	if (status)
		report_fact("the ordinary side refused and ended with exit "
			    "code %d",
			    WEXITSTATUS(status));
	return rc || status ? 1 : 0;
}

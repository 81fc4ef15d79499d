// SPDX-License-Identifier: MIT
/*
 * tcp_sync.c —— 第 4 阶段：用 TCP 把“连上彼此所需的一切”告诉对方
 *
 * RDMA 的 RC QP 自己不会“握手”：INIT→RTR 之前就必须知道对端的 QPN、GID、PSN。
 * 这些信息总得从别处来——这里用一条普通的 TCP 连接（out-of-band）。它只走控制面，
 * 数据一个字节也不经过它。
 *
 * 线上依次是（全部 big-endian、无填充）：
 *
 *	hello          magic(4) version(2) length(2)
 *	cm_con_data_t  qp_num(4) lid(2) gid(16) psn(4) active_mtu(1)
 *	               addr(8) rkey(4) size(4)                    共 43 字节
 *	sync           magic(4) step(4) status(4)      在每个会合点各发一次
 *
 * 对端不可信：它可能说的是 HTTP，可能只发半个结构体，可能什么都不发，也可能在
 * 任何一步消失。所以读写都精确计数、都有期限，收到的每个字段都要检查。
 */
#include "base/deadline.h"
#include "base/failure.h"
#include "base/report.h"
#include "explain/explain.h"
#include "rdma_common.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_MAGIC   0x52434d45u /* "RCME" */
#define HELLO_VERSION 1
#define SYNC_MAGIC    0x53594e43u /* "SYNC" */
#define RETRY_MS      100

struct hello {
	uint32_t magic;
	uint16_t version;
	uint16_t length; /* of the cm_con_data_t that follows, bytes */
} __attribute__((packed));

struct sync_msg {
	uint32_t magic;
	uint32_t step;
	uint32_t status; /* 0 or a positive errno */
} __attribute__((packed));

void sock_close(int *sock)
{
	if (*sock >= 0)
		close(*sock);
	*sock = -1;
}

/* 小消息要立刻发走：Nagle 算法会让 8 字节的 hello 等上几十毫秒。*/
static void set_nodelay(int sock)
{
	const int on = 1;

	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static int listen_failed(int err, uint16_t port)
{
	if (err == EADDRINUSE)
		return call_failed_for(
			err, "another process listens on this port",
			"choose another port, or find that process with ss "
			"-ltnp",
			"bind(TCP port %u)", port);
	if (err == EACCES)
		return call_failed_for(err, "ports below 1024 need root",
				       "choose a port above 1023",
				       "bind(TCP port %u)", port);
	return call_failed(err, "listen(TCP port %u)", port);
}

// region tcp-listen
int tcp_listen(uint16_t port)
{
	/* 一个 IPv6 socket 关掉 V6ONLY，就能同时收 IPv4 与 IPv6 的连接。*/
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6,
				     .sin6_port = htons(port),
				     .sin6_addr = in6addr_any };
	struct sockaddr_in any4 = { .sin_family = AF_INET,
				    .sin_port = htons(port) };
	const int on = 1, off = 0;
	bool v6 = true;
	int err = 0;
	int sock = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sock < 0) { /* 内核以 ipv6.disable=1 启动时没有 IPv6 */
		v6 = false;
		sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	if (sock < 0)
		return listen_failed(errno, port);
	/* 没有它，上一个 server 退出后的 TIME_WAIT 会让 bind 失败一分钟。*/
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (v6)
		setsockopt(sock, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(sock, v6 ? (struct sockaddr *)&any6 : (struct sockaddr *)&any4,
		 v6 ? sizeof(any6) : sizeof(any4)) ||
	    listen(sock, 1))
		err = errno;
	if (!err)
		return sock;
	close(sock);
	return listen_failed(err, port);
}
// endregion tcp-listen

/* 等待失败的统一说法：谁、在等什么、为什么没等到。*/
static int wait_failed(int rc, const char *fmt, const char *what)
{
	char text[128];

	if (rc == -EINTR && stop_is_expected())
		return rc;
	snprintf(text, sizeof(text), fmt, what);
	if (rc == -EINTR)
		report_error(NULL, "%s: stopped by a signal", text);
	else if (rc == -ETIMEDOUT)
		report_error("is the peer running, and not stopped? --timeout "
			     "SECS waits longer",
			     "%s: nothing came before the deadline", text);
	else if (rc == -ECONNRESET || rc == -EPIPE)
		report_error("see the peer's own messages",
			     "%s: the peer closed the connection", text);
	else
		report_error(NULL, "%s: %s", text, strerror(-rc));
	return rc;
}

int tcp_accept(int listen_sock, int64_t deadline)
{
	int sock, rc;

	do {
		rc = wait_fd(listen_sock, POLLIN, deadline);
		if (rc)
			return wait_failed(rc, "%s", "waiting for a client");
		sock = accept4(listen_sock, NULL, NULL, SOCK_CLOEXEC);
		/* 对端可能在被 accept 之前就断开：不是我们的错误，接着等。*/
	} while (sock < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (sock < 0)
		return call_failed(errno, "accept()");
	set_nodelay(sock);
	return sock;
}

/* 一次连接尝试：返回 socket，或 -errno（此时不报告，由调用者决定重试与否）。*/
static int connect_once(const struct addrinfo *ai, int64_t deadline)
{
	socklen_t len = sizeof(int);
	int err = 0;
	int rc;
	int sock = socket(ai->ai_family,
			  ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (sock < 0)
		return -errno;
	/* 非阻塞 connect：否则丢包时一次 connect 就会睡上两分钟，期限形同虚设。*/
	rc = connect(sock, ai->ai_addr, ai->ai_addrlen) ? -errno : 0;
	if (rc == -EINPROGRESS || rc == -EINTR)
		rc = wait_fd(sock, POLLOUT, deadline);
	if (!rc && getsockopt(sock, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (!rc)
		rc = -err;
	if (!rc) {
		set_nodelay(sock);
		return sock;
	}
	close(sock);
	return rc;
}

/*
 * server 还没启动、正在启动、或网络刚起来：这些都值得再试。ECONNRESET 不在其中：
 * 有人接了这个连接，又立刻用 RST 挂断；再连多半只会等来 ECONNREFUSED，
 * 那时再报“没有人在听”就是误导。
 */
static bool worth_retrying(int rc)
{
	return rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

static int connect_failed(int rc, const char *server, uint16_t port)
{
	const char *cause = NULL, *next = NULL;

	if (rc == -EINTR || rc == -ECONNRESET)
		return wait_failed(rc, "connecting to %s", server);
	if (rc == -ECONNREFUSED) {
		cause = "no server listened there before the deadline";
		next = "start the server first; compare address and port";
	} else if (rc == -ETIMEDOUT) {
		cause = "no answer before the deadline";
		next = "ping the address; a firewall may drop the TCP port";
	}
	return call_failed_for(-rc, cause, next, "connect(%s, TCP port %u)",
			       server, port);
}

/* 一个名字可能有好几个地址（::1 与 127.0.0.1）：一个不通就试下一个。*/
static int connect_any(const struct addrinfo *list, int64_t deadline,
		       bool *again)
{
	int rc = -ETIMEDOUT;

	*again = false;
	for (; list; list = list->ai_next) {
		rc = connect_once(list, deadline);
		if (rc >= 0 || rc == -EINTR)
			return rc;
		*again |= worth_retrying(rc);
	}
	return rc;
}

// region tcp-connect
int tcp_connect(const char *server, uint16_t port, int64_t deadline)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	char service[8];
	int last = -ETIMEDOUT;
	bool again;
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(server, service, &hints, &list);
	if (rc) {
		report_error("give an IPv4 or IPv6 address, or a name that "
			     "resolves",
			     "getaddrinfo(\"%s\") failed: %s", server,
			     gai_strerror(rc));
		return -EINVAL;
	}
	/* 课堂上两个终端谁先敲回车不一定，所以 client 在期限内反复尝试。*/
	for (;;) {
		rc = connect_any(list, deadline, &again);
		if (rc >= 0 || rc == -EINTR)
			break;
		if (rc != -ETIMEDOUT)
			last = rc;
		if (!again || deadline_passed(deadline))
			break;
		rc = deadline_sleep_ms(RETRY_MS, deadline);
		if (rc)
			break;
	}
	freeaddrinfo(list);
	if (rc >= 0)
		return rc;
	return connect_failed(rc == -EINTR ? rc : last, server, port);
}
// endregion tcp-connect

// region exact
int sock_read_exact(int sock, void *data, size_t size, int64_t deadline,
		    const char *what)
{
	char *at = data;

	/*
	 * TCP 是字节流，没有消息边界：一次 read 可能只给出一半。必须循环到凑满。
	 */
	while (size) {
		ssize_t n = recv(sock, at, size, MSG_DONTWAIT);
		int rc = 0;

		if (n > 0) {
			at += n;
			size -= (size_t)n;
		} else if (n == 0) {
			rc = -ECONNRESET; /* 对端在消息中间关闭了连接 */
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			rc = wait_fd(sock, POLLIN, deadline);
		} else if (errno != EINTR) {
			rc = -errno;
		}
		if (rc)
			return wait_failed(rc, "reading the peer's %s", what);
	}
	return 0;
}

int sock_write_exact(int sock, const void *data, size_t size, int64_t deadline,
		     const char *what)
{
	const char *at = data;

	/* 写也可能“短写”：socket buffer 满时只收下一部分。*/
	while (size) {
		ssize_t n = send(sock, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		int rc = 0;

		if (n >= 0) {
			at += n;
			size -= (size_t)n;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			rc = wait_fd(sock, POLLOUT, deadline);
		} else if (errno != EINTR) {
			rc = -errno;
		}
		if (rc)
			return wait_failed(rc, "sending my %s", what);
	}
	return 0;
}
// endregion exact

int sock_sync_data(int sock, size_t size, const void *local, void *remote,
		   int64_t deadline, const char *what)
{
	/*
	 * 两端都“先写后读”。只要数据小于 socket buffer 就不会互相等死；
	 * 这里交换的都是几十字节。
	 */
	int rc = sock_write_exact(sock, local, size, deadline, what);

	return rc ? rc : sock_read_exact(sock, remote, size, deadline, what);
}

static const char *step_name(uint32_t step)
{
	switch (step) {
	case SYNC_READY:
		return "READY";
	case SYNC_DONE:
		return "DONE";
	}
	return "unknown";
}

// region sync-step
static int check_sync(const struct sync_msg *peers, enum sync_step step)
{
	uint32_t peer_step = be32toh(peers->step);
	int peer_status = (int)be32toh(peers->status);

	if (be32toh(peers->magic) != SYNC_MAGIC || peer_step != step) {
		report_error("run the same build on both sides",
			     "the peer is at sync point %s (%u), this side at "
			     "%s (%u)",
			     step_name(peer_step), peer_step, step_name(step),
			     step);
		return -EPROTO;
	}
	if (peer_status) {
		const char *name = strerrorname_np(peer_status);

		report_error("see the peer's own messages",
			     "the peer failed before sync point %s: %s (%d)",
			     step_name(step), name ? name : "unknown error",
			     peer_status);
		return -EREMOTEIO;
	}
	return 0;
}

int sock_sync_step(int sock, enum sync_step step, int status, int64_t deadline)
{
	struct sync_msg mine = { htobe32(SYNC_MAGIC), htobe32(step),
				 htobe32((uint32_t)-status) };
	struct sync_msg peers;
	int rc;

	/* 自己失败了也要告诉对端，否则对端只会看到“等了很久，什么都没有”。*/
	if (status) {
		(void)!send(sock, &mine, sizeof(mine),
			    MSG_DONTWAIT | MSG_NOSIGNAL);
		return status;
	}
	rc = sock_sync_data(sock, sizeof(mine), &mine, &peers, deadline,
			    "sync message");
	return rc ? rc : check_sync(&peers, step);
}
// endregion sync-step

int sock_check_peer(int sock, enum sync_step step)
{
	struct sync_msg peers;
	ssize_t n = recv(sock, &peers, sizeof(peers), MSG_DONTWAIT | MSG_PEEK);

	/* 只偷看（MSG_PEEK）：“我已到达”这条消息要留给随后的会合去读。*/
	if (n == sizeof(peers))
		return check_sync(&peers, step);
	if (n == 0)
		return wait_failed(-ECONNRESET,
				   "waiting for the peer to reach %s",
				   step_name(step));
	if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
		return wait_failed(-errno, "waiting for the peer to reach %s",
				   step_name(step));
	return 0;
}

struct cm_con_data_t cm_con_data_of(const struct rdma_resources *res)
{
	struct cm_con_data_t data = {
		.qp_num = res->qp->qp_num,
		.lid = res->port_attr.lid,
		.psn = res->psn,
		.active_mtu = (uint8_t)res->port_attr.active_mtu,
		.addr = (uintptr_t)res->buf,
		.rkey = res->mr ? res->mr->rkey : 0,
		.size = res->msg_size,
	};

	memcpy(data.gid, res->gid.raw, sizeof(data.gid));
	return data;
}

// region wire
struct cm_con_data_t cm_con_data_to_wire(struct cm_con_data_t data)
{
	/*
	 * 每个整数都转成网络字节序。两台同为 x86 的机器不转也“碰巧能用”，一旦
	 * 对端是 big-endian，QPN 0x11 就成了 0x11000000，表现为 RETRY_EXC。
	 * gid 是 16 个字节的串，本来就是网络字节序，不动它。
	 */
	data.qp_num = htobe32(data.qp_num);
	data.lid = htobe16(data.lid);
	data.psn = htobe32(data.psn);
	data.addr = htobe64(data.addr);
	data.rkey = htobe32(data.rkey);
	data.size = htobe32(data.size);
	return data;
}
// endregion wire

struct cm_con_data_t cm_con_data_from_wire(struct cm_con_data_t data)
{
	return cm_con_data_to_wire(data); /* 字节交换是自己的逆运算 */
}

/* 数据格式对了，内容也可能是假的：超出 24 位的 QPN、全零的 GID…… */
static int check_cm_con_data(const struct cm_con_data_t *data)
{
	static const uint8_t zero[16];
	const char *wrong = NULL;

	if (data->qp_num < 2 || data->qp_num > 0xffffff)
		wrong = "qp_num is not 2 ... 0xffffff";
	else if (data->psn > 0xffffff)
		wrong = "psn is over 24 bits";
	else if (!mtu_bytes((enum ibv_mtu)data->active_mtu))
		wrong = "active_mtu is not 1 ... 5";
	else if (!memcmp(data->gid, zero, sizeof(zero)))
		wrong = "the GID is all zero";
	if (!wrong)
		return 0;
	report_error("run the same build on both sides",
		     "the peer's cm_con_data_t cannot be: %s (qp_num 0x%x, psn "
		     "0x%x, active_mtu %u)",
		     wrong, data->qp_num, data->psn, data->active_mtu);
	return -EPROTO;
}

static int check_hello(const struct hello *h)
{
	uint32_t magic = be32toh(h->magic);
	uint16_t version = be16toh(h->version);
	uint16_t length = be16toh(h->length);
	char text[64];

	if (magic == HELLO_MAGIC && version == HELLO_VERSION &&
	    length == sizeof(struct cm_con_data_t))
		return 0;
	report_error(
		magic == HELLO_MAGIC ? "run the same build on both sides"
				     : "is that port really our server's?",
		"the peer's hello is magic 0x%08x (\"%s\") version %u length "
		"%u; mine is 0x%08x version %u length %zu",
		magic, printable_text(text, sizeof(text), h, 4), version,
		length, HELLO_MAGIC, HELLO_VERSION,
		sizeof(struct cm_con_data_t));
	return -EPROTO;
}

// region exchange
int exchange_cm_con_data(struct rdma_resources *res, int sock, int64_t deadline)
{
	struct hello mine = { htobe32(HELLO_MAGIC), htobe16(HELLO_VERSION),
			      htobe16(sizeof(struct cm_con_data_t)) };
	struct cm_con_data_t local = cm_con_data_to_wire(cm_con_data_of(res));
	struct hello peers;
	struct cm_con_data_t remote;
	int rc;

	/*
	 * 先用定长的 hello 确认“对面是我们的程序、同一个版本”，再读后面的数据。
	 * 否则一个走错门的 HTTP client 也会被解析成 QPN 和 GID。
	 */
	rc = sock_sync_data(sock, sizeof(mine), &mine, &peers, deadline,
			    "hello");
	if (!rc)
		rc = check_hello(&peers);
	if (!rc)
		rc = sock_sync_data(sock, sizeof(local), &local, &remote,
				    deadline, "cm_con_data_t");
	if (rc)
		return rc;
	remote = cm_con_data_from_wire(remote);
	rc = check_cm_con_data(&remote);
	if (!rc)
		res->remote = remote;
	return rc;
}
// endregion exchange

static void show_both_sides(const struct rdma_resources *res)
{
	struct cm_con_data_t mine = cm_con_data_of(res);
	char my_gid[GID_TEXT_SIZE], peer_gid[GID_TEXT_SIZE];

	report_fact("%-10s  %-22s  %s", "", "mine", "the peer's");
	report_fact("%-10s  0x%06x                0x%06x", "QPN", mine.qp_num,
		    res->remote.qp_num);
	report_fact("%-10s  0x%06x                0x%06x", "PSN", mine.psn,
		    res->remote.psn);
	report_fact("%-10s  %-22s  %s", "GID", gid_text(my_gid, mine.gid),
		    gid_text(peer_gid, res->remote.gid));
	report_fact("%-10s  %-22u  %u", "LID", mine.lid, res->remote.lid);
	report_fact("%-10s  %-22u  %u (path MTU: %u)", "active MTU",
		    mtu_bytes((enum ibv_mtu)mine.active_mtu),
		    mtu_bytes((enum ibv_mtu)res->remote.active_mtu),
		    mtu_bytes(path_mtu(res)));
}

// region connect-qp
int connect_qp(struct rdma_resources *res, int sock, int64_t deadline)
{
	int rc = exchange_cm_con_data(res, sock, deadline);

	if (rc)
		return rc;
	show_both_sides(res);
	rc = modify_qp_to_rtr(res);
	if (!rc)
		rc = modify_qp_to_rts(res);
	/*
	 * 会合点：对端也到了 RTS、也 post 过 receive，才可以发第一个包。少了这一步，
	 * 先到的一方会发给一个还没准备好的 QP：轻则 RNR 重试，重则 RETRY_EXC。
	 */
	return sock_sync_step(sock, SYNC_READY, rc, deadline);
}
// endregion connect-qp

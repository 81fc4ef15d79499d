// SPDX-License-Identifier: MIT
/*
 * needle_engines.c —— 存储节点的连接：每个 engine 一个线程、一条 TCP、一个 QP
 *
 * 为什么每个连接一个线程？第 4 阶段的读写是“等到期限为止”的：只有一个线程的话，一个
 * 连上来却一言不发的对端，就会让所有人等它 10 秒。握手之后线程只是睡着等 TCP 断开——
 * 数据由网卡（rxe：内核）直接搬走，节点的 CPU 不参与。
 *
 * 为什么让 TCP 一直开着？RC QP 自己察觉不到对端已经死了：没有人发包，就没有人超时。
 * TCP 断开（进程死了，内核会替它发 FIN）是“这个 QP 可以拆了”的唯一信号。
 *
 * 连上来的还不是 engine，只是生人：报完 QPN，才占一个 engine 的位子。生人另有位子，占满
 * 了就请最早的那个走，所以一言不发的再多，也挡不住后来的 engine。
 */
#include "needle_engines.h"

#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/*
 * 醒来看一眼，接着等；accept 失败后歇一会儿；被请走的生人收拾好，机器忙时要一会儿；
 * 拒绝之后，等对端读到为什么。
 */
#define LONG_MS	  (3600 * 1000)
#define FAILED_MS 100
#define WAY_MS	  5000
#define DRAIN_MS  2000
/* 正在交换的连接数上限；它们还不占 engine 的名额。*/
#define STRANGERS 64

#define KEEP_IDLE_S 30
#define KEEP_EACH_S 10
#define KEEP_COUNT  3

struct connection {
	const struct needle_service *service;
	pthread_t thread;
	atomic_uint *engines; /* 已占的名额，所有连接共用 */
	bool used;	      /* 只有主线程看 */
	atomic_bool known;    /* 线程置：对端报了 QPN */
	atomic_bool ended;    /* 线程置：可以 join 了 */
	unsigned int number;
	int sock;
	char peer[64];
	struct rdma_resources res;
};

static void name_peer(struct connection *c)
{
	struct sockaddr_storage addr;
	socklen_t len = sizeof(addr);
	char host[48], port[8];

	snprintf(c->peer, sizeof(c->peer), "unknown");
	if (getpeername(c->sock, (struct sockaddr *)&addr, &len) ||
	    getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	snprintf(c->peer, sizeof(c->peer), "%s port %s", host, port);
}

/*
 * 对端的主机断电或断网时没有 FIN。keepalive 让内核在约一分钟后替我们发现，否则那个 QP
 * 会永远占着。
 */
static void keep_alive(int sock)
{
	const int on = 1, idle = KEEP_IDLE_S, each = KEEP_EACH_S,
		  count = KEEP_COUNT;

	setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(sock, IPPROTO_TCP, TCP_KEEPINTVL, &each, sizeof(each));
	setsockopt(sock, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/*
 * rkey 只在它所属的 PD 里有效：要让多个 QP 都能被人读同一块 MR，它们就得建在同一个 PD
 * 里。每个连接各注册一遍也行，但每注册一遍都要把所有的页再 pin 一次。
 */
static int make_qp(struct rdma_resources *res,
		   const struct rdma_resources *owner)
{
	int rc;

	*res = *owner;
	/* 自己不收也不发；但 CQ 和两个队列的容量都不能是 0。*/
	res->recv_slots = res->send_slots = 1;
	rc = rdma_create_cq(res, false);
	return rc ? rc : rdma_create_qp(res, 0);
}

/* PD 与 context 是借来的：先放下它们，就只拆自己的 QP 和 CQ。*/
static void destroy_qp(struct rdma_resources *res)
{
	res->pd = NULL;
	res->context = NULL;
	rdma_destroy_objects(res);
}

/* 位子有限。满了不是默默挂断：在会合点告诉它 EUSERS，它会原样报告出来。*/
static int take_place(struct connection *c)
{
	atomic_store(&c->known, true);
	if (atomic_fetch_add(c->engines, 1) < c->service->most)
		return 0;
	return fail(-EUSERS, "raise --max-engines",
		    "engine %u is turned away: %u are connected", c->number,
		    c->service->most);
}

// region serve-engine
/* 第 3、4 阶段，再加一份目录。此后节点不再 post 任何东西，CQ 永远是空的。*/
static int hand_shake(struct connection *c)
{
	const struct needle_service *service = c->service;
	const int64_t deadline = deadline_in_ms(service->handshake_ms);
	int rc = make_qp(&c->res, service->owner);

	if (rc)
		return rc;
	/*
	 * 对端能同时在途多少个 READ，以我们的 max_dest_rd_atomic 为限：每个都要占住
	 * 一份“重传时还能再答一遍”的状态。给到网卡的上限，让 engine 自己选。
	 */
	c->res.max_reads = UINT8_MAX;
	rc = modify_qp_to_init(&c->res);
	if (!rc)
		rc = exchange_cm_con_data(&c->res, c->sock, deadline);
	if (rc)
		return rc;
	show_both_sides(cm_con_data_of(&c->res), c->res.remote);
	rc = take_place(c);
	if (!rc)
		rc = modify_qp_to_rtr(&c->res);
	if (!rc)
		rc = modify_qp_to_rts(&c->res);
	rc = sock_sync_step(c->sock, SYNC_READY, rc, deadline);
	if (!rc)
		rc = needle_catalog_send(service->catalog, c->sock, deadline);
	return rc;
}
// endregion serve-engine

/* 还有没读的就关，对端会得到 RST，也许还没读到那句话：等它先走，至多 2 秒。*/
static void drain(const struct connection *c)
{
	const int64_t deadline = deadline_in_ms(DRAIN_MS);
	char bytes[256];

	shutdown(c->sock, SHUT_WR);
	while (!wait_fd(c->sock, POLLIN, deadline) &&
	       recv(c->sock, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

static void wait_until_gone(const struct connection *c)
{
	char byte;
	ssize_t n;
	int rc;

	for (;;) {
		rc = wait_fd(c->sock, POLLIN, deadline_in_ms(LONG_MS));
		if (rc == -ETIMEDOUT)
			continue;
		if (rc) /* 停机 */
			return;
		n = recv(c->sock, &byte, 1, MSG_DONTWAIT);
		if (n > 0) {
			report_error("run the same build on both sides",
				     "engine %u (%s) sends where it has "
				     "nothing to say; the connection is closed",
				     c->number, c->peer);
			return;
		}
		if (!n || (errno != EAGAIN && errno != EINTR))
			return;
	}
}

static void *run(void *context)
{
	struct connection *c = context;
	int rc;

	name_peer(c);
	keep_alive(c->sock);
	rc = hand_shake(c);
	if (!rc) {
		report_fact("engine %u (%s): QP 0x%06x, told of %zu needles",
			    c->number, c->peer, c->res.qp->qp_num,
			    c->service->catalog->count);
		wait_until_gone(c);
	}
	if (atomic_load(&c->known))
		atomic_fetch_sub(c->engines, 1);
	/* 先拆 QP 再断 TCP：对端看到 TCP 断开时，它的 READ 一定已经停了。*/
	destroy_qp(&c->res);
	if (rc == -EUSERS)
		drain(c);
	shutdown(c->sock, SHUT_RDWR); /* close 留给主线程，见 make_way() */
	report_fact("engine %u (%s): gone, its QP destroyed%s", c->number,
		    c->peer, rc ? " (it never got the catalogue)" : "");
	atomic_store(&c->ended, true);
	return NULL;
}

/* 信号只由主线程接：工作线程若恰好吃掉 SIGTERM，主线程的 poll 就不会被打断。*/
static int start_thread(struct connection *c)
{
	sigset_t stop, before;
	int err;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &stop, &before);
	err = pthread_create(&c->thread, NULL, run, c);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		report_error("are there too many threads?",
			     "pthread_create(): %s", strerror(err));
	return -err;
}

static void reap(struct connection *c)
{
	if (!c->used)
		return;
	pthread_join(c->thread, NULL);
	sock_close(&c->sock);
	c->used = false;
}

static struct connection *free_slot(struct connection *all, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		if (all[i].used && atomic_load(&all[i].ended))
			reap(&all[i]);
		if (!all[i].used)
			return &all[i];
	}
	return NULL;
}

/*
 * 没有空位了，其中至少有 STRANGERS 个是生人：请最早的走。它的线程正等着读，shutdown 会叫
 * 醒它；socket 只由主线程 close，所以这个号不会在我们手里变成别人的。
 */
static struct connection *make_way(struct connection *all, unsigned int n)
{
	const int64_t deadline = deadline_in_ms(WAY_MS);
	struct connection *first = NULL, *slot = NULL;

	for (unsigned int i = 0; i < n; i++)
		if (!atomic_load(&all[i].known) &&
		    (!first || all[i].number < first->number))
			first = &all[i];
	if (first)
		shutdown(first->sock, SHUT_RDWR);
	while (!(slot = free_slot(all, n)) && !deadline_passed(deadline) &&
	       !deadline_sleep_ms(1, deadline))
		;
	return slot;
}

static void admit(const struct needle_service *service, struct connection *all,
		  atomic_uint *engines, int sock, unsigned int number)
{
	const unsigned int n = service->most + STRANGERS;
	struct connection *c = free_slot(all, n);

	if (!c)
		c = make_way(all, n);
	if (!c) {
		report_error("are there peers that are no engines?",
			     "engine %u is turned away: %u are shaking hands",
			     number, STRANGERS);
		sock_close(&sock);
		return;
	}
	*c = (struct connection){ .service = service,
				  .engines = engines,
				  .number = number,
				  .sock = sock };
	c->used = !start_thread(c);
	if (!c->used)
		sock_close(&c->sock);
}

int needle_serve(const struct needle_service *service, int listen_sock)
{
	const unsigned int n = service->most + STRANGERS;
	struct connection *all = calloc(n, sizeof(*all));
	atomic_uint engines = 0;
	unsigned int number = 0;
	int rc = 0;

	if (!all)
		return fail(-ENOMEM, "lower --max-engines",
			    "no memory for %u engines", service->most);
	while (!stop_requested()) {
		int sock;

		rc = wait_fd(listen_sock, POLLIN, deadline_in_ms(LONG_MS));
		if (rc)
			continue; /* 停机，或者只是一小时里没有人来 */
		sock = tcp_accept(listen_sock, deadline_in_ms(FAILED_MS));
		if (sock >= 0)
			admit(service, all, &engines, sock, ++number);
		else
			deadline_sleep_ms(FAILED_MS, deadline_in_ms(FAILED_MS));
	}
	/* 每个线程都会在半秒之内看到停机的标志，拆掉自己的 QP。*/
	for (unsigned int i = 0; i < n; i++)
		reap(&all[i]);
	free(all);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * peers.c —— 服务很多对端：每个一个线程、一条 TCP、一个 QP
 *
 * 为什么每个连接一个线程？第 4 阶段的读写是“等到期限为止”的：只有一个线程的话，一个
 * 连上来却一言不发的对端，就会让所有人等它 10 秒。握手之后线程多半只是睡着等 TCP 断开——
 * 数据由网卡（rxe：内核）直接搬走，程序不参与。
 *
 * 为什么让 TCP 一直开着？RC QP 自己察觉不到对端已经死了：没有人发包，就没有人超时。
 * TCP 断开（进程死了，内核会替它发 FIN）是“这个 QP 可以拆了”的唯一信号。
 *
 * 连上来的还只是生人：报完 QPN，才占一个位子。生人另有位子，占满了就请最早的那个走，
 * 所以一言不发的再多，也挡不住后来的。
 */
#include "peers.h"

#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

/*
 * 醒来看一眼，接着等；accept 失败后歇一会儿；被请走的生人收拾好，机器忙时要一会儿；
 * 拒绝之后，等对端读到为什么。
 */
#define LONG_MS	  (3600 * 1000)
#define FAILED_MS 100
#define WAY_MS	  5000
#define DRAIN_MS  2000
/* 正在交换的连接数上限；它们还不占名额。*/
#define STRANGERS 64

#define KEEP_IDLE_S 30
#define KEEP_EACH_S 10
#define KEEP_COUNT  3

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

/* 位子有限。满了不是默默挂断：在同步点告诉它 EUSERS，它会原样报告出来。*/
static int take_place(struct peer *peer)
{
	const struct peer_service *service = peer->service;

	atomic_store(&peer->known, true);
	if (atomic_fetch_add(peer->places, 1) < service->most)
		return 0;
	return fail(-EUSERS, service->more,
		    "%s %u is turned away: %u are connected", service->who,
		    peer->number, service->most);
}

int peer_connect(struct peer *peer, int64_t deadline)
{
	int rc = take_place(peer);

	if (!rc)
		rc = modify_qp_to_rtr(&peer->res);
	if (!rc)
		rc = modify_qp_to_rts(&peer->res);
	return sock_sync_step(peer->sock, SYNC_READY, rc, deadline);
}

/* 还有没读的就关，对端会得到 RST，也许还没读到那句话：等它先走，至多 2 秒。*/
static void drain(const struct peer *p)
{
	const int64_t deadline = deadline_in_ms(DRAIN_MS);
	char bytes[256];

	shutdown(p->sock, SHUT_WR);
	while (!wait_fd(p->sock, POLLIN, deadline) &&
	       recv(p->sock, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

int peer_wait(struct peer *peer, int ms)
{
	char byte;
	ssize_t n;
	int rc = wait_fd(peer->sock, POLLIN, deadline_in_ms(ms));

	if (rc)
		return rc == -ETIMEDOUT ? 0 : rc;
	n = recv(peer->sock, &byte, 1, MSG_DONTWAIT);
	if (n > 0)
		return fail(-EPROTO, "run the same build on both sides",
			    "%s %u (%s) sends where it has nothing to say; the "
			    "connection is closed",
			    peer->service->who, peer->number, peer->name);
	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -ECONNRESET;
}

static void *run(void *context)
{
	struct peer *p = context;
	const struct peer_service *service = p->service;
	int rc;

	sock_peer_name(p->sock, p->name, sizeof(p->name));
	keep_alive(p->sock);
	rc = service->meet(p, deadline_in_ms(service->handshake_ms));
	if (!rc)
		service->serve(p);
	if (atomic_load(&p->known))
		atomic_fetch_sub(p->places, 1);
	/* 先拆 QP 再断 TCP：对端看到 TCP 断开时，它的请求一定已经停了。*/
	service->part(p);
	if (rc == -EUSERS)
		drain(p);
	/* close 留给主线程，见 evict_stranger()。*/
	shutdown(p->sock, SHUT_RDWR);
	report_fact("%s %u (%s): gone, its QP destroyed%s", service->who,
		    p->number, p->name, rc ? " (it was never served)" : "");
	atomic_store(&p->ended, true);
	return NULL;
}

/* 信号只由主线程接：工作线程若恰好吃掉 SIGTERM，主线程的 poll 就不会被打断。*/
static int start_thread(struct peer *p)
{
	sigset_t stop, before;
	int err;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &stop, &before);
	err = pthread_create(&p->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		report_error("are there too many threads?",
			     "pthread_create(): %s", strerror(err));
	return -err;
}

static void reap(struct peer *p)
{
	if (!p->used)
		return;
	pthread_join(p->thread, NULL);
	sock_close(&p->sock);
	p->used = false;
}

static struct peer *free_slot(struct peer *all, unsigned int n)
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
static struct peer *evict_stranger(struct peer *all, unsigned int n)
{
	const int64_t deadline = deadline_in_ms(WAY_MS);
	struct peer *first = NULL, *slot = NULL;

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

static void start_peer(const struct peer_service *service, struct peer *all,
		       atomic_uint *places, int sock, unsigned int number)
{
	const unsigned int n = service->most + STRANGERS;
	struct peer *p = free_slot(all, n);

	if (!p)
		p = evict_stranger(all, n);
	if (!p) {
		report_error("are there peers that are something else?",
			     "%s %u is turned away: %u are shaking hands",
			     service->who, number, STRANGERS);
		sock_close(&sock);
		return;
	}
	*p = (struct peer){ .service = service,
			    .places = places,
			    .number = number,
			    .sock = sock };
	p->used = !start_thread(p);
	if (!p->used)
		sock_close(&p->sock);
}

int serve_peers(const struct peer_service *service, uint16_t port)
{
	const unsigned int n = service->most + STRANGERS;
	struct peer *all = calloc(n, sizeof(*all));
	atomic_uint places = 0;
	unsigned int number = 0;
	int listen_sock, sock;

	if (!all)
		return fail(-ENOMEM, NULL, "no memory for %u peers",
			    service->most);
	listen_sock = tcp_listen(port);
	if (listen_sock < 0) {
		free(all);
		return listen_sock;
	}
	report_fact("listening on TCP port %u", port);
	while (!stop_requested()) {
		if (wait_fd(listen_sock, POLLIN, deadline_in_ms(LONG_MS)))
			continue; /* 停机，或者只是一小时里没有人来 */
		sock = tcp_accept(listen_sock, deadline_in_ms(FAILED_MS));
		if (sock >= 0)
			start_peer(service, all, &places, sock, ++number);
		else
			deadline_sleep_ms(FAILED_MS, deadline_in_ms(FAILED_MS));
	}
	/* 每个线程都会在半秒之内看到停机的标志，拆掉自己的 QP。*/
	for (unsigned int i = 0; i < n; i++)
		reap(&all[i]);
	free(all);
	sock_close(&listen_sock);
	return 0;
}

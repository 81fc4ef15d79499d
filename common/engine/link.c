// SPDX-License-Identifier: MIT
/*
 * link.c —— 与存储节点的连接：会断，也会重来
 *
 * 这条 link 有两层。TCP 一层在握手之后保持沉默，它的用处只剩一个：对端进程一死，内核
 * 立刻关掉它，我们马上就知道。QP 一层则不会：对端没了，READ 要等重传用尽才报错，而没有
 * READ 在途时，它永远不会说什么。
 *
 * 断了之后：QP 打回 RESET（内存从此安全），在途的 READ 都算失败，等一会儿，再从第 3、
 * 4 阶段走一遍。设备、PD、MR 不必重建，client 手里的 session 也都还在。
 */
#include "link.h"

#include "base/call_failed.h"
#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_MS	 2000 /* 第一次 tcp_connect 的期限，之后每次加倍 */
#define PATIENCE_MOST_MS 30000
#define BACKOFF_MS	 100
#define BACKOFF_MOST_MS	 5000
#define NS_PER_MS	 1000000

// region connect
/*
 * 第 3、4 阶段，与 rdma_client 走的一模一样；多出来的只是最后收下目录。它们都会“等”，
 * 而事件循环一刻也不能停，所以放进一个线程。线程里不碰别的：client、session、timer 都
 * 只属于事件循环，于是哪里都不用上锁。
 */
static int connect_to_node(struct engine_link *link)
{
	struct needle_catalog catalog = { 0 };
	int rc;

	link->sock = tcp_connect(link->host, link->port,
				 deadline_in_ms(link->patience_ms));
	if (link->sock < 0)
		return link->sock;
	rc = modify_qp_to_init(link->res);
	if (!rc)
		rc = connect_qp(link->res, link->sock,
				deadline_in_ms(EXCHANGE_TIMEOUT_MS));
	if (!rc)
		show_both_sides(cm_con_data_of(link->res), link->res->remote);
	if (!rc)
		rc = needle_catalog_receive(
			&catalog, link->sock,
			deadline_in_ms(EXCHANGE_TIMEOUT_MS));
	if (rc)
		return rc;
	needle_catalog_free(&link->catalog);
	link->catalog = catalog;
	return 0;
}

static void *connect_thread(void *arg)
{
	struct engine_link *link = arg;

	link->result = connect_to_node(link);
	/* 写 eventfd 也是一道栅栏：循环读到它时，上面写的都已可见。*/
	eventfd_write(link->wakeup, 1);
	return NULL;
}
// endregion connect

static void try_later(struct engine_link *link)
{
	/* 堆里留有它的位置（开始时设过一次），所以不会失败。*/
	timer_set(&link->loop->timers, &link->retry,
		  deadline_in_ms(link->backoff_ms));
	link->backoff_ms *= 2;
	if (link->backoff_ms > BACKOFF_MOST_MS)
		link->backoff_ms = BACKOFF_MOST_MS;
}

static void start_connecting(void *owner)
{
	struct engine_link *link = owner;
	int err = pthread_create(&link->thread, NULL, connect_thread, link);

	if (err) {
		call_failed(err, "pthread_create()");
		try_later(link);
		return;
	}
	link->connecting = true;
}

static void disconnect(struct engine_link *link)
{
	event_loop_remove(link->loop, &link->sock_source);
	sock_close(&link->sock);
	timer_cancel(&link->loop->timers, &link->check);
	link->is_up = false;
	/* is_up 已经是 false：done() 里重新排队的，会等下一次连上。*/
	remote_reader_abort(&link->reader);
}

static void lose_link(struct engine_link *link, const char *why)
{
	report_remark("link", "%s; %s port %u is lost, connecting again", why,
		      link->host, link->port);
	disconnect(link);
	try_later(link);
}

/* 握手之后节点不再说话：能读到的只有 EOF、错误，或不该有的字节。*/
static void on_sock(void *owner, uint32_t events)
{
	struct engine_link *link = owner;
	char byte;
	ssize_t n = recv(link->sock, &byte, 1, MSG_DONTWAIT);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	lose_link(link, n > 0	? "the node says what it should not"
			: n < 0 ? strerror(errno)
				: "the node has closed the connection");
}

static void on_completions(void *owner, uint32_t events)
{
	struct engine_link *link = owner;

	(void)events;
	if (remote_reader_poll(&link->reader) && link->is_up)
		lose_link(link, "a READ has failed");
	/* 没有 timer 的 epoll_wait 便宜得多：内核不必为它设一个又撤掉。*/
	else if (TAILQ_EMPTY(&link->reader.all))
		timer_cancel(&link->loop->timers, &link->check);
}

/*
 * RC 承诺每个 WR 都会有个结果；万一没有（驱动的毛病、虚拟机被冻住），READ 就会永远在
 * 途，那块 buffer 永远还不回来。所以每隔一会儿看一眼：有在途的，却很久没有 completion，
 * 就当它断了。
 */
static void on_check(void *owner)
{
	struct engine_link *link = owner;
	int64_t stalled = now_ns() - link->reader.last_completion;

	if (remote_reader_is_broken(&link->reader)) {
		lose_link(link, "a READ could not be posted");
		return;
	}
	if (TAILQ_EMPTY(&link->reader.all))
		return;
	if (stalled > (int64_t)ENGINE_LINK_STALL_MS * NS_PER_MS) {
		lose_link(link, "no READ has come back for too long");
		return;
	}
	timer_set(&link->loop->timers, &link->check,
		  deadline_in_ms(ENGINE_LINK_STALL_MS));
}

static int start_watching(struct engine_link *link)
{
	int rc = event_loop_add(link->loop, &link->sock_source, link->sock,
				EPOLLIN);

	return rc ? call_failed(-rc, "epoll_ctl(node)") : 0;
}

static void on_connected(void *owner, uint32_t events)
{
	struct engine_link *link = owner;
	eventfd_t count;

	(void)events;
	eventfd_read(link->wakeup, &count);
	pthread_join(link->thread, NULL);
	link->connecting = false;
	if (!link->result)
		link->result = start_watching(link);
	if (link->result) {
		disconnect(link);
		if (link->patience_ms < PATIENCE_MOST_MS)
			link->patience_ms *= 2;
		try_later(link);
		return;
	}
	link->is_up = true;
	link->patience_ms = PATIENCE_MS;
	link->backoff_ms = BACKOFF_MS;
	report_line("connected to %s port %u: %zu needles", link->host,
		    link->port, link->catalog.count);
	report_flush();
	link->up(link->context);
}

int engine_link_open(struct engine_link *link)
{
	int rc = remote_reader_open(&link->reader, link->res, link->chunk_size);

	if (rc)
		return rc;
	link->sock = -1;
	link->patience_ms = PATIENCE_MS;
	link->backoff_ms = BACKOFF_MS;
	link->sock_source = (struct event_source){ on_sock, link, -1, 0 };
	link->cq_source = (struct event_source){ on_completions, link, -1, 0 };
	link->wakeup_source =
		(struct event_source){ on_connected, link, -1, 0 };
	link->retry = (struct timer){ .fire = start_connecting, .owner = link };
	link->check = (struct timer){ .fire = on_check, .owner = link };
	link->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = link->wakeup < 0 ? -errno : 0;
	if (!rc)
		rc = event_loop_add(link->loop, &link->wakeup_source,
				    link->wakeup, EPOLLIN);
	if (!rc)
		rc = event_loop_add(link->loop, &link->cq_source,
				    link->res->channel->fd, EPOLLIN);
	if (!rc)
		rc = timer_set(&link->loop->timers, &link->retry, now_ns());
	if (rc) {
		call_failed(-rc, "epoll_ctl(link)");
		engine_link_close(link);
	}
	return rc;
}

void engine_link_close(struct engine_link *link)
{
	if (link->connecting)
		pthread_join(link->thread, NULL);
	link->connecting = false;
	timer_cancel(&link->loop->timers, &link->retry);
	disconnect(link);
	event_loop_remove(link->loop, &link->cq_source);
	event_loop_remove(link->loop, &link->wakeup_source);
	if (link->wakeup >= 0)
		close(link->wakeup);
	remote_reader_close(&link->reader);
	needle_catalog_free(&link->catalog);
}

void engine_link_submit(struct engine_link *link, struct remote_read *read)
{
	if (TAILQ_EMPTY(&link->reader.all))
		link->reader.last_completion = now_ns();
	remote_reader_submit(&link->reader, read);
	/* 断开要在这一轮事件之后做：此刻调用者还握着这个 read。*/
	if (remote_reader_is_broken(&link->reader))
		timer_set(&link->loop->timers, &link->check, now_ns());
	else if (!link->check.place)
		timer_set(&link->loop->timers, &link->check,
			  deadline_in_ms(ENGINE_LINK_STALL_MS));
}

// SPDX-License-Identifier: MIT
/*
 * clients.c —— engine 的 client 们：一次一个请求，谁也拖不住别人
 *
 * 每个 client 都可能不守规矩：写半条消息就停下，只写不读，说 4 GiB 的消息，连上一千次，
 * 或者在 READ 途中死掉。对付它们靠三条：不为它等（一切都由 epoll 驱动），不为它存（上一
 * 条没发完就不读下一条），不无限期地容忍（timer）。它占的每一份内存都记在账上。
 */
#include "clients.h"

#include "base/call_failed.h"
#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_BATCH 16
/* fd 用尽后，隔这么久再 accept。*/
#define ACCEPT_MS 100
/* 拒绝之后，让对端把正在写的写完；同时这样送走的至多几个，再多就说一句便关。*/
#define DRAIN_MS   2000
#define DRAIN_MOST 64
/* 积了这么多没发出去，就不再取下一个请求：再来一个回答，也还在不记账的那一份里。*/
#define OUT_HIGH (ENGINE_STREAM_SIZE / 2)
#define OUT_MOST (ENGINE_FRAME_MAX + OUT_HIGH)

static void close_client(void *owner)
{
	struct ipc_client *c = owner;
	struct engine_ipc *ipc = c->ipc;

	TAILQ_REMOVE(&ipc->clients, c, entry);
	if (c->turned_away) {
		ipc->turned_away--;
	} else {
		ipc->count--;
		budget_return(ipc->budget, IPC_CLIENT_BYTES);
	}
	event_loop_remove(ipc->loop, &c->source);
	timer_cancel(&ipc->loop->timers, &c->timer);
	ipc->gone(c, ipc->context);
	engine_stream_close(&c->stream);
	free(c);
}

/* ---- 回答 --------------------------------------------------------------- */

/*
 * 发不出去不在这里关连接：调用者可能正握着这个 client。关掉收发两个方向，epoll 随后会
 * 报 EPOLLHUP，由 on_ready() 来收尾。
 */
static void give_up(struct ipc_client *c)
{
	c->broken = true;
	shutdown(c->stream.fd, SHUT_RDWR);
}

static void flush(struct ipc_client *c)
{
	int rc = c->broken ? 0 : engine_stream_flush(&c->stream);

	if (rc && rc != -EAGAIN)
		give_up(c);
}

static void take_requests(struct ipc_client *c);
static void watch(struct ipc_client *c);

void engine_ipc_answer(struct ipc_client *client,
		       const struct engine_message *message, int fd)
{
	int rc = engine_encode(message, &client->stream);

	if (!rc && fd >= 0)
		rc = engine_stream_attach(&client->stream, fd);
	if (rc)
		give_up(client);
	client->busy = false;
	/* 等着它的也许已在缓冲区里：不会再有 EPOLLIN 来提醒。*/
	if (!client->taking) {
		take_requests(client);
		watch(client);
	}
}

void engine_ipc_fail(struct ipc_client *client, struct engine_failure failure)
{
	const struct engine_message m = engine_failure_message(&failure);

	engine_ipc_answer(client, &m, -1);
}

void engine_ipc_tell(struct ipc_client *client,
		     const struct engine_message *message)
{
	if (engine_stream_pending(&client->stream) || client->broken)
		return; /* 进度是附送的：对方不读，就不送 */
	if (engine_encode(message, &client->stream))
		give_up(client);
	flush(client);
	watch(client);
}

/* ---- 请求 --------------------------------------------------------------- */

/*
 * 答一个 Error，然后只读不看，直到对端收手（或 2 秒后）。若立刻 close，正在 write 的对端
 * 只会得到 EPIPE 或 ECONNRESET，看不到那个 Error。
 */
static void refuse(struct ipc_client *c, struct engine_failure failure)
{
	c->refused = true;
	c->patience = deadline_in_ms(DRAIN_MS);
	engine_ipc_fail(c, failure);
	engine_stream_discard(&c->stream);
}

/* 长度不可信，后面的字节就没有边界可言。*/
static struct engine_failure too_large(uint32_t size)
{
	return engine_failure_of(
		ENGINE_IPC_ERROR,
		"Message too large: %u bytes, the limit is %u; closing", size,
		ENGINE_FRAME_MAX);
}

static struct engine_failure no_memory_for(const char *what,
					   const struct engine_ipc *ipc)
{
	return engine_failure_of(ENGINE_RESOURCE_EXHAUSTED,
				 "memory for %s, %zu of %zu bytes are in use",
				 what, ipc->budget->used, ipc->budget->most);
}

static void take_request(struct ipc_client *c, const char *data, uint32_t size)
{
	struct engine_message message;
	struct engine_fault fault = { "no memory" };

	c->busy = c->greeted = true;
	c->patience = 0;
	if (!engine_decode(&message, data, size, &fault)) {
		c->ipc->request(c, &message, c->ipc->context);
		return;
	}
	/* 边界还可信，坏的只是这一条：答 Error，连接照旧。*/
	engine_ipc_fail(c, engine_failure_of(ENGINE_SERIALIZATION_ERROR, "%s",
					     fault.text));
}

/* 现在可以取下一个请求吗：一次只答一个，答了的也不能积得太多。*/
static bool may_take(const struct ipc_client *c)
{
	return !c->busy && !c->broken && !c->refused && c->stream.out_fd < 0 &&
	       engine_stream_pending(&c->stream) < OUT_HIGH;
}

static void take_requests(struct ipc_client *c)
{
	const char *data;
	uint32_t size;
	int rc = 1;

	c->taking = true;
	do {
		while (may_take(c)) {
			rc = engine_stream_frame(&c->stream, &data, &size);
			if (rc == -EMSGSIZE)
				refuse(c, too_large(size));
			if (rc != 1)
				break;
			take_request(c, data, size);
			engine_stream_next(&c->stream);
		}
		/* 一起到的几个请求，回答也一起走：对端只醒一次。*/
		flush(c);
	} while (rc == 1 && may_take(c));
	c->taking = false;
	if (c->refused && !engine_stream_pending(&c->stream))
		shutdown(c->stream.fd, SHUT_WR); /* 读完那个 Error 就可以走了 */
	if (rc == 0 && c->at_end && !engine_stream_pending(&c->stream))
		give_up(c); /* 问的都答了，它也不会再问 */
}

// region patience
/*
 * 它欠我们什么，到什么时候为止；0：不欠，爱等多久等多久。欠的是：头一条消息、写了一半的
 * 那一条、或读走已发的回答。期限从开始欠的那一刻算起，此后一个字节一个字节地来，也不再
 * 往后推：每秒写一个字节的，否则永远不会到期。
 */
static int64_t patience_ends(struct ipc_client *c)
{
	size_t unread = engine_stream_pending(&c->stream);

	if (c->broken)
		return 0; /* EPOLLHUP 就要来了 */
	if (c->refused)
		return c->patience;
	if (!unread &&
	    (c->busy || (c->greeted && !engine_stream_is_midway(&c->stream))))
		c->patience = 0;
	else if (!c->patience ||
		 (c->read_upto && c->stream.sent >= c->read_upto)) {
		c->patience = deadline_in_ms(c->ipc->stall_ms);
		c->read_upto = unread ? c->stream.sent + unread : 0;
	}
	return c->patience;
}
// endregion patience

/*
 * 接下来等什么、等多久：只由 client 现在的样子决定。忙着的时候本不该再收它的请求，但
 * 也不急着去改 epoll：多数 client 问一句等一句，改过去又改回来就是白费两次系统调用。
 * 它真的又写了，on_ready() 再关。
 */
static void watch(struct ipc_client *c)
{
	struct timers *timers = &c->ipc->loop->timers;
	int64_t end = patience_ends(c);
	uint32_t events = EPOLLIN;

	if (may_take(c))
		c->held = false;
	if (c->at_end || (c->held && !c->refused))
		events = 0;
	if (!c->broken && engine_stream_pending(&c->stream))
		events |= EPOLLOUT;
	event_loop_change(c->ipc->loop, &c->source, events);
	if (!end)
		timer_cancel(timers, &c->timer);
	else if (timer_set(timers, &c->timer, end))
		give_up(c);
}

static void receive(struct ipc_client *c)
{
	long n = engine_stream_fill(&c->stream);

	if (n == 0)
		c->at_end = true;
	else if (n == -EDQUOT)
		refuse(c, no_memory_for("a message", c->ipc));
	else if (n < 0 && n != -EAGAIN && n != -ENOBUFS)
		give_up(c);
	if (c->refused) {
		engine_stream_discard(&c->stream);
		if (c->at_end)
			give_up(c);
	}
}

static void on_ready(void *owner, uint32_t events)
{
	struct ipc_client *c = owner;

	/*
	 * EPOLLHUP：对端整个关闭（或死了）。它在途的 READ 没有人要了，session 也随它
	 * 去。只关一半（shutdown(SHUT_WR)）的不算：它还等着回答。
	 */
	if (events & (EPOLLHUP | EPOLLERR) || c->broken) {
		close_client(c);
		return;
	}
	if (events & EPOLLIN) {
		c->held = !may_take(c);
		if (!c->held || c->refused)
			receive(c);
	}
	take_requests(c);
	watch(c);
}

/* ---- 新来的 ------------------------------------------------------------- */

static void say_and_close(int fd, struct engine_failure failure)
{
	const struct engine_message m = engine_failure_message(&failure);
	struct engine_stream stream;

	engine_stream_init(&stream, fd, OUT_MOST);
	if (!engine_encode(&m, &stream))
		engine_stream_flush(&stream);
	engine_stream_close(&stream);
}

static struct ipc_client *welcome(struct engine_ipc *ipc, int fd)
{
	struct ipc_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->ipc = ipc;
	engine_stream_init(&c->stream, fd, OUT_MOST);
	c->stream.all = ipc->budget;
	c->stream.own = &c->owner.share;
	c->owner.share.most = ipc->share;
	c->source = (struct event_source){ on_ready, c, -1, 0 };
	c->timer = (struct timer){ .fire = close_client, .owner = c };
	if (event_loop_add(ipc->loop, &c->source, fd, EPOLLIN)) {
		free(c);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&ipc->clients, c, entry);
	return c;
}

/* 它得先读到为什么，也像别的被拒绝的那样送走；但送走的人多了，也就顾不上了。*/
static void turn_away(struct engine_ipc *ipc, int fd,
		      struct engine_failure failure)
{
	struct ipc_client *c =
		ipc->turned_away < DRAIN_MOST ? welcome(ipc, fd) : NULL;

	if (!c) {
		say_and_close(fd, failure);
		return;
	}
	ipc->turned_away++;
	c->turned_away = true;
	refuse(c, failure);
}

static void accept_client(struct engine_ipc *ipc, int fd)
{
	struct ipc_client *c;

	if (ipc->count >= ipc->most) {
		turn_away(ipc, fd,
			  engine_failure_of(ENGINE_RESOURCE_EXHAUSTED,
					    "clients (%u at most)", ipc->most));
		return;
	}
	if (!budget_take(ipc->budget, IPC_CLIENT_BYTES, 0)) {
		turn_away(ipc, fd, no_memory_for("a client", ipc));
		return;
	}
	c = welcome(ipc, fd);
	if (!c) {
		budget_return(ipc->budget, IPC_CLIENT_BYTES);
		close(fd);
		return;
	}
	ipc->count++;
	watch(c);
}

static void on_listener(void *owner, uint32_t events)
{
	struct engine_ipc *ipc = owner;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(ipc->listener.fd, NULL, NULL,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE ||
			       errno == ENOBUFS || errno == ENOMEM)) {
			/*
			 * fd 用尽时，listener 会一直“可读”而 accept 一直失败：
			 * epoll 就此空转。歇一会儿，等别的 client 还回 fd。
			 */
			event_loop_change(ipc->loop, &ipc->source, 0);
			timer_set(&ipc->loop->timers, &ipc->again,
				  deadline_in_ms(ACCEPT_MS));
		}
		if (fd < 0)
			return;
		accept_client(ipc, fd);
	}
}

static void accept_again(void *owner)
{
	struct engine_ipc *ipc = owner;

	event_loop_change(ipc->loop, &ipc->source, EPOLLIN);
}

int engine_ipc_open(struct engine_ipc *ipc, const char *path)
{
	int rc = engine_socket_listen(&ipc->listener, path);

	if (rc)
		return rc;
	TAILQ_INIT(&ipc->clients);
	ipc->count = ipc->turned_away = 0;
	ipc->source = (struct event_source){ on_listener, ipc, -1, 0 };
	ipc->again = (struct timer){ .fire = accept_again, .owner = ipc };
	rc = event_loop_add(ipc->loop, &ipc->source, ipc->listener.fd, EPOLLIN);
	if (rc) {
		call_failed(-rc, "epoll_ctl(listener)");
		engine_socket_close(&ipc->listener);
	}
	return rc;
}

void engine_ipc_close(struct engine_ipc *ipc)
{
	event_loop_remove(ipc->loop, &ipc->source);
	timer_cancel(&ipc->loop->timers, &ipc->again);
	engine_socket_close(&ipc->listener);
	while (!TAILQ_EMPTY(&ipc->clients))
		close_client(TAILQ_FIRST(&ipc->clients));
}

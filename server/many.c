// SPDX-License-Identifier: MIT
/*
 * many.c —— rdma_server --many：许多 client，谁来、怎样见面、怎样走
 *
 * 一个线程，一个 epoll：TCP 的字节、CQ 的 event、设备的 async event 都在里面等。第 4 阶段
 * 的“写一条、等一条”在这里拆成状态：凑够了字节才走下一步，没凑够就去管别人。所以一言
 * 不发的、说一半的、赖着不走的，耽误的都只是自己。
 *
 * 只有一处会等：INIT→RTR，内核要把对端的 GID 解析成 MAC，对端若报了一个没人应的地址，
 * 就是整整一秒。那一步交给一个短命的线程，做完从 pipe 里回来。
 */
#include "many.h"

#include "base/deadline.h"
#include "base/json_line.h"
#include "base/report.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	STRANGERS = 64, /* 还没有位子的，比位子多这么些；满了，最早的那个走 */
	SPARE_FDS = 32, /* 设备、epoll、stdout…… */
	SENDS = 4, /* 一个 QP 至多几个回信在途；client 等到一个才发下一条 */
	REST_MS = 100,	/* accept() 失败之后 */
	AWAY_MS = 5000, /* 停机 */
	SLOTS_EACH = 4, /* 没有 --slots 时，每个位子几个 */
};

// region settle
/*
 * 每批事件的末尾。拆 QP 要等两件事：欠着的回信都 flush 回来了；设备说过 LAST_WQE_REACHED
 * ——它若会说。都等到，或者等够了，CQ 里就不会再有它的 CQE（有也认不出主人，slot 照收）。
 */
static void settle(struct many *m)
{
	struct client *c, *next;
	int rc;

	for (c = LIST_FIRST(&m->clients); m->leaving && c; c = next) {
		next = LIST_NEXT(c, all);
		if (c->state != LEAVING || c->resolving)
			continue;
		if (!c->res.qp || !c->timer.place ||
		    (!c->answers && (c->last_wqe || !m->shared.tells_last_wqe)))
			part(c);
	}
	if (m->doubt && !m->qps) {
		/* 先取空 CQ：里面还有旧 SRQ 的 receive。*/
		rc = dispatch_completions(&m->shared, deliver, m);
		if (!rc)
			renew_slots(m);
		m->rc = m->rc ? m->rc : rc;
		m->doubt = false;
	}
	take_turns(m);
	/* 还有积压：马上再来一轮，但先让别的 fd 也看一眼。*/
	if (!TAILQ_EMPTY(&m->busy))
		(void)!write(m->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
	if (m->rc)
		event_loop_end(&m->loop);
}
// endregion settle

/* 它该做的没有做，或者 QP 等够了。*/
static void on_timer(void *owner)
{
	struct client *c = owner;
	struct many *m = c->many;
	const int limit_ms = timeout_or(m->opt, POLL_TIMEOUT_MS);
	int64_t idle = now_ns() - c->heard;

	if (c->state == DRAINING) {
		forget(c);
		return;
	}
	if (c->state == SERVING && idle < (int64_t)limit_ms * 1000000) {
		set_timer(c, limit_ms - (int)(idle / 1000000));
		return;
	}
	if (c->state != LEAVING)
		client_leave(c, fail(-ETIMEDOUT, NULL,
				     "client %u (%s) does not go on: nothing "
				     "came of it before the deadline",
				     c->number, c->name));
	settle(m);
}

/* ---- 见面：第 4 阶段，一步一个状态 --------------------------------------------- */

static int heard_hello(struct client *c)
{
	int rc = check_hello(&c->in.hello);
	struct cm_con_data_t mine;

	if (!rc)
		rc = create_peer_qp(&c->many->shared, &c->res, SENDS, c);
	c->many->qps += !rc;
	if (!rc)
		rc = modify_qp_to_init(&c->res);
	if (rc)
		return rc;
	mine = cm_con_data_to_wire(cm_con_data_of(&c->res));
	client_send(c, &mine, sizeof(mine));
	c->state = DATA;
	return 0;
}

// region resolve
static void *resolve(void *owner)
{
	struct client *c = owner;

	c->rc = modify_qp_to_rtr(&c->res);
	if (!c->rc)
		c->rc = modify_qp_to_rts(&c->res);
	/* 一个指针小于 PIPE_BUF，不会与别的线程写的混在一起。*/
	(void)!write(c->many->pipe[1], &c, sizeof(c));
	return NULL;
}

static int start_resolving(struct client *c)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	c->resolving = true;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, resolve, c);
	pthread_attr_destroy(&attr);
	c->resolving = !err;
	c->many->threads += !err;
	return err ? call_failed(err, "pthread_create()") : 0;
}
// endregion resolve

static int heard_data(struct client *c)
{
	struct many *m = c->many;
	struct cm_con_data_t peers = cm_con_data_to_wire(c->in.data);
	int rc = check_cm_con_data(&peers);

	if (rc)
		return rc;
	if (m->places >= m->opt->many)
		return fail(-EUSERS, "raise --many",
			    "client %u (%s) is turned away: %u are connected",
			    c->number, c->name, m->places);
	m->places++;
	m->strangers--;
	c->place = true;
	c->res.remote = peers;
	c->state = RESOLVING;
	/* 它可能已经说了 READY：留在 socket 里，等线程回来再读。*/
	event_loop_remove(&m->loop, &c->tcp);
	return start_resolving(c);
}

static void on_resolved(void *owner, uint32_t events)
{
	struct many *m = owner;
	struct client *c;

	(void)events;
	while (read(m->pipe[0], &c, sizeof(c)) == sizeof(c)) {
		m->threads--;
		c->resolving = false;
		if (c->state == LEAVING) {
			still_client(c);
		} else if (c->rc) {
			client_leave(c, c->rc);
		} else {
			client_meet(c, SYNC_READY, 0);
			c->state = READY;
			listen_to(c);
		}
	}
	settle(m);
}

static int heard_done(struct client *c)
{
	int rc = check_sync(&c->in.sync, SYNC_DONE);

	if (!rc && c->done)
		rc = -EPROTO;
	c->done = true;
	if (!rc)
		check_done(c);
	return rc;
}

/* 凑够了这一步的字节。*/
static int go_on(struct client *c)
{
	int rc = 0;

	switch (c->state) {
	case HELLO:
		return heard_hello(c);
	case DATA:
		return heard_data(c);
	case READY:
		rc = check_sync(&c->in.sync, SYNC_READY);
		c->state = PLAN;
		return rc;
	case PLAN:
		serve_client(c, &c->in.plan);
		set_timer(c, timeout_or(c->many->opt, POLL_TIMEOUT_MS));
		return 0;
	default:
		return heard_done(c);
	}
}

static void on_tcp(void *owner, uint32_t events)
{
	static const size_t lengths[] = {
		[HELLO] = sizeof(struct hello),
		[DATA] = sizeof(struct cm_con_data_t),
		[READY] = sizeof(struct sync_msg),
		[PLAN] = sizeof(struct plan_msg),
		[SERVING] = sizeof(struct sync_msg),
	};
	struct client *c = owner;
	struct many *m = c->many;
	bool gone = false;
	ssize_t n = 0;

	(void)events;
	if (c->state == DRAINING) {
		if (recv(c->sock, &c->in, sizeof(c->in), MSG_DONTWAIT) <= 0)
			forget(c);
		return;
	}
	while (c->state < LEAVING && c->state != RESOLVING && !gone) {
		n = recv(c->sock, (char *)&c->in + c->have,
			 lengths[c->state] - c->have, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		gone = n <= 0;
		c->have += gone ? 0 : (size_t)n;
		if (gone || c->have < lengths[c->state])
			continue;
		c->have = 0;
		n = go_on(c);
		if (n)
			client_leave(c, (int)n);
	}
	/* TCP 断了：进程死了，内核替它说的。RC QP 自己永远察觉不到。*/
	if (gone) {
		c->told = true;
		client_leave(c, -ECONNRESET);
	}
	settle(m);
}

/* ---- 来 ---------------------------------------------------------------------- */

/* 生人太多：最早的那个走。名单里新来的在前。*/
static void evict_stranger(struct many *m)
{
	struct client *c, *first = NULL;

	LIST_FOREACH(c, &m->clients, all)
		if (c->state < RESOLVING)
			first = c;
	if (first)
		client_leave(first, -ETIMEDOUT);
}

static int meet(struct many *m, int sock)
{
	const struct hello mine = {
		.magic = htobe32(HELLO_MAGIC),
		.version = htobe16(HELLO_VERSION),
		.length = htobe16(sizeof(struct cm_con_data_t)),
	};
	struct client *c = calloc(1, sizeof(*c));
	int rc = c ? 0 : -ENOMEM;

	if (!rc) {
		*c = (struct client){ .many = m,
				      .number = ++m->number,
				      .sock = sock,
				      .tcp = { on_tcp, c, -1, 0 },
				      .timer = { .fire = on_timer,
						 .owner = c } };
		rc = timer_set(&m->loop.timers, &c->timer,
			       deadline_in_ms(timeout_or(m->opt,
							 EXCHANGE_TIMEOUT_MS)));
	}
	if (!rc)
		rc = event_loop_add(&m->loop, &c->tcp, sock, EPOLLIN);
	if (rc) {
		if (c)
			timer_cancel(&m->loop.timers, &c->timer);
		free(c);
		sock_close(&sock);
		return call_failed(-rc, "meeting a client");
	}
	sock_peer_name(sock, c->name, sizeof(c->name));
	LIST_INSERT_HEAD(&m->clients, c, all);
	if (++m->strangers > m->opt->many + STRANGERS)
		evict_stranger(m);
	client_send(c, &mine, sizeof(mine));
	return 0;
}

static void on_rest_over(void *owner)
{
	struct many *m = owner;

	event_loop_change(&m->loop, &m->listen, EPOLLIN);
}

static void on_listen(void *owner, uint32_t events)
{
	struct many *m = owner;
	int sock = tcp_accept(m->sock, 0);

	(void)events;
	/* fd 用完了之类：那个连接还在队里，epoll 会一直叫。歇一会儿再看。*/
	if (sock < 0 || meet(m, sock)) {
		event_loop_change(&m->loop, &m->listen, 0);
		timer_set(&m->loop.timers, &m->rest, deadline_in_ms(REST_MS));
	}
	settle(m);
}

/* ---- 设备说话 ---------------------------------------------------------------- */

static void on_channel(void *owner, uint32_t events)
{
	struct many *m = owner;
	int rc = dispatch_completions(&m->shared, deliver, m);

	(void)events;
	m->rc = m->rc ? m->rc : rc;
	settle(m);
}

static void on_again(void *owner, uint32_t events)
{
	struct many *m = owner;

	(void)!read(m->wake, &(uint64_t){ 0 }, sizeof(uint64_t));
	on_channel(owner, events);
}

// region events
static void handle(struct many *m, const struct ibv_async_event *event)
{
	struct client *c;

	switch (event->event_type) {
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		m->dry = true;
		m->count.limits++;
		break;
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		c = event->element.qp->qp_context;
		c->last_wqe = true;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		c = event->element.qp->qp_context;
		client_leave(c, fail(-EIO, NULL, "client %u (%s): %s",
				     c->number, c->name,
				     ibv_event_type_str(event->event_type)));
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		m->rc = fail(-EIO, "start again; dmesg may know more",
			     "nobody can be served any more: %s",
			     ibv_event_type_str(event->event_type));
		break;
	default: /* port、GID 的变化：QP 自己会试，试不通才失败 */
		report_fact("%s", ibv_event_type_str(event->event_type));
	}
}

static void on_async(void *owner, uint32_t events)
{
	struct many *m = owner;
	struct ibv_async_event event;
	int rc;

	(void)events;
	while ((rc = take_async_event(&m->shared.res, &event)) > 0)
		handle(m, &event);
	m->rc = m->rc ? m->rc : rc;
	settle(m);
}
// endregion events

/* ---- 从头到尾 ---------------------------------------------------------------- */

static int raise_fd_limit(unsigned int clients)
{
	const rlim_t need = 2 * clients + STRANGERS + SPARE_FDS;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return call_failed(errno, "getrlimit(RLIMIT_NOFILE)");
	if (limit.rlim_cur >= need)
		return 0;
	if (limit.rlim_max < need)
		return fail(-EMFILE, "raise it with ulimit -Hn, or serve fewer",
			    "%u clients need %ju descriptors; the limit is %ju",
			    clients, (uintmax_t)need,
			    (uintmax_t)limit.rlim_max);
	limit.rlim_cur = need;
	return setrlimit(RLIMIT_NOFILE, &limit)
		       ? call_failed(errno, "setrlimit(RLIMIT_NOFILE)")
		       : 0;
}

static int watch(struct many *m, struct event_source *source, int fd,
		 const char *what)
{
	int rc = event_loop_add(&m->loop, source, fd, EPOLLIN);

	return rc ? call_failed(-rc, "epoll_ctl(%s)", what) : 0;
}

static int open_many(struct many *m)
{
	int rc = slots_open(m);

	if (!rc && pipe2(m->pipe, O_CLOEXEC | O_NONBLOCK))
		rc = call_failed(errno, "pipe2()");
	if (!rc && (m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
		rc = call_failed(errno, "eventfd()");
	if (!rc)
		rc = watch(m, &m->resolved, m->pipe[0], "pipe");
	if (!rc)
		rc = watch(m, &m->again, m->wake, "eventfd");
	if (!rc)
		rc = watch(m, &m->channel, m->shared.res.channel->fd,
			   "completion channel");
	if (!rc)
		rc = watch(m, &m->async, m->shared.res.context->async_fd,
			   "async_fd");
	if (rc)
		return rc;
	m->sock = tcp_listen(m->opt->tcp_port);
	return m->sock < 0 ? m->sock : watch(m, &m->listen, m->sock, "TCP");
}

/* 停机：不再接，请所有人走，等他们的 QP 静下来、线程都回来。*/
static void send_all_away(struct many *m)
{
	const int64_t deadline = deadline_in_ms(AWAY_MS);
	struct client *c, *next;

	event_loop_remove(&m->loop, &m->listen);
	for (c = LIST_FIRST(&m->clients); c; c = next) {
		next = LIST_NEXT(c, all);
		client_leave(c, -ECANCELED);
	}
	m->loop.done = false;
	settle(m);
	while (!LIST_EMPTY(&m->clients) && !deadline_passed(deadline) &&
	       !event_loop_turn(&m->loop, REST_MS))
		m->loop.done = false;
}

static void close_many(struct many *m)
{
	int *fds[] = { &m->sock, &m->pipe[0], &m->pipe[1], &m->wake };

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		sock_close(fds[i]);
	slots_close(m);
}

static int report_many(const struct many *m)
{
	json_t *root;

	if (!m->opt->json) {
		report_result("%ju messages of %u clients; %u failed, %u not "
			      "served, %u put off",
			      m->count.messages, m->count.served,
			      m->count.failed, m->count.turned_away,
			      m->count.put_off);
		return report_flush();
	}
	root = json_pack("{s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "messages",
			 (json_int_t)m->count.messages, "served",
			 m->count.served, "failed", m->count.failed,
			 "turned_away", m->count.turned_away, "put_off",
			 m->count.put_off, "limit_events", m->count.limits,
			 "lost", m->count.lost, "tells_last_wqe",
			 m->shared.tells_last_wqe);
	return print_json_line(root);
}

static int run_many(struct many *m)
{
	int rc = open_many(m);

	if (!rc) {
		report_step("serve up to %u clients at TCP port %u",
			    m->opt->many, m->opt->tcp_port);
		rc = event_loop_run(&m->loop);
		report_step("send the clients away, destroy their QPs");
		send_all_away(m);
	}
	return rc ? rc : m->rc;
}

int serve_many(const struct rdma_options *opt)
{
	struct rdma_config config = opt->config;
	struct many m = { .opt = opt,
			  .listen = { on_listen, &m, -1, 0 },
			  .channel = { on_channel, &m, -1, 0 },
			  .async = { on_async, &m, -1, 0 },
			  .resolved = { on_resolved, &m, -1, 0 },
			  .again = { on_again, &m, -1, 0 },
			  .rest = { .fire = on_rest_over, .owner = &m },
			  .sock = -1,
			  .wake = -1,
			  .pipe = { -1, -1 } };
	int rc, undo;

	TAILQ_INIT(&m.busy);
	TAILQ_INIT(&m.order);
	config.recv_slots = opt->slots ? opt->slots : opt->many * SLOTS_EACH;
	report_step("open the device, make PD, MR, one CQ and one SRQ");
	rc = raise_fd_limit(opt->many);
	if (!rc)
		rc = open_shared_queues(&m.shared, &config);
	if (rc)
		return 1;
	report_fact("%s port %u, GID index %u; %u receives for all",
		    ibv_get_device_name(m.shared.res.context->device),
		    m.shared.res.ib_port, m.shared.res.gid_index,
		    config.recv_slots);
	rc = event_loop_open(&m.loop);
	if (!rc) {
		rc = run_many(&m);
		event_loop_close(&m.loop);
	}
	close_many(&m);
	undo = close_shared_queues(&m.shared);
	if (!rc)
		rc = report_many(&m);
	return rc || undo ? 1 : 0;
}

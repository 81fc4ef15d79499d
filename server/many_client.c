// SPDX-License-Identifier: MIT
/*
 * many_client.c —— 一个 client 怎样走：ERR、静下来、拆、关
 */
#include "many.h"

#include "base/deadline.h"
#include "base/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	STILL_MS = 1000, /* 进了 ERR 的 QP，等它静下来 */
	DRAIN_MS = 2000, /* 被拒绝的，等它读到为什么 */
};

void set_timer(struct client *c, int ms)
{
	/* 堆里早有它的位置：accept 时设过。*/
	timer_set(&c->many->loop.timers, &c->timer, deadline_in_ms(ms));
}

void listen_to(struct client *c)
{
	if (event_loop_add(&c->many->loop, &c->tcp, c->sock, EPOLLIN))
		client_leave(c, -ENOMEM);
}

void client_send(struct client *c, const void *data, size_t size)
{
	/* 这点字节，空的 socket buffer 一定装得下；装不下的那个自己会超时。*/
	(void)!send(c->sock, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void client_meet(struct client *c, enum sync_step step, int status)
{
	const struct sync_msg mine = sync_msg_of(step, status);

	client_send(c, &mine, sizeof(mine));
}

// region leave
void still_client(struct client *c)
{
	/* 进 ERR：它不再收，欠着的回信一个个 flush 回来。*/
	set_timer(c, STILL_MS);
	if (c->res.qp && c->res.qp->state != IBV_QPS_RESET)
		modify_qp_to_error(&c->res);
}

void client_leave(struct client *c, int rc)
{
	struct many *m = c->many;
	bool met = c->state >= DATA;

	if (c->state >= LEAVING)
		return;
	c->drain = rc && met && !c->told;
	if (c->drain)
		client_meet(c, c->state > READY ? SYNC_DONE : SYNC_READY, rc);
	c->told = true;
	c->rc = rc;
	c->state = LEAVING;
	m->leaving++;
	drop_backlog(c);
	event_loop_remove(&m->loop, &c->tcp);
	if (!c->resolving)
		still_client(c);
}
// endregion leave

void forget(struct client *c)
{
	struct many *m = c->many;

	timer_cancel(&m->loop.timers, &c->timer);
	event_loop_remove(&m->loop, &c->tcp);
	sock_close(&c->sock);
	LIST_REMOVE(c, all);
	free(c);
}

static void say_goodbye(const struct client *c)
{
	if (!c->place)
		report_fact("client %u (%s): not served", c->number, c->name);
	else
		report_fact("client %u (%s): %ju messages, %s", c->number,
			    c->name, c->received,
			    c->rc ? strerror(-c->rc) : "done");
}

/* 它的 QP 静下来了：拆掉，位子让出来。*/
void part(struct client *c)
{
	struct many *m = c->many;

	m->qps -= c->res.qp != NULL;
	m->doubt |= c->res.qp && c->rc;
	if (destroy_peer_qp(&m->shared, &c->res))
		m->rc = -EIO;
	slots_take_back(c);
	say_goodbye(c);
	if (c->place)
		m->places--;
	else
		m->strangers--;
	m->leaving--;
	m->count.served += c->place && !c->rc;
	m->count.failed += c->place && c->rc;
	m->count.turned_away += !c->place;
	if (!c->drain) {
		forget(c);
		return;
	}
	/* 还有没读的就关，对端会得到 RST，也许还没读到为什么：等它先走。*/
	c->state = DRAINING;
	shutdown(c->sock, SHUT_WR);
	listen_to(c);
	set_timer(c, DRAIN_MS);
}

void check_done(struct client *c)
{
	if (c->received < c->plan.iters || c->answers)
		return;
	if (!c->told)
		client_meet(c, SYNC_DONE, 0);
	c->told = true;
	if (c->done)
		client_leave(c, 0);
}

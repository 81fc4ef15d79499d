// SPDX-License-Identifier: MIT
/*
 * direction.c —— 没有 ACK：丢的是去的包，还是回来的 ACK
 */
#include "rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static size_t arrivals(const struct report *r, const struct qp *qp)
{
	size_t n = 0;

	EACH(i, &qp->own)
		n += is_arrival(&r->events[i]);
	return n;
}

/* @post 之前发了几条；RC 按次序到：到的比这还多，@post 就到了。*/
static size_t sent_before(const struct report *r, const struct qp *qp,
			  const struct event *post)
{
	size_t n = 0;

	EACH(i, &qp->own)
		n += &r->events[i] < post && !r->events[i].refused &&
		     r->events[i].class == CLASS_POST_SEND &&
		     takes_receive(&r->events[i]);
	return n;
}

/* 收到过几个 ACK：收到过，两端的值就合得上。*/
static size_t acks(const struct report *r, const struct qp *qp)
{
	size_t n = 0;

	EACH(i, &qp->own)
		n += went_well(&r->events[i]) && !is_arrival(&r->events[i]);
	return n;
}

/* 同一个 rkey、同一段地址，先前成功过几次：那时 MR 还在。*/
static size_t worked_before(const struct report *r, const struct qp *qp,
			    const struct event *post, uint32_t rkey)
{
	uint64_t low = UINT64_MAX, high = 0;
	struct recalled failed, wr;
	size_t n = 0;

	world_recall(r, post, &failed);
	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];
		uint64_t to;

		if (e->class != CLASS_POST_SEND || strcmp(e->op, post->op) ||
		    came_to_nothing(r, e))
			continue;
		world_recall(r, e, &wr);
		to = wr.send.wr.rdma.remote_addr;
		if (wr.send.wr.rdma.rkey != rkey)
			continue;
		low = to < low ? to : low;
		high = to + wr.sge.length > high ? to + wr.sge.length : high;
		n++;
	}
	return failed.send.wr.rdma.remote_addr >= low &&
			       failed.send.wr.rdma.remote_addr +
					       failed.sge.length <=
				       high
		       ? n
		       : 0;
}

/* 只有这一端的记录：对端的内存先前还在，连接又断了，就不必怀疑 rkey。*/
static struct explanation memory_gone(const struct report *r,
				      const struct cause *c,
				      const struct qp *qp,
				      const struct event *post)
{
	size_t left = last_event(r, c->side, "rdma_event", "DISCONNECTED");
	struct explanation why = { 0 };
	struct recalled wr;
	uint32_t rkey;
	size_t n;

	world_recall(r, post, &wr);
	rkey = wr.send.wr.rdma.rkey;
	n = strncmp(post->op, "RDMA_", 5) ? 0
					  : worked_before(r, qp, post, rkey);
	if (!n)
		return why;
	why = because("REM_ACCESS_ERR later", "0x%x\t%zu", rkey, n);
	if (left != NOWHERE)
		also_seen(&why, "cm-disconnected", "%.0f\t%s",
			  fabs((double)(r->events[left].t -
					r->events[c->event].t)) /
				  1e6,
			  left < c->event ? "before" : "after");
	return why;
}

/* 对端停下来时看见自己的地址没有了：就是它。*/
static bool lost_its_gid(struct causes *all, int side)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].side == side &&
		    !strcmp(all->items[i].id, "gid-gone")) {
			all->items[i].kind = CAUSE_FAILURE;
			return all->items[i].proven = true;
		}
	return false;
}

static struct explanation direction(const struct report *r, const struct qp *qp,
				    const struct event *post)
{
	size_t before = sent_before(r, qp, post), come = arrivals(r, qp->peer);
	struct explanation why;
	char name[80];

	if (come > before)
		return because("acks-lost", "");
	if (!got_through(r, qp))
		return because("nothing-arrives", "%s",
			       world_name(r, name, sizeof(name), qp));
	why = because("lost-on-the-way");
	also_seen(&why, "arrived", "%s\t%zu\t%zu\t%s", r->side[qp->side].name,
		  before + 1, come, r->side[qp->peer->side].name);
	return why;
}

/*
 * 两台主机：没有 ACK，两端的值又都合得上（compare_pairs 看过了）。对端的记录里有没有这条消息，
 * 说得出丢的是去的，还是回的；只有一份记录时，说不出。
 */
void tell_direction(const struct report *r, struct causes *all)
{
	for (size_t i = 0; i < all->count; i++) {
		struct cause *c = &all->items[i];
		const struct qp *qp = qp_of(r, c->side, c->qp);
		const struct event *post = post_of(r, c);
		struct explanation why;

		if (!post || !qp)
			continue;
		if (!strcmp(c->id, "REM_ACCESS_ERR") && !qp->peer) {
			why = memory_gone(r, c, qp, post);
			if (why.id)
				cause_restate(c, &why);
		}
		if (strcmp(c->id, "RETRY_EXC_ERR"))
			continue;
		if (!qp->peer && acks(r, qp))
			why = because("RETRY_EXC_ERR later", "%zu",
				      acks(r, qp));
		else if (!qp->peer || qp->peer->side == qp->side ||
			 !takes_receive(post) ||
			 r->side[qp->peer->side].last < r->events[c->event].t ||
			 lost_its_gid(all, qp->peer->side))
			continue;
		else
			why = direction(r, qp, post);
		cause_restate(c, &why);
	}
}

// SPDX-License-Identifier: MIT
/*
 * direction.c —— 没有 ACK：丢的是去的包，还是回来的 ACK
 */
#include "rules.h"

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

		if (strcmp(c->id, "RETRY_EXC_ERR") || !post || !qp)
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

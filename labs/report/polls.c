// SPDX-License-Identifier: MIT
/*
 * polls.c —— 谁在看一个 CQ：poll 着，睡在它的 channel 上，或者 arm 了它等 fd
 *
 * 不留下记录的事（poll 了而没有、睡着）在线程的 slot 里：隔一会儿看两次，数字涨了，就是在 poll。
 */
#include "look.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SECOND	 1000000000u
#define RECENTLY SECOND /* 一个 poll 着的线程，这么久里总会 poll */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

void look_sample(const struct view *view, struct samples *samples)
{
	struct thread_slot *slot = NULL;
	uint64_t now = now_ns(), polls;
	size_t i = 0;

	for (; i < MOST_SLOTS && (slot = view_slot(view, slot)); i++) {
		polls = atomic_load(&slot->polls);
		if (i < samples->n && polls != samples->of[i].polls)
			samples->of[i].changed = now;
		samples->of[i].polls = polls;
	}
	samples->n = i;
}

bool look_polls(const struct samples *samples)
{
	uint64_t now = now_ns();

	for (size_t i = 0; i < samples->n; i++)
		if (samples->of[i].changed + RECENTLY > now)
			return true;
	return false;
}

static void take_slots(struct account *a)
{
	const struct samples *before = &a->samples;
	struct thread_slot *slot = NULL;

	for (; a->n < MOST_SLOTS && (slot = view_slot(a->view, slot)); a->n++) {
		struct doing *d = &a->doing[a->n];

		if (a->n < before->n)
			d->polling =
				before->of[a->n].changed + RECENTLY > a->now ||
				atomic_load(&slot->polls) !=
					before->of[a->n].polls;
		d->tid = atomic_load(&slot->tid);
		d->polled = atomic_load(&slot->polled);
		d->sleeps = atomic_load(&slot->sleeps);
		d->open = atomic_load(&slot->open);
		snprintf(d->in, sizeof(d->in), "%.31s", view_call(slot));
	}
}

static bool anyone_polls(const struct account *a)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->doing[i].polling)
			return true;
	return false;
}

/* 机器忙的时候，poll 着的线程有一阵轮不到：没有看见谁 poll，就多等一会儿。*/
void look_for_polls(struct account *a)
{
	const struct timespec nap = { .tv_nsec = SECOND / 10 };

	for (int i = 0; i < 10; i++) {
		a->n = 0;
		take_slots(a);
		if (anyone_polls(a))
			return;
		nanosleep(&nap, NULL);
	}
}

pid_t who_polls(const struct account *a, const void *cq)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->doing[i].polling && a->doing[i].tid &&
		    a->doing[i].polled == (uintptr_t)cq)
			return a->doing[i].tid;
	return 0;
}

pid_t who_sleeps(const struct account *a, const void *channel)
{
	for (size_t i = 0; channel && i < a->n; i++)
		if (a->doing[i].tid && a->doing[i].sleeps == (uintptr_t)channel)
			return a->doing[i].tid;
	return 0;
}

/*
 * 不一定非要睡在 ibv_get_cq_event 里：事件循环等的是 channel 的 fd（poll、epoll），那是
 * 记录不到的。但 fd 上有没有一个没人取的事件，看一眼就知道，看的时候不取走。
 */
bool event_lies_there(const struct account *a, const void *channel)
{
	const struct object *object = object_find(OBJECT_CHANNEL, channel);
	const struct report *r = a->r;

	EACH(i, &r->side[a->side].own) {
		json_t *line;
		bool it;
		int fd;

		if (!object || strcmp(r->events[i].ev, "create_comp_channel"))
			continue;
		line = event_line(r, &r->events[i]);
		it = number_in(line, "channel") == object->id &&
		     json_object_get(line, "fd");
		fd = (int)number_in(line, "fd");
		json_decref(line);
		if (it)
			return proc_readable(a->view->pid, fd);
	}
	return false;
}

bool is_armed(const struct object *cq)
{
	return cq->channel && cq->armed && cq->armed >= cq->event;
}

/* 有人在看这个 CQ：poll 着，睡在它的 channel 上，或者 arm 了它等 fd。*/
bool cq_is_watched(const struct account *a, const void *cq)
{
	const struct object *object = object_find(OBJECT_CQ, cq);

	return object && (who_polls(a, cq) || who_sleeps(a, object->channel) ||
			  is_armed(object));
}

/* 该看 @right，而大家只看着同一个 QP 的另一个 CQ。*/
const void *watched_instead(const struct account *a, const struct object *qp,
			    const void *right)
{
	const void *other = qp->send_cq == right ? qp->recv_cq : qp->send_cq;

	return !cq_is_watched(a, right) && cq_is_watched(a, other) ? other
								   : right;
}

// SPDX-License-Identifier: MIT
/*
 * threads.c —— 各个线程最后停在哪里，这一边走到了哪一步
 *
 * 线程停在哪个系统调用里，看着的人在停顿时写了（proc.c）。
 */
#include "rules.h"

#include <string.h>

bool is_work(const struct event *e)
{
	return e->class == CLASS_POST_SEND || e->class == CLASS_POST_RECV ||
	       went_well(e);
}

/* 收尾不算：停下之后再没有发、没有收到、没有连。*/
static bool is_progress(const struct report *r, const struct event *e)
{
	if (e->t > r->side[e->side].last - END_NS)
		return false;
	return is_work(e) || !strcmp(e->ev, "modify_qp");
}

/*
 * @side 最后停在哪里：主线程的那一行，而且此后它什么也没有再做成。NULL：没有停。用完要
 * json_decref。
 */
json_t *stopped_at(const struct report *r, int side, size_t *where)
{
	json_int_t pid = (json_int_t)number_in(r->side[side].start, "pid");
	const struct list *own = &r->side[side].own;

	if (!gave_up(&r->side[side]))
		return NULL;
	for (size_t k = own->count; k-- > 0;) {
		const struct event *e = &r->events[own->at[k]];
		json_t *line;

		if (is_progress(r, e))
			return NULL;
		if (strcmp(e->ev, "thread"))
			continue;
		line = event_line(r, e);
		*where = own->at[k];
		if ((json_int_t)number_in(line, "thread") == pid)
			return line;
		json_decref(line);
	}
	return NULL;
}

bool side_went_up(const struct report *r, int side)
{
	EACH(i, &r->side[side].own)
		if (r->events[i].class == CLASS_POST_SEND ||
		    r->events[i].class == CLASS_COMPLETION)
			return true;
	return false;
}

/* @side 停下之后，有没有一个线程（不一定是主线程）在 @verb 里。*/
bool any_thread_in(const struct report *r, int side, const char *verb)
{
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		if (strcmp(verb, "get_cq_event")
			    ? !strcmp(e->ev, "thread") &&
				      event_says(r, e, "verb", verb)
			    : sleeps_for_event(r, e))
			return true;
	}
	return false;
}

/* 不用 ibv_get_cq_event、自己读 fd 的也算；睡在 ibv_get_async_event 里的不算。*/
bool sleeps_for_event(const struct report *r, const struct event *e)
{
	return !strcmp(e->ev, "thread") &&
	       (event_says(r, e, "verb", "get_cq_event") ||
		(event_says(r, e, "on", "[infinibandevent]") &&
		 event_says(r, e, "verb", "")));
}

bool is_waiting_for_completion(const struct report *r, int side)
{
	return any_thread_in(r, side, "poll_cq") ||
	       any_thread_in(r, side, "get_cq_event");
}

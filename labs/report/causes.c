// SPDX-License-Identifier: MIT
/*
 * causes.c —— 记录里说过的原因，排好次序：先看哪一个
 *
 * 一次失败可以被说许多遍：坏 completion 的解释、每一次停顿、收下时的警告。同一侧、同一个
 * QP、同一个 id 的算一个。真失败了的在前，只是在等的在后，只是“以后会出事”的更后；别处
 * 失败所引起的（“对端的 QP 不见了”）排在最后：照着它去查，查到的是后果。
 */
#include "rules.h"

#include "base/array.h"
#include "explain/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- 凭据 ------------------------------------------------------------------ */

static size_t completion_before(const struct report *r, size_t i)
{
	const struct event *told = &r->events[i];

	while (i-- > 0) {
		const struct event *e = &r->events[i];

		if (e->side == told->side && e->qp == told->qp &&
		    e->class == CLASS_COMPLETION &&
		    !strcmp(e->status, told->status))
			return i;
	}
	return NOWHERE;
}

/* @i 以前最近的一个 @ev，同一个 QP 的；@n 不是 0，就要是那个编号的。*/
static size_t latest(const struct report *r, size_t i, const char *ev,
		     uint64_t n)
{
	const struct event *told = &r->events[i];

	while (i-- > 0) {
		const struct event *e = &r->events[i];

		if (e->side == told->side && e->qp == told->qp &&
		    (!n || e->n == n) && !strcmp(e->ev, ev))
			return i;
	}
	return NOWHERE;
}

static void prove(struct cause *cause, size_t event)
{
	if (event != NOWHERE)
		cause->proof[cause->proofs++] = event;
}

static void find_proof(const struct report *r, struct cause *cause)
{
	const struct event *told = &r->events[cause->event];
	const char *about = text_in(cause->line, "about");
	uint64_t send = number_in(cause->line, "oldest_send");
	uint64_t receive = number_in(cause->line, "oldest_receive");

	if (!strcmp(about, "completion")) {
		size_t bad = completion_before(r, cause->event);

		if (bad != NOWHERE)
			prove(cause, r->events[bad].cause);
		prove(cause, bad);
	} else if (!strcmp(about, "post")) {
		prove(cause, latest(r, cause->event, "post_failed", 0));
	} else if (!strcmp(told->ev, "warning")) {
		prove(cause, latest(r, cause->event, "modify_qp", 0));
	} else {
		if (receive)
			prove(cause,
			      latest(r, cause->event, "post_recv", receive));
		if (send)
			prove(cause,
			      latest(r, cause->event, "post_send", send));
	}
}

/* ---- 归并与排序 ------------------------------------------------------------- */

static enum cause_kind kind_of(const struct event *event)
{
	if (!strcmp(event->ev, "warning"))
		return CAUSE_WARNING;
	return strcmp(event->ev, "stall") ? CAUSE_FAILURE : CAUSE_STALL;
}

/* 警告过 rdma_destroy_id 也许不返回，而它返回了：librdmacm 自己 ack 了（rsockets），或别的线程。*/
static bool came_back(const struct report *r, size_t warning,
		      const json_t *line)
{
	const struct event *e = &r->events[warning];

	if (strcmp(text_in(line, "id"), "cm-event-not-acked"))
		return false;
	EACH(i, &r->side[e->side].own)
		if (returned_at(r, &r->events[i]) >= e->t &&
		    (!strcmp(r->events[i].ev, "rdma_destroy_id") ||
		     !strcmp(r->events[i].ev, "rdma_migrate_id")) &&
		    event_number(r, &r->events[i], "cm_id") ==
			    number_in(line, "cm_id"))
			return true;
	return false;
}

/* 警告过没有等到（EINTR、EAGAIN），而同一种事件后来取到了：程序没有当成失败。*/
static bool went_on(const struct report *r, size_t warning, const json_t *line)
{
	const char *ev = strstr(text_in(line, "args"), "cm_event")
				 ? "rdma_event"
				 : "cq_event";
	const struct event *e = &r->events[warning];

	return !strncmp(text_in(line, "id"), "wait-", 5) &&
	       is_after(last_event(r, e->side, ev, NULL), warning);
}

/* 打听时的失败是要的答案；post_failed 后面总跟着它的解释。*/
static bool tells(const struct report *r, size_t i, const json_t *line)
{
	const struct event *event = &r->events[i];

	if (!strcmp(event->ev, "warning"))
		return !came_back(r, i, line) && !went_on(r, i, line);
	return event->class == CLASS_FAILURE &&
	       strcmp(event->ev, "post_failed") &&
	       strcmp(text_in(line, "id"), EXPLAIN_PROBE);
}

static struct cause *known(struct causes *all, const struct cause *new)
{
	for (size_t i = 0; i < all->count; i++) {
		struct cause *c = &all->items[i];

		if (c->side == new->side && c->qp == new->qp &&
		    !strcmp(c->id, new->id) &&
		    (*text_in(new->line, "id") ||
		     !strcmp(text_in(c->line, "ev"), text_in(new->line, "ev"))))
			return c;
	}
	return NULL;
}

/* 警告过、后来真失败了：是失败，凭据也是失败的那一次。*/
static void merge(struct causes *all, struct cause *new)
{
	struct cause *old = known(all, new), *more;

	if (old) {
		new->times += old->times;
		if (new->kind < old->kind) {
			json_decref(old->line);
			*old = *new;
		} else {
			old->times = new->times;
			json_decref(new->line);
		}
		return;
	}
	more = array_room(all->items, all->count, sizeof(*more));
	if (!more)
		return;
	all->items = more;
	all->items[all->count++] = *new;
}

/* 程序跑着时写下的原因，叫每个进程“pid 1234”（load.c）；这里它是 A 或 B。*/
static void name_sides(const struct report *r, json_t *line)
{
	const char *text = text_in(line, "args");
	char renamed[1024];
	size_t used = 0;

	if (r->by || !strstr(text, "pid "))
		return;
	while (*text && used < sizeof(renamed) - sizeof(r->side[0].name)) {
		char *end = (char *)text;
		int s = r->sides;

		if (!strncmp(text, "pid ", 4))
			for (s = 0; s < r->sides; s++)
				if ((long)number_in(r->side[s].start, "pid") ==
				    strtol(text + 4, &end, 10))
					break;
		if (s < r->sides) {
			used += (size_t)sprintf(renamed + used, "%s",
						r->side[s].name);
			text = end;
		} else {
			renamed[used++] = *text++;
		}
	}
	renamed[used] = '\0';
	json_object_set_new(line, "args", json_string(renamed));
}

static void take(const struct report *r, size_t i, struct causes *all)
{
	const struct event *event = &r->events[i];
	json_t *line;
	const char *id;
	struct cause new;

	if (event->class != CLASS_FAILURE && strcmp(event->ev, "warning"))
		return;
	line = event_line(r, event);
	if (!tells(r, i, line)) {
		json_decref(line);
		return;
	}
	name_sides(r, line);
	id = text_in(line, "id");
	new = (struct cause){ .kind = kind_of(event),
			      .side = event->side,
			      .qp = event->qp,
			      .line = line,
			      .event = i,
			      .times = 1 };
	snprintf(new.id, sizeof(new.id), "%s",
		 *id ? id : text_in(line, "errname"));
	memcpy(new.told, new.id, sizeof(new.told));
	merge(all, &new);
}

/* 等着，而等的是什么，一句也没有说。*/
static bool says_little(const struct cause *cause)
{
	static const char *const ids[] = { "nothing-came", "no-completion",
					   "sent-or-not-taken" };

	return IS_ONE_OF(cause->id, ids);
}

/* 等到了的，排在警告之后：那个还会出事。*/
static int order_of(const struct cause *cause)
{
	return 2 * (int)(cause->over ? CAUSE_WARNING : cause->kind) +
	       cause->over;
}

static int by_kind(const void *a, const void *b)
{
	const struct cause *x = a, *y = b;

	if (order_of(x) != order_of(y))
		return order_of(x) - order_of(y);
	if (x->proven != y->proven)
		return x->proven ? -1 : 1;
	if (says_little(x) != says_little(y))
		return says_little(x) ? 1 : -1;
	return x->event < y->event ? -1 : 1;
}

void report_judge(struct report *r)
{
	struct causes *all = &r->causes;

	for (size_t i = 0; i < r->count; i++)
		take(r, i, all);
	for (size_t i = 0; i < all->count; i++)
		find_proof(r, &all->items[i]);
	report_blame(r, all);
	if (all->count)
		qsort(all->items, all->count, sizeof(*all->items), by_kind);
}

size_t cause_rank(const struct report *r, const struct event *event)
{
	json_t *line = event_line(r, event);
	const char *id = text_in(line, "id");
	size_t rank = 0;

	if (!*id)
		id = text_in(line, "errname");
	for (size_t i = 0; i < r->causes.count && !rank; i++) {
		const struct cause *c = &r->causes.items[i];

		if (c->side == event->side && c->qp == event->qp &&
		    !strcmp(c->told, id))
			rank = i + 1;
	}
	json_decref(line);
	return rank;
}

bool cause_is_sure(const struct cause *cause)
{
	return cause->kind == CAUSE_FAILURE || cause->kind == CAUSE_STALL;
}

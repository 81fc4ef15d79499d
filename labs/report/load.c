// SPDX-License-Identifier: MIT
/*
 * load.c —— 读几份记录，放到同一条时间轴上
 *
 * 文件里只有当时发生的事：哪个地址的 QP，哪个 wr_id。谁是第几号、哪个 completion 了结了哪一次
 * post，由那本账（book.c）从头记一遍得出。
 *
 * 两个进程各有各的 monotonic 时间。同一次开机（boot_id 相同）的，原点也相同，直接
 * 比较，精确到纳秒；不同机器的只能靠 wall clock，精度是两台机器时钟的差。
 */
#include "live.h"

#include "base/report.h"
#include "base/verbs_names.h"
#include "book.h"
#include "explain/explain.h"
#include "explain/qp_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t number_in(const json_t *line, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(line, key));
}

const char *text_in(const json_t *line, const char *key)
{
	const char *text = json_string_value(json_object_get(line, key));

	return text ? text : "";
}

uint64_t event_number(const struct report *r, const struct event *event,
		      const char *key)
{
	json_t *line = event_line(r, event);
	uint64_t number = number_in(line, key);

	json_decref(line);
	return number;
}

bool event_says(const struct report *r, const struct event *event,
		const char *key, const char *text)
{
	json_t *line = event_line(r, event);
	bool says = !strcmp(text_in(line, key), text);

	json_decref(line);
	return says;
}

/* ---- 账 -------------------------------------------------------------------- */

/* 记录器认得的对象，每次提到都带着号码与地址：第一次就登记。*/
static struct object *meet(const struct member *m)
{
	struct member_object told;
	struct object *object;
	const void *pointer;

	memcpy(&told, m->value, sizeof(told));
	pointer = (const void *)(uintptr_t)told.pointer;
	if (!told.id || told.kind >= OBJECT_KINDS || !pointer)
		return NULL;
	object = object_find(told.kind, pointer);
	if (object && object->id != told.id) {
		object_free(object_detach(told.kind, pointer));
		object = NULL;
	}
	if (!object)
		object = object_add(
			told.kind, pointer,
			(struct ibv_context *)(uintptr_t)told.context);
	if (object)
		object->id = told.id;
	return object;
}

static const void *pointer_in(const struct recorded *item, const char *key)
{
	struct member_object told;
	struct member m;

	if (!recorded_member(item, key, &m) || m.type != MEMBER_OBJECT ||
	    m.size < sizeof(told))
		return NULL;
	memcpy(&told, m.value, sizeof(told));
	return (const void *)(uintptr_t)told.pointer;
}

static void learn_qp(struct object *qp, const struct recorded *item)
{
	object_set_qpn(qp, (uint32_t)recorded_number(item, "qpn"));
	qp->type = IBV_QPT_RC;
	if (!strcmp(recorded_text(item, "type"), "UD"))
		qp->type = IBV_QPT_UD;
	qp->sq_sig_all = recorded_number(item, "sq_sig_all");
	qp->send_cq = pointer_in(item, "send_cq");
	qp->recv_cq = pointer_in(item, "recv_cq");
	qp->srq = pointer_in(item, "srq");
}

/* 一个 event 改变的账。*/
static void book_event(const struct recorded *item, const char *ev)
{
	struct object *object = NULL, *one;
	struct member m = { 0 };

	while (member_next(&m, item))
		if (m.type == MEMBER_OBJECT &&
		    m.size >= sizeof(struct member_object)) {
			one = meet(&m);
			if (!object)
				object = one;
		}
	if (!object || recorded_number(item, "err"))
		return;
	if (!strcmp(ev, "create_qp"))
		learn_qp(object, item);
	else if (!strcmp(ev, "create_cq"))
		object->channel = pointer_in(item, "channel");
	else if (!strcmp(ev, "modify_qp") &&
		 !strcmp(recorded_text(item, "to"), "RESET"))
		objects_reset_qp(object);
	else if (!strncmp(ev, "destroy_", 8) || !strncmp(ev, "dealloc_", 8) ||
		 !strcmp(ev, "dereg_mr") || !strcmp(ev, "close_device"))
		object_bury(object_detach(object->kind, object->pointer));
}

/* ---- 事件 ------------------------------------------------------------------ */

/* 几十种说法，几十万个事件：每种只留一份。*/
static const char *word(struct report *r, const char *text)
{
	json_t *kept = json_object_get(r->words, text);

	if (!kept) {
		json_object_set_new(r->words, text, json_string(text));
		kept = json_object_get(r->words, text);
	}
	return kept ? json_string_value(kept) : "";
}

static enum event_class classify(const char *ev, const struct recorded *item)
{
	/* 收下了的值，多数时候什么也没有发生；打听时的失败是要的答案。*/
	if (!strcmp(ev, "warning") ||
	    !strcmp(recorded_text(item, "id"), EXPLAIN_PROBE))
		return CLASS_CONTROL;
	if (recorded_text(item, "id")[0] || recorded_text(item, "cause")[0] ||
	    recorded_number(item, "err"))
		return CLASS_FAILURE;
	return strcmp(ev, "query_qp") ? CLASS_CONTROL : CLASS_QUIET;
}

/* 用的是一个已经拆掉的。*/
static void used_after(struct event *event, uint64_t pointer)
{
	const struct object *object =
		object_dead((const void *)(uintptr_t)pointer);

	if (!object || object_find(object->kind, object->pointer))
		return;
	event->late = true;
	event->owner = object->id;
	event->owner_kind = (uint8_t)object->kind;
	event->qpn = object->qpn;
}

static void set_event(struct report *r, struct event *event,
		      const struct recorded *item)
{
	struct side *side = &r->side[event->side];
	struct member code;

	event->ev = word(r, recorded_text(item, "ev"));
	book_event(item, event->ev);
	event->status = word(r, recorded_text(item, "status"));
	event->op = word(r, recorded_text(item, "op"));
	event->qp = (uint32_t)recorded_number(item, "qp");
	event->class = (uint8_t)classify(event->ev, item);
	if (!strcmp(event->ev, "signal")) {
		side->signalled = true;
		used_after(event, recorded_number(item, "polled"));
	}
	if (strcmp(event->ev, "exit") != 0)
		return;
	side->ended = true;
	side->code = recorded_member(item, "code", &code)
			     ? (int)member_number(&code)
			     : -1;
}

static const enum event_class record_classes[] = {
	[RECORD_POST_SEND] = CLASS_POST_SEND,
	[RECORD_POST_RECV] = CLASS_POST_RECV,
	[RECORD_POST_SRQ_RECV] = CLASS_POST_RECV,
	[RECORD_POST_FAILED] = CLASS_FAILURE,
	[RECORD_COMPLETION] = CLASS_COMPLETION,
	[RECORD_ARM] = CLASS_QUIET,
	[RECORD_CQ_EVENT] = CLASS_QUIET,
	[RECORD_ACK] = CLASS_QUIET,
};

static void set_record(struct report *r, struct event *event,
		       const struct recorded *item)
{
	struct object *owner = NULL;
	struct record record;
	uint64_t number;

	memcpy(&record, item->at, sizeof(record));
	if (record.kind > RECORD_ACK)
		record.kind = RECORD_ARM;
	number = objects_book(&record, (uint64_t)event->t, &owner);
	event->ev = word(r, record_name(&record));
	event->op = word(r, record_op(&record));
	event->status = word(r, record.kind == RECORD_COMPLETION
					? record_status(&record)
					: "");
	event->class = (uint8_t)record_classes[record.kind];
	if (record.kind == RECORD_COMPLETION)
		event->of = (uint32_t)number;
	else
		event->n = (uint32_t)number;
	if (owner) {
		event->owner = owner->id;
		event->owner_kind = (uint8_t)owner->kind;
		event->qpn = owner->qpn;
		event->qp = owner->kind == OBJECT_QP ? owner->id : 0;
	}
	if (!owner && record.kind <= RECORD_ARM)
		used_after(event, record.object);
	event->remote_qpn = record.kind == RECORD_POST_SEND ? record.remote : 0;
	if (record.kind == RECORD_COMPLETION)
		event->cq = object_id(OBJECT_CQ,
				      (const void *)(uintptr_t)record.object);
}

static void add_event(struct report *r, int side, struct place place)
{
	const struct recording *rec = &r->side[side].rec;
	const struct recorded item = recording_at(rec, place);
	struct event *event = &r->events[r->count++];

	*event = (struct event){
		.place = place,
		.line = (uint32_t)++r->side[side].events,
		.side = (uint16_t)side,
		.t = recording_time(rec, item.stamp),
		.cause = NOWHERE,
		.arrival = NOWHERE,
		.complete = NOWHERE,
		.kept = true,
	};
	if (item.members)
		set_event(r, event, &item);
	else
		set_record(r, event, &item);
}

static int add_events(struct report *r, int side)
{
	struct recording *rec = &r->side[side].rec;
	size_t all = r->count + rec->count;
	struct event *more = realloc(r->events, all * sizeof(*more) + 1);

	if (!more || all >= NOWHERE)
		return fail(-1, "record less: --control-only, --last",
			    "no memory for %zu events", all);
	r->events = more;
	for (size_t i = 0; i < rec->count; i++)
		add_event(r, side, rec->places[i]);
	free(rec->places);
	rec->places = NULL;
	return 0;
}

static int load_side(struct report *r, int side, const char *path)
{
	struct side *s = &r->side[side];
	size_t first = r->count;

	s->path = path;
	if (recording_load(&s->rec, path, watched_bytes(r->by, path)))
		return -1;
	objects_forget();
	if (add_events(r, side))
		return -1;
	s->lost = s->rec.lost + s->rec.header.events_lost;
	s->gone = s->rec.header.records_lost;
	if (!s->events)
		return fail(-1, "did the program use libibverbs at all?",
			    "%s holds no events", path);
	while (first < r->count && strcmp(r->events[first].ev, "start") != 0)
		first++;
	if (first < r->count)
		s->start = event_line(r, &r->events[first]);
	return 0;
}

static int64_t wall_minus_monotonic(const struct report *r, int side)
{
	return recording_wall(&r->side[side].rec, 0);
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->t != y->t)
		return x->t < y->t ? -1 : 1;
	/* 同一时刻：按文件里的次序。*/
	return x->cause < y->cause ? -1 : x->cause > y->cause;
}

static void align(struct report *r)
{
	int64_t zero = INT64_MAX;

	for (int s = 1; s < r->sides; s++)
		if (strcmp(text_in(r->side[0].start, "boot"),
			   text_in(r->side[s].start, "boot")))
			r->side[s].shift = wall_minus_monotonic(r, s) -
					   wall_minus_monotonic(r, 0);
	for (size_t i = 0; i < r->count; i++) {
		struct event *event = &r->events[i];

		event->t += r->side[event->side].shift;
		event->cause = (uint32_t)i; /* 排序时作次序用，随后还原 */
		if (event->t < zero)
			zero = event->t;
	}
	qsort(r->events, r->count, sizeof(*r->events), by_time);
	r->zero = zero;
	for (int s = 0; s < r->sides; s++)
		r->side[s].first = INT64_MAX;
	for (size_t i = 0; i < r->count; i++) {
		struct event *event = &r->events[i];
		struct side *side = &r->side[event->side];

		event->cause = NOWHERE;
		event->t -= zero;
		if (event->t < side->first)
			side->first = event->t;
		side->last = event->t;
	}
}

/* "A" ... "Z", "AA" ... */
static void name_side(struct report *r, int number)
{
	struct side *side = &r->side[number];
	char *at = side->name + sizeof(side->name) - 1;

	if (r->by) {
		snprintf(side->name, sizeof(side->name), "pid %d",
			 (int)side->rec.header.pid);
		return;
	}

	for (number++; number; number = (number - 1) / 26)
		*--at = (char)('A' + (number - 1) % 26);
	memmove(side->name, at, strlen(at) + 1);
}

/* 一千份里有一份读不了，别的照看；只有一两份的，就是它。*/
int report_load(struct report *r, char **paths, int count)
{
	r->words = json_object();
	r->side = calloc((size_t)count + 1, sizeof(*r->side));
	if (!r->side)
		return fail(-1, NULL, "no memory for %d recordings", count);
	for (int i = 0; i < count; i++) {
		size_t before = r->count;

		if (!load_side(r, r->sides, paths[i])) {
			name_side(r, r->sides);
			r->sides++;
			continue;
		}
		if (count <= 2 && !r->by)
			return -1;
		r->count = before;
		memset(&r->side[r->sides], 0, sizeof(*r->side));
	}
	if (count && !r->sides)
		return -1;
	align(r);
	return 0;
}

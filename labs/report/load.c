// SPDX-License-Identifier: MIT
/*
 * load.c —— 读一份或两份记录，放到同一条时间轴上
 *
 * 两个进程各有各的 monotonic 时间。同一次开机（boot_id 相同）的，原点也相同，直接
 * 比较，精确到纳秒；不同机器的只能靠 wall clock，精度是两台机器时钟的差。
 */
#include "parts.h"

#include "base/array.h"
#include "base/report.h"
#include "explain/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t event_number(const struct event *event, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(event->json, key));
}

static const char *text_of(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));

	return text ? text : "";
}

const char *event_text(const struct event *event, const char *key)
{
	return text_of(event->json, key);
}

bool event_is_probe(const struct event *event)
{
	return !strcmp(event_text(event, "id"), EXPLAIN_PROBE);
}

static enum event_class classify(const struct event *event)
{
	const char *ev = event->ev;

	/* 收下了的值，多数时候什么也没有发生；打听时的失败是要的答案。*/
	if (!strcmp(ev, "warning") || event_is_probe(event))
		return CLASS_CONTROL;
	if (event_text(event, "cause")[0] || !strcmp(ev, "post_failed") ||
	    event_number(event, "err"))
		return CLASS_FAILURE;
	if (!strcmp(ev, "post_send"))
		return CLASS_POST_SEND;
	if (!strcmp(ev, "post_recv") || !strcmp(ev, "post_srq_recv"))
		return CLASS_POST_RECV;
	if (!strcmp(ev, "completion"))
		return CLASS_COMPLETION;
	if (!strcmp(ev, "arm") || !strcmp(ev, "cq_event") ||
	    !strcmp(ev, "query_qp"))
		return CLASS_QUIET;
	return CLASS_CONTROL;
}

static int add_event(struct report *r, int side, json_t *json)
{
	struct event *more = array_room(r->events, r->count, sizeof(*more));
	struct event *event;

	if (!more)
		return fail(-1, "record less: --control-only",
			    "no memory for %zu events", r->count + 1);
	r->events = more;
	event = &r->events[r->count++];
	*event = (struct event){
		.json = json,
		.side = side,
		.cause = NOWHERE,
		.arrival = NOWHERE,
		.complete = NOWHERE,
		.kept = true,
	};
	event->ev = event_text(event, "ev");
	event->t = (int64_t)event_number(event, "t");
	event->qp = event_number(event, "qp");
	event->class = classify(event);
	return 0;
}

/* 被 kill -9 的程序，最后一行可能只写了一半：那不是坏文件。*/
static int add_line(struct report *r, int side, const char *text, size_t number,
		    bool complete)
{
	json_error_t error;
	json_t *json = json_loads(text, 0, &error);

	if (json && json_is_object(json) &&
	    json_is_string(json_object_get(json, "ev")) &&
	    json_is_integer(json_object_get(json, "t"))) {
		r->side[side].events++;
		if (!r->side[side].start &&
		    !strcmp(json_string_value(json_object_get(json, "ev")),
			    "start"))
			r->side[side].start = json;
		return add_event(r, side, json);
	}
	json_decref(json);
	if (!complete) {
		r->side[side].lost++;
		return 0;
	}
	return fail(-1, "give files that labs/qptrace has written",
		    "%s, line %zu is no line of a recording: %s",
		    r->side[side].path, number,
		    json ? "\"ev\" or \"t\" is missing" : error.text);
}

static int load_side(struct report *r, int side, const char *path)
{
	FILE *in = fopen(path, "r");
	size_t size = 0, number = 0;
	char *text = NULL;
	ssize_t len;
	int rc = 0;

	if (!in)
		return fail(-1, NULL, "cannot open %s: %s", path,
			    strerror(errno));
	r->side[side].path = path;
	while (!rc && (len = getline(&text, &size, in)) > 0)
		rc = add_line(r, side, text, ++number, text[len - 1] == '\n');
	free(text);
	fclose(in);
	if (!rc && !r->side[side].events)
		return fail(-1, "did the program use libibverbs at all?",
			    "%s holds no events", path);
	return rc;
}

static int64_t wall_minus_monotonic(const struct report *r, int side)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->events[i].side == side)
			return (int64_t)event_number(&r->events[i], "wall") *
				       1000 -
			       r->events[i].t;
	return 0;
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->t != y->t)
		return x->t < y->t ? -1 : 1;
	/* 同一时刻：按文件里的次序（数组尚未重排时地址就是次序）。*/
	return x->json == y->json     ? 0
	       : x->cause != y->cause ? (x->cause < y->cause ? -1 : 1)
				      : 0;
}

static void align(struct report *r)
{
	int64_t zero = INT64_MAX;

	if (r->sides == 2 && strcmp(text_of(r->side[0].start, "boot"),
				    text_of(r->side[1].start, "boot")))
		r->side[1].shift =
			wall_minus_monotonic(r, 1) - wall_minus_monotonic(r, 0);
	for (size_t i = 0; i < r->count; i++) {
		struct event *event = &r->events[i];

		event->t += r->side[event->side].shift;
		event->cause = i; /* 排序时作次序用，随后还原 */
		if (event->t < zero)
			zero = event->t;
	}
	qsort(r->events, r->count, sizeof(*r->events), by_time);
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

int report_load(struct report *r, char **paths, int count)
{
	r->sides = count;
	for (int i = 0; i < count; i++)
		if (load_side(r, i, paths[i]))
			return -1;
	align(r);
	return 0;
}

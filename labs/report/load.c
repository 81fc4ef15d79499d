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

uint64_t number_in(const json_t *line, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(line, key));
}

const char *text_in(const json_t *line, const char *key)
{
	const char *text = json_string_value(json_object_get(line, key));

	return text ? text : "";
}

json_t *event_line(const struct report *r, const struct event *event)
{
	FILE *in = r->side[event->side].in;
	json_t *line = NULL;
	char *text = NULL;
	size_t size = 0;

	if (!fseeko(in, event->at, SEEK_SET) && getline(&text, &size, in) > 0)
		line = json_loads(text, 0, NULL);
	free(text);
	return line;
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

/* ---- 一行里的成员 ---------------------------------------------------------- */

enum member {
	EV,
	T,
	WALL,
	QP,
	N,
	OF,
	OP,
	STATUS,
	ERR,
	CAUSE,
	ID,
	REMOTE_QPN,
	CODE,
	MEMBERS,
};

struct value {
	char *text; /* 没有结尾的 NUL；NULL：是整数，或者没有这个成员 */
	size_t len;
	bool is_number;
	int64_t number;
};

/* 到另一个引号为止，返回它后面。*/
static char *scan_text(char *p, bool checked, struct value *value)
{
	if (*p++ != '"')
		return NULL;
	*value = (struct value){ .text = p };
	for (; *p != '"'; p++)
		if (*p == '\\' && p[1] &&
		    (checked || strchr("\"\\/bfnrt", p[1])))
			p++;
		else if ((signed char)*p < ' ' || *p == '\\')
			return NULL;
	value->len = (size_t)(p - value->text);
	return p + 1;
}

static char *scan_value(char *p, bool checked, struct value *value)
{
	const char *digits = p + (*p == '-');
	char *end;

	if (*p == '"')
		return scan_text(p, checked, value);
	if (*digits < '0' || *digits > '9' ||
	    (*digits == '0' && digits[1] >= '0' && digits[1] <= '9'))
		return NULL;
	errno = 0;
	*value = (struct value){ .is_number = true,
				 .number = strtoll(p, &end, 10) };
	return errno ? NULL : end;
}

static void take(struct value *members, const struct value *key,
		 const struct value *value)
{
	static const char *const names[MEMBERS] = {
		"ev",	  "t",	 "wall",  "qp", "n",	      "of",   "op",
		"status", "err", "cause", "id", "remote_qpn", "code",
	};

	for (int i = 0; i < MEMBERS; i++)
		if (!strncmp(names[i], key->text, key->len) &&
		    !names[i][key->len])
			members[i] = *value;
}

/*
 * 记录器写的行，几乎都只有整数与 ASCII：一遍看完，不必为每个成员 malloc。别的行返回 false，
 * @p 不变；它们先经 jansson（@checked），剩下的只会多些转义。
 */
static bool scan(char *p, bool checked, struct value *members)
{
	struct value key, value;

	memset(members, 0, MEMBERS * sizeof(*members));
	if (*p != '{')
		return false;
	do {
		p = scan_text(p + 1, checked, &key);
		p = p && *p == ':' ? scan_value(p + 1, checked, &value) : NULL;
		if (!p)
			return false;
		take(members, &key, &value);
	} while (*p == ',');
	if (*p != '}' || (p[1] && strcmp(p + 1, "\n") != 0))
		return false;
	for (int i = 0; i < MEMBERS; i++)
		if (members[i].text)
			members[i].text[members[i].len] = '\0';
	return true;
}

/* 同一行，只留整数与文本。NULL：不是 JSON。*/
static char *flatten(const char *text, json_error_t *error)
{
	json_t *json = json_loads(text, 0, error), *value;
	const char *key;
	char *flat;
	void *next;

	json_object_foreach_safe(json, next, key,
				 value) if (!json_is_string(value) &&
					    !json_is_integer(value))
		json_object_del(json, key);
	flat = json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(json);
	return flat;
}

/* ---- 事件 ------------------------------------------------------------------ */

/* 几十种说法，几十万行：每种只留一份。*/
static const char *word(struct report *r, const struct value *value)
{
	const char *text = value->text ? value->text : "";
	json_t *kept = json_object_get(r->words, text);

	if (!kept) {
		json_object_set_new(r->words, text, json_string(text));
		kept = json_object_get(r->words, text);
	}
	return kept ? json_string_value(kept) : "";
}

static enum event_class classify(const struct event *event,
				 const struct value *members)
{
	const char *ev = event->ev, *id = members[ID].text;

	/* 收下了的值，多数时候什么也没有发生；打听时的失败是要的答案。*/
	if (!strcmp(ev, "warning") || (id && !strcmp(id, EXPLAIN_PROBE)))
		return CLASS_CONTROL;
	if (members[CAUSE].len || !strcmp(ev, "post_failed") ||
	    members[ERR].number)
		return CLASS_FAILURE;
	if (!strcmp(ev, "post_send"))
		return CLASS_POST_SEND;
	if (!strcmp(ev, "post_recv") || !strcmp(ev, "post_srq_recv"))
		return CLASS_POST_RECV;
	if (!strcmp(ev, "completion"))
		return CLASS_COMPLETION;
	if (!strcmp(ev, "arm") || !strcmp(ev, "ack") ||
	    !strcmp(ev, "cq_event") || !strcmp(ev, "query_qp"))
		return CLASS_QUIET;
	return CLASS_CONTROL;
}

static int add_event(struct report *r, int side, int64_t at, size_t number,
		     const struct value *members)
{
	struct event *more = array_room(r->events, r->count, sizeof(*more));
	struct event *event;

	if (!more)
		return fail(-1, "record less: --control-only",
			    "no memory for %zu events", r->count + 1);
	r->events = more;
	event = &r->events[r->count++];
	*event = (struct event){
		.at = at,
		.line = number,
		.side = side,
		.t = members[T].number,
		.ev = word(r, &members[EV]),
		.op = word(r, &members[OP]),
		.status = word(r, &members[STATUS]),
		.qp = (uint64_t)members[QP].number,
		.n = (uint64_t)members[N].number,
		.of = (uint64_t)members[OF].number,
		.remote_qpn = (uint64_t)members[REMOTE_QPN].number,
		.cause = NOWHERE,
		.arrival = NOWHERE,
		.complete = NOWHERE,
		.kept = true,
	};
	event->class = classify(event, members);
	r->side[side].events++;
	if (!strcmp(event->ev, "exit"))
		r->side[side].ended = true;
	if (!strcmp(event->ev, "exit"))
		r->side[side].code = members[CODE].is_number
					     ? (int)members[CODE].number
					     : -1;
	if (!strcmp(event->ev, "signal"))
		r->side[side].signalled = true;
	return 0;
}

/* 在这以内，两台机器的时间怎么加减都不溢出（align）。*/
static bool is_time(const struct value *members)
{
	const int64_t t = members[T].number, wall = members[WALL].number;

	return t >= 0 && t < INT64_C(1) << 60 && wall >= 0 &&
	       wall < (INT64_C(1) << 62) / 1000;
}

/* 被 kill -9 的程序，最后一行可能只写了一半：那不是坏文件。*/
static int add_line(struct report *r, int side, int64_t at, char *text,
		    size_t number, bool complete)
{
	struct value members[MEMBERS];
	json_error_t error = { 0 };
	const char *wrong = NULL;
	char *flat = NULL;
	int rc = 0;

	if (!scan(text, false, members)) {
		flat = flatten(text, &error);
		if (!flat || !scan(flat, true, members))
			members[EV].text = NULL;
	}
	if (!members[EV].text || !members[T].is_number)
		wrong = error.text[0] ? error.text
				      : "\"ev\" or \"t\" is missing";
	else if (!is_time(members))
		wrong = "\"t\" or \"wall\" is no time";
	if (!wrong)
		rc = add_event(r, side, at, number, members);
	else if (!complete)
		r->side[side].lost++;
	else
		rc = fail(-1, "give files that labs/qptrace has written",
			  "%s, line %zu is no line of a recording: %s",
			  r->side[side].path, number, wrong);
	free(flat);
	return rc;
}

/* 各行以后还要再读：管道里来的（zcat 旧的记录）先存下。*/
static FILE *open_side(const char *path)
{
	FILE *in = fopen(path, "r"), *copy;
	char some[4096];
	size_t n;

	if (!in || !fseeko(in, 0, SEEK_CUR))
		return in;
	copy = tmpfile();
	while (copy && (n = fread(some, 1, sizeof(some), in)) > 0)
		fwrite(some, 1, n, copy);
	if (copy && (ferror(in) || fseeko(copy, 0, SEEK_SET))) {
		fclose(copy);
		copy = NULL;
	}
	fclose(in);
	return copy;
}

static int load_side(struct report *r, int side, const char *path)
{
	FILE *in = open_side(path);
	size_t size = 0, number = 0, first = r->count;
	char *text = NULL;
	int64_t at = 0;
	ssize_t len;
	int rc = 0;

	if (!in)
		return fail(-1, NULL, "cannot open %s: %s", path,
			    strerror(errno));
	r->side[side].path = path;
	r->side[side].in = in;
	for (; !rc && (len = getline(&text, &size, in)) > 0; at += len)
		rc = add_line(r, side, at, text, ++number,
			      text[len - 1] == '\n');
	if (!rc && ferror(in))
		rc = fail(-1, "give it the file that qptrace has written",
			  "reading %s: %s", path, strerror(errno));
	free(text);
	if (!rc && !r->side[side].events)
		return fail(-1, "did the program use libibverbs at all?",
			    "%s holds no events", path);
	while (first < r->count && strcmp(r->events[first].ev, "start") != 0)
		first++;
	if (!rc && first < r->count)
		r->side[side].start = event_line(r, &r->events[first]);
	return rc;
}

static int64_t wall_minus_monotonic(const struct report *r, int side)
{
	const struct event *first = r->events;

	while (first->side != side)
		first++;
	return (int64_t)event_number(r, first, "wall") * 1000 - first->t;
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

	if (r->sides == 2 && strcmp(text_in(r->side[0].start, "boot"),
				    text_in(r->side[1].start, "boot")))
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
	r->words = json_object();
	for (int i = 0; i < count; i++)
		if (load_side(r, i, paths[i]))
			return -1;
	align(r);
	return 0;
}

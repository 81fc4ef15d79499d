// SPDX-License-Identifier: MIT
/*
 * json.c —— 同一份报告（以及每个事件），给评分的程序与 CI 看；格式见 parts.h
 */
#include "parts.h"

#include "base/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *side_name(const struct report *r, int side)
{
	return json_string(r->side[side].name);
}

/* 命令行上的文件名、截断在半个字符处的文字，未必是 UTF-8；写出来的总是合法的 JSON。*/
static json_t *any_text(const char *text)
{
	json_t *json = json_string(text);
	char *plain;

	if (json)
		return json;
	plain = strdup(text);
	for (char *p = plain; p && *p; p++)
		if ((signed char)*p < 0)
			*p = '?';
	json = json_string(plain ? plain : "");
	free(plain);
	return json;
}

static json_int_t count_posts(const struct report *r, int side, bool arrived)
{
	json_int_t n = 0;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		n += !e->refused &&
		     (e->class == CLASS_POST_SEND ||
		      e->class == CLASS_POST_RECV) &&
		     (!arrived || e->arrival != NOWHERE);
	}
	return n;
}

static json_t *sides_of(const struct report *r)
{
	json_t *list = json_array();

	for (int s = 0; s < r->sides; s++) {
		const struct side *side = &r->side[s];
		const json_t *start = side->start;

		json_array_append_new(
			list,
			json_pack("{s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:b, "
				  "s:I, s:I}",
				  "side", side_name(r, s), "path",
				  any_text(side->path), "program",
				  text_in(start, "program"), "command",
				  text_in(start, "command"), "host",
				  text_in(start, "host"), "pid",
				  (json_int_t)number_in(start, "pid"), "events",
				  (json_int_t)side->events, "cut",
				  side->lost > 0, "posts",
				  count_posts(r, s, false), "arrived",
				  count_posts(r, s, true)));
	}
	return list;
}

static json_t *event_of(const struct report *r, size_t i)
{
	const struct event *event = &r->events[i];
	char text[DESCRIBED_SIZE];

	json_decref(event_describe(r, event, text));
	return json_pack("{s:o, s:I, s:I, s:s, s:o}", "side",
			 side_name(r, event->side), "line",
			 (json_int_t)event->line, "t", (json_int_t)event->t,
			 "ev", event->ev, "text", any_text(text));
}

static json_t *events_of(const struct report *r, const struct cause *cause)
{
	json_t *list = json_array();

	json_array_append_new(list, event_of(r, cause->event));
	for (size_t i = 0; i < cause->proofs; i++)
		json_array_append_new(list, event_of(r, cause->proof[i]));
	return list;
}

static json_t *lines_of(const char *text)
{
	json_t *list = json_array();

	while (*text) {
		size_t len = strcspn(text, "\n");

		json_array_append_new(list, json_stringn(text, len));
		text += len + (text[len] == '\n');
	}
	return list;
}

static void add_text(json_t *object, const char *key, const char *text)
{
	if (*text)
		json_object_set_new(object, key, json_string(text));
}

static json_t *cause_of(const struct report *r, const struct cause *cause,
			size_t rank)
{
	static const char *const kinds[CAUSE_KINDS] = {
		[CAUSE_FAILURE] = "failure",	 [CAUSE_STALL] = "stall",
		[CAUSE_HINT] = "hint",		 [CAUSE_WARNING] = "warning",
		[CAUSE_AFTERMATH] = "aftermath",
	};
	const char *errname = text_in(cause->line, "errname");
	json_t *object;

	report_speak(r, cause->line);
	object = json_pack("{s:I, s:s, s:s, s:s, s:o, s:s, s:I, s:o}", "rank",
			   (json_int_t)rank, "id", cause->id, "kind",
			   kinds[cause->kind], "certainty",
			   cause_is_sure(cause) ? "cause" : "hint", "side",
			   side_name(r, cause->side), "cause",
			   text_in(cause->line, "cause"), "times",
			   (json_int_t)cause->times, "events",
			   events_of(r, cause));

	if (json_object_get(cause->line, "qpn"))
		json_object_set(object, "qpn",
				json_object_get(cause->line, "qpn"));
	add_text(object, "call", text_in(cause->line, "call"));
	add_text(object, "error",
		 *errname ? errname : text_in(cause->line, "status"));
	add_text(object, "next", text_in(cause->line, "next"));
	if (json_object_get(cause->line, "seen"))
		json_object_set_new(object, "seen",
				    lines_of(text_in(cause->line, "seen")));
	return object;
}

json_t *report_causes_as_json(const struct report *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->causes.count; i++)
		json_array_append_new(list,
				      cause_of(r, &r->causes.items[i], i + 1));
	return list;
}

static json_t *differences_of(const struct report *r)
{
	struct belief rows[MAX_BELIEFS];
	json_t *list = json_array();
	char word[WORD_SIZE];

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *a = &r->qps[i];
		size_t n = 0;

		if (a->peer > a)
			n = report_beliefs(r, a, rows);
		for (size_t j = 0; j < n; j++)
			if (rows[j].differs)
				json_array_append_new(
					list,
					json_pack("{s:I, s:I, s:s, s:s, s:s, "
						  "s:s, s:s}",
						  "a", (json_int_t)a->qpn, "b",
						  (json_int_t)a->peer->qpn,
						  "a_side",
						  r->side[a->side].name,
						  "b_side",
						  r->side[a->peer->side].name,
						  "what",
						  report_word(r, word,
							      rows[j].what),
						  "a_says", rows[j].a, "b_says",
						  rows[j].b));
	}
	return list;
}

int report_as_json(const struct report *r)
{
	json_t *root =
		json_pack("{s:i, s:o, s:o, s:o}", "schema", 1, "sides",
			  sides_of(r), "causes", report_causes_as_json(r),
			  "differs", differences_of(r));
	int rc = root ? json_dumpf(root, stdout, JSON_INDENT(2)) : -1;

	json_decref(root);
	putchar('\n');
	return rc ? fail(-1, "record less: --control-only",
			 "no memory for the JSON")
		  : 0;
}

int report_dump(const struct report *r, bool in_words)
{
	json_t *line;

	for (size_t i = 0; i < r->count; i++) {
		line = event_line(r, &r->events[i]);
		if (in_words)
			report_speak(r, line);
		if (json_dumpf(line, stdout, JSON_COMPACT) || putchar('\n') < 0)
			return -1;
		json_decref(line);
	}
	return 0;
}

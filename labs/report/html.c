// SPDX-License-Identifier: MIT
/*
 * html.c —— 一页 HTML：模板 report.html 里的一个记号换成 JSON 数据
 *
 * 页面不引用任何外部资源，可以附在邮件里、离线打开。数据写在 <script> 里，所以其中
 * 的 "<" 要写成 \u003c：命令行参数里一个 "</script>" 就能结束它，一个 "<!--<script>" 则让
 * 它再也结束不了。数据是一段一段写的，多长的记录也不占内存。
 */
#include "parts.h"

#include "base/report.h"
#include "explain/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "/*DATA*/null"

static json_t *sides_of(const struct report *r)
{
	json_t *list = json_array();

	for (int s = 0; s < r->sides; s++) {
		const struct side *side = &r->side[s];

		json_array_append_new(
			list,
			json_pack("{s:s, s:b, s:s, s:O?, s:I, s:I, s:I, s:I}",
				  "name", side->name, "shown", (int)side->shown,
				  "path", side->path, "start", side->start,
				  "events", (json_int_t)side->events, "first",
				  (json_int_t)side->first, "last",
				  (json_int_t)side->last, "lost",
				  (json_int_t)side->lost));
	}
	return list;
}

static json_t *qps_of(const struct report *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		json_array_append_new(
			list,
			json_pack("{s:i, s:I, s:I, s:s, s:s, s:O, s:I, s:I, "
				  "s:I, s:I}",
				  "side", qp->side, "id", (json_int_t)qp->id,
				  "qpn", (json_int_t)qp->qpn, "type", qp->type,
				  "dev", qp->dev, "believes", qp->believes,
				  "sends", (json_int_t)qp->sends, "receives",
				  (json_int_t)qp->receives, "completions",
				  (json_int_t)qp->completions, "bad",
				  (json_int_t)qp->bad));
	}
	return list;
}

static json_t *rows_of(const struct report *r, const struct qp *a)
{
	char word[WORD_SIZE];
	struct belief rows[MAX_BELIEFS];
	size_t n = report_beliefs(r, a, rows);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:b}", "what",
					report_word(r, word, rows[i].what), "a",
					rows[i].a, "b", rows[i].b, "differs",
					(int)rows[i].differs));
	return list;
}

static json_t *pairs_of(const struct report *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *a = &r->qps[i];

		if (a->peer > a && r->side[a->side].shown)
			json_array_append_new(
				list, json_pack("{s:i, s:i, s:o}", "a", (int)i,
						"b", (int)(a->peer - r->qps),
						"rows", rows_of(r, a)));
	}
	return list;
}

/* 事件原来的下标 -> 页面里的下标；没有留下的是 null。*/
static json_t *place(const size_t *places, size_t index)
{
	return index == NOWHERE || places[index] == NOWHERE
		       ? json_null()
		       : json_integer((json_int_t)places[index]);
}

static json_t *event_of(const struct report *r, const struct event *event,
			const size_t *places)
{
	static const char *const classes[] = {
		[CLASS_CONTROL] = "control", [CLASS_POST_SEND] = "send",
		[CLASS_POST_RECV] = "recv",  [CLASS_COMPLETION] = "wc",
		[CLASS_QUIET] = "quiet",     [CLASS_FAILURE] = "failure",
	};
	char text[DESCRIBED_SIZE];
	json_t *line = event_describe(r, event, text);

	return json_pack("{s:i, s:I, s:s, s:s, s:o, s:o, s:o, s:b, s:o}",
			 "side", event->side, "t", (json_int_t)event->t, "kind",
			 classes[event->class], "text", text, "cause",
			 place(places, event->cause), "arrival",
			 place(places, event->arrival), "complete",
			 place(places, event->complete), "refused",
			 (int)event->refused, "raw",
			 line ? line : json_object());
}

/* "<" 只会在文本里。*/
static int write_escaped(const char *text, size_t size, void *out)
{
	for (size_t i = 0; i < size; i++)
		if (text[i] == '<')
			fputs("\\u003c", out);
		else
			putc(text[i], out);
	return 0;
}

/* @before，然后是 @json，它就此用完。*/
static void write_json(FILE *out, const char *before, json_t *json)
{
	fputs(before, out);
	json_dump_callback(json, write_escaped, out,
			   JSON_COMPACT | JSON_ENCODE_ANY);
	json_decref(json);
}

static void write_events(FILE *out, const struct report *r)
{
	size_t *places = calloc(r->count + 1, sizeof(*places));
	size_t n = 0;

	for (size_t i = 0; places && i < r->count; i++)
		places[i] = r->events[i].kept ? n++ : NOWHERE;
	n = 0;
	for (size_t i = 0; places && i < r->count; i++)
		if (r->events[i].kept)
			write_json(out, n++ ? "," : "",
				   event_of(r, &r->events[i], places));
	free(places);
}

static void write_data(FILE *out, const struct report *r)
{
	write_json(out, "{\"sides\":", sides_of(r));
	write_json(out, ",\"qps\":", qps_of(r));
	write_json(out, ",\"pairs\":", pairs_of(r));
	write_json(out, ",\"causes\":", report_causes_as_json(r));
	fputs(",\"events\":[", out);
	write_events(out, r);
	write_json(out, "],\"chinese\":", json_boolean(r->chinese));
	fprintf(out, ",\"left_out\":%zu}", r->left_out);
}

static char *read_all(const char *path)
{
	FILE *in = fopen(path, "r");
	char *text = NULL;
	size_t size = 0;

	if (!in || getdelim(&text, &size, '\0', in) < 0) {
		report_error("run it as labs/qptrace report",
			     "cannot read the page's template %s: %s", path,
			     strerror(errno));
		free(text);
		text = NULL;
	}
	if (in)
		fclose(in);
	return text;
}

int report_as_html(const struct report *r, const char *template_path,
		   const char *path)
{
	char *page = read_all(template_path);
	char *mark = page ? strstr(page, MARK) : NULL;
	FILE *out = mark ? fopen(path, "w") : NULL;
	int rc = -1;

	if (page && !mark)
		report_error(NULL, "%s has no place for the data",
			     template_path);
	if (mark && !out)
		report_error(NULL, "cannot write %s: %s", path,
			     strerror(errno));
	if (out) {
		fwrite(page, 1, (size_t)(mark - page), out);
		write_data(out, r);
		fputs(mark + strlen(MARK), out);
		rc = ferror(out) ? -1 : 0;
		if (fclose(out) || rc) {
			rc = -1;
			report_error("is the disk full?",
				     "%s could not be written", path);
		}
	}
	free(page);
	return rc;
}

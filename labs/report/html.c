// SPDX-License-Identifier: MIT
/*
 * html.c —— 一页 HTML：模板 report.html 里的一个记号换成 JSON 数据
 *
 * 页面不引用任何外部资源，可以附在邮件里、离线打开。数据写在 <script> 里，所以其中
 * 的 "</" 要写成 "<\/"，否则一个名叫 "</script>" 的命令行参数就能结束它。
 */
#include "parts.h"

#include "base/report.h"

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
			json_pack("{s:s, s:O?, s:I, s:I, s:I, s:I}", "path",
				  side->path, "start", side->start, "events",
				  (json_int_t)side->events, "first",
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

static json_t *rows_of(const struct qp *a)
{
	struct belief rows[MAX_BELIEFS];
	size_t n = report_beliefs(a, a->peer, rows);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:s, s:b}", "what",
						rows[i].what, "a", rows[i].a,
						"b", rows[i].b, "differs",
						(int)rows[i].differs));
	return list;
}

static json_t *pairs_of(const struct report *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *a = &r->qps[i];

		if (a->side == 0 && a->peer)
			json_array_append_new(list,
					      json_pack("{s:I, s:I, s:o}", "a",
							(json_int_t)a->id, "b",
							(json_int_t)a->peer->id,
							"rows", rows_of(a)));
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

static json_t *event_of(const struct event *event, const size_t *places)
{
	static const char *const classes[] = {
		[CLASS_CONTROL] = "control", [CLASS_POST_SEND] = "send",
		[CLASS_POST_RECV] = "recv",  [CLASS_COMPLETION] = "wc",
		[CLASS_QUIET] = "quiet",     [CLASS_FAILURE] = "failure",
	};
	char text[600];

	event_describe(event, text, sizeof(text));
	return json_pack("{s:i, s:I, s:s, s:s, s:o, s:o, s:o, s:b, s:O}",
			 "side", event->side, "t", (json_int_t)event->t, "kind",
			 classes[event->class], "text", text, "cause",
			 place(places, event->cause), "arrival",
			 place(places, event->arrival), "complete",
			 place(places, event->complete), "refused",
			 (int)event->refused, "raw", event->json);
}

static json_t *events_of(const struct report *r)
{
	size_t *places = calloc(r->count + 1, sizeof(*places));
	json_t *list = json_array();
	size_t n = 0;

	if (!places)
		return list;
	for (size_t i = 0; i < r->count; i++)
		places[i] = r->events[i].kept ? n++ : NOWHERE;
	for (size_t i = 0; i < r->count; i++)
		if (r->events[i].kept)
			json_array_append_new(list,
					      event_of(&r->events[i], places));
	free(places);
	return list;
}

static char *data_of(const struct report *r)
{
	json_t *data =
		json_pack("{s:o, s:o, s:o, s:o, s:I}", "sides", sides_of(r),
			  "qps", qps_of(r), "pairs", pairs_of(r), "events",
			  events_of(r), "left_out", (json_int_t)r->left_out);
	char *text = json_dumps(data, JSON_COMPACT | JSON_ESCAPE_SLASH);

	json_decref(data);
	return text;
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
	char *data = mark ? data_of(r) : NULL;
	FILE *out = data ? fopen(path, "w") : NULL;
	int rc = -1;

	if (page && !mark)
		report_error(NULL, "%s has no place for the data",
			     template_path);
	if (data && !out)
		report_error(NULL, "cannot write %s: %s", path,
			     strerror(errno));
	if (out) {
		fwrite(page, 1, (size_t)(mark - page), out);
		fputs(data, out);
		fputs(mark + strlen(MARK), out);
		rc = ferror(out) ? -1 : 0;
		if (fclose(out) || rc) {
			rc = -1;
			report_error("is the disk full?",
				     "%s could not be written", path);
		}
	}
	free(data);
	free(page);
	return rc;
}

// SPDX-License-Identifier: MIT
/*
 * text.c —— 终端里的时间线
 *
 * 先是排好次序的原因，与 --json、网页是同一张表；再是时间线：A 的事件靠左，B 的缩进一格，
 * 连续的同类 post 合成一行，说出原因的事件带着它的序号；最后是两边“各自以为”的对照表。
 */
#include "parts.h"

#include "explain/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_SHOWN   2	/* 同类的多于这么多就合并 */
#define MIDDLE_ROWS 120 /* 数据事件的行超过两倍就省略中间 */

struct text {
	const struct report *r;
	char *out;
	size_t size, used;
};

static void __attribute__((format(printf, 2, 3)))
put(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->out + t->used, t->size - t->used, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->used += (size_t)n < t->size - t->used
				   ? (size_t)n
				   : t->size - t->used - 1;
}

static void put_member(struct text *t, const json_t *line, const char *key,
		       const char *as)
{
	json_t *value = json_object_get(line, key);
	char word[WORD_SIZE];

	as = report_word(t->r, word, as);
	if (json_is_string(value))
		put(t, "%s %s", as, json_string_value(value));
	else if (json_is_integer(value))
		put(t, "%s %" JSON_INTEGER_FORMAT, as,
		    json_integer_value(value));
}

static void put_qp(struct text *t, const json_t *line)
{
	if (json_object_get(line, "qpn"))
		put(t, " QP %ju", number_in(line, "qpn"));
}

static void describe_modify(struct text *t, const json_t *line)
{
	static const char *const shown[][2] = {
		{ "dest_qpn", ", to QP" },
		{ "dgid", " at" },
		{ "sgid", ", from" },
		{ "rq_psn", ", rq_psn" },
		{ "sq_psn", ", sq_psn" },
		{ "path_mtu", ", MTU" },
		{ "path_mtu_bad", ", bad MTU" },
		{ "timeout", ", timeout" },
		{ "retry_cnt", ", retry_cnt" },
		{ "rnr_retry", ", rnr_retry" },
		{ "access", ", access" },
		{ "qkey", ", Q_Key" },
	};

	put(t, " %s -> %s", text_in(line, "from"),
	    json_object_get(line, "to") ? text_in(line, "to") : "same");
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		put_member(t, line, shown[i][0], shown[i][1]);
}

static void describe_transfer(struct text *t, const json_t *line)
{
	put_qp(t, line);
	put_member(t, line, "srq", " SRQ");
	put_member(t, line, "wr_id", " wr_id");
	put_member(t, line, "status", "");
	put_member(t, line, "op", "");
	put_member(t, line, "len", ", bytes");
	if (strcmp(text_in(line, "flags"), "0"))
		put_member(t, line, "flags", ",");
}

static void describe_object(struct text *t, const json_t *line)
{
	static const char *const shown[][2] = {
		{ "dev", "" },
		{ "type", "" },
		{ "command", "" },
		{ "state", "" },
		{ "active_mtu", ", MTU" },
		{ "count", "" },
		{ "len", ", bytes" },
		{ "access", "," },
		{ "cqe", ", cqe" },
		{ "send_wr", ", send WRs" },
		{ "recv_wr", ", receive WRs" },
		{ "inline", ", inline" },
		{ "max_wr", ", WRs" },
		{ "dgid", " to" },
	};

	put_qp(t, line);
	for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
		put_member(t, line, shown[i][0], shown[i][1]);
}

json_t *event_describe(const struct report *r, const struct event *event,
		       char out[DESCRIBED_SIZE])
{
	struct text t = { r, out, DESCRIBED_SIZE, 0 };
	json_t *line = event_line(r, event);
	char word[WORD_SIZE];

	report_speak(r, line);
	put(&t, "%s", event->ev);
	if (!strcmp(event->ev, "explain")) {
		put(&t, ": ");
		put_member(&t, line, "call", "");
		return line;
	}
	if (!strcmp(event->ev, "warning")) {
		put_qp(&t, line);
		put_member(&t, line, "id", ": nothing failed yet, but it may:");
		return line;
	}
	if (!strcmp(event->ev, "modify_qp")) {
		put_qp(&t, line);
		describe_modify(&t, line);
	} else if (!strcmp(event->ev, "stall")) {
		put_qp(&t, line);
		put_member(&t, line, "sends", ", sends waiting:");
		put_member(&t, line, "receives", ", receives waiting:");
		put_member(&t, line, "user_state", ", user's copy");
		put_member(&t, line, "kernel_state", ", kernel");
	} else if (event->class == CLASS_CONTROL ||
		   (event->class == CLASS_FAILURE &&
		    strcmp(event->ev, "post_failed"))) {
		describe_object(&t, line);
	} else {
		describe_transfer(&t, line);
	}
	if (number_in(line, "err"))
		put(&t, "  %s: %s",
		    report_word(r, word,
				!strcmp(text_in(line, "id"), EXPLAIN_PROBE)
					? "a probe"
					: "FAILED"),
		    text_in(line, "errname"));
	if ((int64_t)number_in(line, "dur") > 1000000)
		put(&t, "  (%.1f ms)", (double)number_in(line, "dur") / 1e6);
	return line;
}

/* ---- 时间线 --------------------------------------------------------------- */

static bool same_kind(const struct event *a, const struct event *b)
{
	return a->side == b->side && a->qp == b->qp && is_data(a) &&
	       is_data(b) && !strcmp(a->ev, b->ev) && !strcmp(a->op, b->op) &&
	       !strcmp(a->status, b->status);
}

/* 从 @i 开始有几个连续的同类事件。*/
static size_t run_length(const struct report *r, size_t i)
{
	size_t n = 1;

	while (i + n < r->count && same_kind(&r->events[i], &r->events[i + n]))
		n++;
	return n;
}

/* 一句，后面是 @end。*/
static void __attribute__((format(printf, 3, 4)))
say(const struct report *r, const char *end, const char *fmt, ...)
{
	char text[WORD_SIZE], word[WORD_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("%s%s", report_word(r, word, text), end);
}

/* @text 占 @width 列，不够的补空白：负数补在前面。汉字一个占两列。*/
static void print_padded(const struct report *r, const char *text, int width)
{
	char word[WORD_SIZE];
	int columns = 0;

	text = report_word(r, word, text);
	for (const char *p = text; *p; p++)
		columns += (*p & 0xc0) != 0x80 ? 1 + ((*p & 0xf0) == 0xe0) : 0;
	columns = columns < abs(width) ? abs(width) - columns : 0;
	printf("%*s%s%*s", width < 0 ? columns : 0, "", text,
	       width < 0 ? 0 : columns, "");
}

/* @label：后面 @text 的每一行都写上。*/
static void print_lines(const struct report *r, const char *label,
			const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		printf("   ");
		print_padded(r, label, -7);
		printf(": %.*s\n", (int)len, text);
		text += len + (text[len] == '\n');
	}
}

static void print_event(const struct report *r, const struct event *event,
			size_t times)
{
	char text[DESCRIBED_SIZE];
	bool right = r->sides == 2 && event->side;
	size_t rank = 0;

	if (event->class == CLASS_FAILURE || !strcmp(event->ev, "warning"))
		rank = cause_rank(r, event);
	json_decref(event_describe(r, event, text));
	printf("%12.3f %s %s %s", (double)event->t / 1e6, right ? " " : "",
	       r->side[event->side].name, text);
	if (times > 1)
		say(r, "", "  ... %zu times", times);
	if (event->refused)
		say(r, "", "  REFUSED");
	if (rank)
		printf("  [%zu]", rank);
	printf("\n");
}

static size_t data_rows(const struct report *r)
{
	size_t rows = 0;

	for (size_t i = 0; i < r->count; i += run_length(r, i))
		rows += is_data(&r->events[i]) &&
			r->side[r->events[i].side].shown;
	return rows;
}

static void print_time_line(const struct report *r, bool all)
{
	size_t rows = data_rows(r), row = 0, hidden = 0, run;
	bool cut = !all && (r->left_out || rows > 2 * MIDDLE_ROWS);

	printf("\n%12s\n", "ms");
	for (size_t i = 0; i < r->count; i += run) {
		run = run_length(r, i);
		if (!r->side[r->events[i].side].shown)
			continue;
		if (is_data(&r->events[i])) {
			row++;
			if (cut && row > MIDDLE_ROWS &&
			    row + MIDDLE_ROWS <= rows) {
				hidden += run;
				continue;
			}
		}
		if (hidden) {
			printf("%13s", "");
			say(r, "\n",
			    "  ... %zu posts and completions (--all shows "
			    "them)",
			    hidden);
		}
		hidden = 0;
		if (run > RUN_SHOWN) {
			print_event(r, &r->events[i], run);
			continue;
		}
		for (size_t j = i; j < i + run; j++)
			print_event(r, &r->events[j], 1);
	}
}

/* ---- 头与尾 --------------------------------------------------------------- */

static void print_sides(const struct report *r)
{
	int hidden = 0;

	for (int s = 0; s < r->sides; s++) {
		const struct side *side = &r->side[s];
		const char *command = json_string_value(
			json_object_get(side->start, "command"));

		hidden += !side->shown;
		if (!side->shown)
			continue;
		say(r, "\n", "%s  %s (pid %lld), %zu events in %.3f s",
		    r->side[s].name, command ? command : side->path,
		    (long long)number_in(side->start, "pid"), side->events,
		    (double)(side->last - side->first) / 1e9);
		if (side->gone)
			say(r, "\n",
			    "   %zu posts and completions before these have "
			    "gone (--last)",
			    side->gone);
		if (side->lost)
			say(r, "\n",
			    "   parts of it are missing: it was cut off, or "
			    "is still being written");
		if (!side->ended && !side->signalled)
			say(r, "\n",
			    "   it does not tell of the program's end: that "
			    "still runs, or was killed");
	}
	if (hidden)
		say(r, "\n",
		    "and %d more, of which nothing is said (--all shows them)",
		    hidden);
}

/* ---- 原因 ----------------------------------------------------------------- */

static const char *label_of(const struct cause *cause)
{
	static const char *const labels[CAUSE_KINDS] = {
		[CAUSE_FAILURE] = "cause",     [CAUSE_STALL] = "cause",
		[CAUSE_HINT] = "hint",	       [CAUSE_WARNING] = "warning",
		[CAUSE_AFTERMATH] = "follows",
	};

	return labels[cause->kind];
}

static void print_cause(const struct report *r, size_t i)
{
	const struct cause *cause = &r->causes.items[i];
	const char *error = text_in(cause->line, "errname"), *call;
	char text[DESCRIBED_SIZE];

	report_speak(r, cause->line);
	call = text_in(cause->line, "call");
	if (!*call) {
		const struct event *e = &r->events[cause->event];

		json_decref(event_describe(r, e, text));
		call = strcmp(e->ev, "signal") ? text : "";
		error = "";
	}
	printf("%zu. %s%s%s%s%s\n", i + 1, r->side[cause->side].name,
	       *call ? ": " : "", call, *error ? ": " : "", error);
	print_lines(r, label_of(cause), text_in(cause->line, "cause"));
	print_lines(r, "next", text_in(cause->line, "next"));
	print_lines(r, "seen", text_in(cause->line, "seen"));
}

#define MOST_CAUSES 12

/* 只是后果的、只是警告的，跟在后面；太多就只说有几个。*/
static void print_causes(const struct report *r, bool all)
{
	size_t n = r->causes.count;

	if (!all && n > MOST_CAUSES)
		n = MOST_CAUSES;
	if (n)
		printf("\n");
	for (size_t i = 0; i < n; i++)
		print_cause(r, i);
	if (n < r->causes.count)
		say(r, "\n", "and %zu more (--all shows them)",
		    r->causes.count - n);
}

static void print_qps(const struct report *r)
{
	printf("\nQPs\n");
	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		const char *side = r->side[qp->side].name;

		if (!r->side[qp->side].shown)
			continue;
		say(r, "\n",
		    "  %s  QP %-6ju %-4s %-8s %zu sends, %zu receives posted; "
		    "%zu completions, %zu bad",
		    side, qp->qpn, qp->type, qp->dev, qp->sends, qp->receives,
		    qp->completions, qp->bad);
	}
}

static void print_row(const struct report *r, const char *what, const char *a,
		      const char *b, const char *note)
{
	printf("  ");
	print_padded(r, what, 20);
	printf(" ");
	print_padded(r, a, 24);
	printf(" ");
	print_padded(r, b, 24);
	print_padded(r, note, 0);
	printf("\n");
}

static void print_beliefs(const struct report *r)
{
	struct belief rows[MAX_BELIEFS];

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *a = &r->qps[i];
		const char *mine, *theirs;
		char said[2][48];
		size_t n;

		if (a->peer < a || !r->side[a->side].shown)
			continue;
		mine = r->side[a->side].name;
		theirs = r->side[a->peer->side].name;
		n = report_beliefs(r, a, rows);
		printf("\n");
		say(r, "\n", "%s: QP %ju of %s (%s) and QP %ju of %s (%s)",
		    a->type, a->qpn, a->dev, mine, a->peer->qpn, a->peer->dev,
		    theirs);
		snprintf(said[0], sizeof(said[0]), "%s says", mine);
		snprintf(said[1], sizeof(said[1]), "%s says", theirs);
		print_row(r, "", said[0], said[1], "");
		for (size_t j = 0; j < n; j++)
			print_row(r, rows[j].what,
				  rows[j].a[0] ? rows[j].a : "-",
				  rows[j].b[0] ? rows[j].b : "-",
				  rows[j].differs ? "<- MISMATCH" : "");
	}
}

void report_as_text(const struct report *r, bool all)
{
	print_sides(r);
	print_causes(r, all);
	print_time_line(r, all);
	print_qps(r);
	print_beliefs(r);
}

// SPDX-License-Identifier: MIT
/*
 * model.c —— 从事件里认出 QP、哪一次 send 引出了哪个 completion、两边各自以为什么
 */
#include "parts.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_ENDS 700 /* 每一侧，数据事件的头和尾各留多少 */

/* ---- QP ------------------------------------------------------------------- */

static const char *const attributes[] = {
	"dest_qpn",	 "rq_psn",
	"sq_psn",	 "path_mtu",
	"path_mtu_bad",	 "sgid_index",
	"sgid",		 "dgid",
	"timeout",	 "retry_cnt",
	"rnr_retry",	 "min_rnr_timer",
	"max_rd_atomic", "max_dest_rd_atomic",
	"access",	 "qkey",
	"port",		 "pkey_index",
};

static void learn(struct qp *qp, json_t *line)
{
	for (size_t i = 0; i < sizeof(attributes) / sizeof(*attributes); i++) {
		json_t *value = json_object_get(line, attributes[i]);

		if (value)
			json_object_set(qp->believes, attributes[i], value);
	}
	json_decref(line);
}

#define MOST_QPS (UINT32_C(1) << 20) /* 一侧的；号码再大就不可信了 */

/* QP 号 @id 的位子。*/
static bool make_place(struct side *side, uint32_t id)
{
	size_t end = side->qps_end;
	uint32_t *more;

	if (id < end)
		return true;
	if (id >= MOST_QPS)
		return false;
	side->qps_end = id * 2 + 8;
	more = realloc(side->qps, side->qps_end * sizeof(*more));
	if (!more) {
		side->qps_end = end;
		return false;
	}
	memset(more + end, 0, (side->qps_end - end) * sizeof(*more));
	side->qps = more;
	return true;
}

static void add_qp(struct report *r, const struct event *event)
{
	struct side *side = &r->side[event->side];
	struct qp *more;
	json_t *line;

	if (qp_of(r, event->side, event->qp) || !make_place(side, event->qp))
		return;
	more = array_room(r->qps, r->qp_count, sizeof(*more));
	if (!more)
		return;
	r->qps = more;
	side->qps[event->qp] = (uint32_t)r->qp_count + 1;
	line = event_line(r, event);
	r->qps[r->qp_count++] = (struct qp){
		.side = event->side,
		.id = event->qp,
		.qpn = number_in(line, "qpn"),
		.type = text_in(line, "type"),
		.dev = text_in(line, "dev"),
		.first = line,
		.believes = json_object(),
	};
}

bool went_well(const struct event *event)
{
	return event->class == CLASS_COMPLETION &&
	       !strcmp(event->status, "SUCCESS");
}

static void count_event(struct qp *qp, const struct event *event)
{
	if (event->class == CLASS_POST_SEND)
		qp->sends++;
	else if (event->class == CLASS_POST_RECV)
		qp->receives++;
	else if (went_well(event))
		qp->completions++;
	else if (event->class == CLASS_COMPLETION)
		qp->bad++;
}

/* 失败的 modify_qp 也是“它以为”：把错的值摆出来，正是为了看见它错。*/
static void find_qps(struct report *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->events[i].qp)
			add_qp(r, &r->events[i]);
	for (size_t i = 0; i < r->count; i++) {
		const struct event *event = &r->events[i];
		struct qp *qp = qp_of(r, event->side, event->qp);

		if (!qp)
			continue;
		count_event(qp, event);
		if (!strcmp(event->ev, "modify_qp"))
			learn(qp, event_line(r, event));
		if (event->class == CLASS_POST_SEND && event->remote_qpn)
			json_object_set_new(
				qp->believes, "dest_qpn",
				json_integer((json_int_t)event->remote_qpn));
	}
}

/* ---- 因果 ----------------------------------------------------------------- */

/* 编号 n -> 事件下标。n 从 1 连续编号，直接作下标。*/
struct numbers {
	size_t *index;
	uint64_t size;
};

static struct numbers number_posts(const struct report *r, int side)
{
	const struct list *own = &r->side[side].own;
	struct numbers posts = { 0 };

	EACH(i, own)
		if (r->events[i].n >= posts.size)
			posts.size = r->events[i].n + 1;
	if (posts.size > own->count * 4 + 1024)
		posts.size = 0; /* 编号不可信：不画箭头，也不爆内存 */
	posts.index = calloc(posts.size + 1, sizeof(*posts.index));
	for (uint64_t n = 0; posts.index && n < posts.size; n++)
		posts.index[n] = NOWHERE;
	EACH(i, own) {
		const struct event *event = &r->events[i];
		uint64_t n = event->n;

		if (posts.index && n && n < posts.size &&
		    (event->class == CLASS_POST_SEND ||
		     event->class == CLASS_POST_RECV))
			posts.index[n] = i;
	}
	return posts;
}

static void link_one(struct report *r, size_t i, const struct numbers *posts)
{
	struct event *event = &r->events[i];
	uint64_t of = event->of;

	if (!strcmp(event->ev, "post_failed")) {
		uint64_t count = event_number(r, event, "count");

		for (uint64_t n = event->n; n < posts->size && count--; n++)
			if (posts->index[n] != NOWHERE)
				r->events[posts->index[n]].refused = true;
	}
	if (of && of < posts->size && posts->index[of] != NOWHERE) {
		event->cause = (uint32_t)posts->index[of];
		r->events[event->cause].complete = (uint32_t)i;
	}
}

/*
 * QP 到了 RESET，或者拆了：还没有完成的请求，没有 completion 就没有了。最后一次停顿以后才拆的
 * 不算：那是不等了，才来收拾的。
 */
static void mark_gone(struct report *r, int side)
{
	size_t stopped = NOWHERE;

	EACH(i, &r->side[side].own)
		if (!strcmp(r->events[i].ev, "thread"))
			stopped = i;
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, side, e->qp);

		if (i > stopped || !qp || e->class == CLASS_FAILURE ||
		    (strcmp(e->ev, "destroy_qp") &&
		     (strcmp(e->ev, "modify_qp") ||
		      !event_says(r, e, "to", "RESET"))))
			continue;
		EACH(k, &qp->own)
			if (k < i && (r->events[k].class == CLASS_POST_SEND ||
				      r->events[k].class == CLASS_POST_RECV))
				r->events[k].gone =
					!r->events[k].refused &&
					r->events[k].complete == NOWHERE;
	}
}

static void link_completions(struct report *r, int side)
{
	struct numbers posts = number_posts(r, side);

	if (posts.index)
		EACH(i, &r->side[side].own)
			link_one(r, i, &posts);
	free(posts.index);
	mark_gone(r, side);
}

/*
 * RC 保证次序、不丢不重：第 k 个 send 就是对端第 k 个 recv。UC 与 UD 会丢，从记录里
 * 看不出丢了哪一个，只有两边个数相等时才这样配。
 */
static void link_arrivals(struct report *r, const struct qp *from)
{
	const struct list *to = &from->peer->own;
	size_t sends = 0, arrivals = 0, j = 0;

	EACH(i, &from->own)
		sends += delivers(r, &r->events[i]);
	EACH(i, to)
		arrivals += is_arrival(&r->events[i]);
	if (strcmp(from->type, "RC") && sends != arrivals)
		return;
	EACH(i, &from->own) {
		if (!delivers(r, &r->events[i]))
			continue;
		while (j < to->count && !is_arrival(&r->events[to->at[j]]))
			j++;
		if (j == to->count)
			return;
		r->events[i].arrival = to->at[j++];
	}
}

/* ---- 留下哪些 ------------------------------------------------------------- */

bool is_data(const struct event *event)
{
	return event->class != CLASS_CONTROL && event->class != CLASS_FAILURE;
}

static void leave_out(struct report *r, int side)
{
	const struct list *own = &r->side[side].own;
	size_t total = 0, seen = 0;

	EACH(i, own)
		total += is_data(&r->events[i]);
	EACH(i, own) {
		struct event *e = &r->events[i];

		if (!is_data(e))
			continue;
		seen++;
		if (seen <= KEEP_ENDS || seen + KEEP_ENDS > total)
			continue;
		e->kept = e->class == CLASS_COMPLETION &&
			  strcmp(e->status, "SUCCESS") &&
			  strcmp(e->status, "WR_FLUSH_ERR");
		r->left_out += !e->kept;
	}
}

int report_build(struct report *r)
{
	find_qps(r);
	if (report_lists(r))
		return -1;
	report_pair(r);
	report_acquaint(r);
	world_regions(r);
	for (int side = 0; side < r->sides; side++)
		link_completions(r, side);
	for (size_t i = 0; i < r->qp_count; i++)
		if (r->qps[i].peer)
			link_arrivals(r, &r->qps[i]);
	return 0;
}

#define MOST_SHOWN 16

/* 太多了就只画出了事的那几个，和它们的对端。*/
static void show(struct report *r, int side, int *room)
{
	if (*room > 0 && !r->side[side].shown) {
		r->side[side].shown = true;
		--*room;
	}
}

void report_choose(struct report *r, bool all)
{
	const struct causes *causes = &r->causes;
	int room = all ? r->sides : MOST_SHOWN;

	for (int s = 0; s < r->sides; s++)
		r->side[s].shown = false;
	for (size_t i = 0; i < causes->count; i++) {
		const struct side *side = &r->side[causes->items[i].side];

		show(r, causes->items[i].side, &room);
		for (size_t k = 0; k < side->other_count; k++)
			show(r, side->others[k], &room);
	}
	for (int s = 0; s < r->sides; s++) {
		show(r, s, &room);
		if (!all)
			leave_out(r, s);
	}
	for (size_t i = 0; i < r->count; i++) {
		bool shown = r->side[r->events[i].side].shown;

		r->left_out += r->events[i].kept && !shown;
		r->events[i].kept = r->events[i].kept && shown;
	}
}

/* ---- 两边各自以为 ---------------------------------------------------------- */

/* "qpn" 是它自己的；别的都是它被告知的。*/
static void belief_text(char *out, size_t size, const struct qp *qp,
			const char *key)
{
	json_t *value = json_object_get(qp->believes, key);
	json_t *bad_mtu = json_object_get(qp->believes, "path_mtu_bad");

	if (!strcmp(key, "qpn"))
		snprintf(out, size, "%ju", qp->qpn);
	else if (!strcmp(key, "path_mtu") && bad_mtu)
		snprintf(out, size,
			 "%" JSON_INTEGER_FORMAT " (no enum ibv_mtu)",
			 json_integer_value(bad_mtu));
	else if (!value)
		out[0] = '\0';
	else if (json_is_string(value))
		snprintf(out, size, "%s", json_string_value(value));
	else if (strstr(key, "psn"))
		snprintf(out, size, "0x%06llx", json_integer_value(value));
	else
		snprintf(out, size, "%" JSON_INTEGER_FORMAT,
			 json_integer_value(value));
}

/* 写到一半的表。*/
struct table {
	const struct qp *a, *b;
	const char *names[2];
	struct belief *rows;
	size_t n;
};

/*
 * 一行：同一件事，A 的话与 B 的话。两边都说了而不同，才算不一致；谁也没有说的，不成一行。
 */
static struct belief *add_row(struct table *t, const char *what, int whose,
			      const char *key_a, const char *key_b)
{
	struct belief *row = &t->rows[t->n];

	snprintf(row->what, sizeof(row->what), what, t->names[whose],
		 t->names[!whose]);
	belief_text(row->a, sizeof(row->a), t->a, key_a);
	belief_text(row->b, sizeof(row->b), t->b, key_b);
	row->differs = row->a[0] && row->b[0] && strcmp(row->a, row->b);
	t->n += row->a[0] || row->b[0];
	return row;
}

/* 我发出的 READ/ATOMIC 不能比对端肯接的多。*/
static bool asks_too_much(const struct qp *qp, const struct qp *peer)
{
	int64_t takes = qp_believes(peer, "max_dest_rd_atomic");

	return takes >= 0 && qp_believes(qp, "max_rd_atomic") > takes;
}

/* "IPv4 to IPv6": 一侧自己的两个 GID 就不是一类，RTR 必然失败。*/
static bool gid_kinds(char *out, size_t size, const struct qp *qp)
{
	static const char v4[] = "::ffff:";
	const char *mine =
		json_string_value(json_object_get(qp->believes, "sgid"));
	const char *peers =
		json_string_value(json_object_get(qp->believes, "dgid"));
	bool from, to;

	out[0] = '\0';
	if (!mine || !peers)
		return true;
	from = !strncmp(mine, v4, sizeof(v4) - 1);
	to = !strncmp(peers, v4, sizeof(v4) - 1);
	snprintf(out, size, "%s to %s", from ? "IPv4" : "IPv6",
		 to ? "IPv4" : "IPv6");
	return from == to;
}

static void add_kinds(struct table *t)
{
	struct belief *row = &t->rows[t->n];
	bool good_a = gid_kinds(row->a, sizeof(row->a), t->a);
	bool good_b = gid_kinds(row->b, sizeof(row->b), t->b);

	snprintf(row->what, sizeof(row->what), "kinds of GID");
	row->differs = !good_a || !good_b;
	t->n += row->differs;
}

size_t report_beliefs(const struct report *r, const struct qp *a,
		      struct belief rows[MAX_BELIEFS])
{
	struct table t = { a,
			   a->peer,
			   { r->side[a->side].name,
			     r->side[a->peer->side].name },
			   rows,
			   0 };
	struct belief *row;

	add_row(&t, "%s's QPN", 0, "qpn", "dest_qpn");
	add_row(&t, "%s's QPN", 1, "dest_qpn", "qpn");
	add_row(&t, "%s's first PSN", 0, "sq_psn", "rq_psn");
	add_row(&t, "%s's first PSN", 1, "rq_psn", "sq_psn");
	add_row(&t, "%s's GID", 0, "sgid", "dgid");
	add_row(&t, "%s's GID", 1, "dgid", "sgid");
	add_kinds(&t);
	add_row(&t, "path MTU", 0, "path_mtu", "path_mtu");
	add_row(&t, "Q_Key", 0, "qkey", "qkey");
	row = add_row(&t, "%s reads, %s answers", 0, "max_rd_atomic",
		      "max_dest_rd_atomic");
	row->differs = asks_too_much(a, a->peer);
	row = add_row(&t, "%s reads, %s answers", 1, "max_dest_rd_atomic",
		      "max_rd_atomic");
	row->differs = asks_too_much(a->peer, a);
	return t.n;
}

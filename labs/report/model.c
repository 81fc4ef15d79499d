// SPDX-License-Identifier: MIT
/*
 * model.c —— 从事件里认出 QP、谁和谁是一对、哪一次 send 引出了哪个 completion
 */
#include "parts.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_ENDS 700 /* 每一侧，数据事件的头和尾各留多少 */

struct qp *qp_of(const struct report *r, int side, uint64_t id)
{
	for (size_t i = 0; id && i < r->qp_count; i++)
		if (r->qps[i].side == side && r->qps[i].id == id)
			return &r->qps[i];
	return NULL;
}

bool is_of(const struct event *event, const struct qp *qp)
{
	return event->side == qp->side && event->qp == qp->id;
}

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

static void add_qp(struct report *r, const struct event *event)
{
	struct qp *more;
	json_t *line;

	if (qp_of(r, event->side, event->qp))
		return;
	more = array_room(r->qps, r->qp_count, sizeof(*more));
	if (!more)
		return;
	r->qps = more;
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

/* ---- 谁和谁是一对 ---------------------------------------------------------- */

static int64_t number_of(const struct qp *qp, const char *key)
{
	json_t *value = json_object_get(qp->believes, key);

	return value ? json_integer_value(value) : -1;
}

static bool same_text(const struct qp *a, const char *key_a, const struct qp *b,
		      const char *key_b)
{
	const char *x = json_string_value(json_object_get(a->believes, key_a));
	const char *y = json_string_value(json_object_get(b->believes, key_b));

	return x && y && !strcmp(x, y);
}

/*
 * 两边的话对得上几条？QPN 写错正是要找的错误之一，所以不能只凭 QPN 配对：对上的
 * 越多越像，一条也对不上但各只有一个 QP 的，也算一对。
 */
static int likeness(const struct qp *a, const struct qp *b)
{
	int score = 0;

	if (strcmp(a->type, b->type))
		return -1;
	score += 4 * (number_of(a, "dest_qpn") == (int64_t)b->qpn);
	score += 4 * (number_of(b, "dest_qpn") == (int64_t)a->qpn);
	score += 3 * same_text(a, "dgid", b, "sgid");
	score += 3 * same_text(b, "dgid", a, "sgid");
	score += 2 * (number_of(a, "rq_psn") >= 0 &&
		      number_of(a, "rq_psn") == number_of(b, "sq_psn"));
	score += 2 * (number_of(b, "rq_psn") >= 0 &&
		      number_of(b, "rq_psn") == number_of(a, "sq_psn"));
	return score;
}

/* 用过，而还没有配对。*/
static bool is_free(const struct qp *qp, int side)
{
	return qp->side == side && !qp->peer &&
	       (json_object_size(qp->believes) || qp->sends || qp->receives);
}

/* 还没有配对的里面最像的一对，分数不低于 @floor；没有则 false。*/
static bool join_best(struct report *r, int floor)
{
	struct qp *a = NULL, *b = NULL;

	for (size_t i = 0; i < r->qp_count; i++)
		for (size_t j = 0; is_free(&r->qps[i], 0) && j < r->qp_count;
		     j++) {
			int score = is_free(&r->qps[j], 1)
					    ? likeness(&r->qps[i], &r->qps[j])
					    : -1;

			if (score < floor)
				continue;
			floor = score + 1;
			a = &r->qps[i];
			b = &r->qps[j];
		}
	if (!a)
		return false;
	a->peer = b;
	b->peer = a;
	return true;
}

#define SURE	 8   /* 两个 QPN 都对得上 */
#define MANY_QPS 100 /* 再多就只配有把握的 */

static void find_peers(struct report *r)
{
	for (size_t i = 0; i < r->qp_count; i++)
		for (size_t j = 0; is_free(&r->qps[i], 0) && j < r->qp_count;
		     j++)
			if (is_free(&r->qps[j], 1) &&
			    likeness(&r->qps[i], &r->qps[j]) >= SURE) {
				r->qps[i].peer = &r->qps[j];
				r->qps[j].peer = &r->qps[i];
			}
	if (r->qp_count <= MANY_QPS)
		while (join_best(r, 0))
			;
}

/* ---- 因果 ----------------------------------------------------------------- */

/* 编号 n -> 事件下标。n 从 1 连续编号，直接作下标。*/
struct numbers {
	size_t *index;
	uint64_t size;
};

static struct numbers number_posts(const struct report *r, int side)
{
	struct numbers posts = { 0 };

	for (size_t i = 0; i < r->count; i++)
		if (r->events[i].side == side && r->events[i].n >= posts.size)
			posts.size = r->events[i].n + 1;
	if (posts.size > r->count * 4 + 1024)
		posts.size = 0; /* 编号不可信：不画箭头，也不爆内存 */
	posts.index = calloc(posts.size + 1, sizeof(*posts.index));
	for (uint64_t n = 0; posts.index && n < posts.size; n++)
		posts.index[n] = NOWHERE;
	for (size_t i = 0; posts.index && i < r->count; i++) {
		const struct event *event = &r->events[i];
		uint64_t n = event->n;

		if (event->side == side && n && n < posts.size &&
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

static void link_completions(struct report *r, int side)
{
	struct numbers posts = number_posts(r, side);

	for (size_t i = 0; posts.index && i < r->count; i++)
		if (r->events[i].side == side)
			link_one(r, i, &posts);
	free(posts.index);
}

bool takes_receive(const struct event *e)
{
	return e->class == CLASS_POST_SEND && !e->refused &&
	       (!strncmp(e->op, "SEND", 4) ||
		!strcmp(e->op, "RDMA_WRITE_WITH_IMM"));
}

bool came_to_nothing(const struct report *r, const struct event *post)
{
	return post->complete == NOWHERE ||
	       strcmp(r->events[post->complete].status, "SUCCESS");
}

/* 会在对端引出一个 recv completion 的 send，且没有被拒绝、没有失败。*/
bool delivers(const struct report *r, const struct event *post)
{
	return takes_receive(post) &&
	       (post->complete == NOWHERE || !came_to_nothing(r, post));
}

bool is_arrival(const struct event *event)
{
	return event->class == CLASS_COMPLETION &&
	       !strncmp(event->op, "RECV", 4);
}

/*
 * RC 保证次序、不丢不重：第 k 个 send 就是对端第 k 个 recv。UC 与 UD 会丢，从记录里
 * 看不出丢了哪一个，只有两边个数相等时才这样配。
 */
static void link_arrivals(struct report *r, const struct qp *from)
{
	const struct qp *to = from->peer;
	size_t sends = 0, arrivals = 0, j = 0;

	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];

		sends += is_of(e, from) && delivers(r, e);
		arrivals += is_of(e, to) && is_arrival(e);
	}
	if (strcmp(from->type, "RC") && sends != arrivals)
		return;
	for (size_t i = 0; i < r->count; i++) {
		struct event *e = &r->events[i];

		if (!is_of(e, from) || !delivers(r, e))
			continue;
		while (j < r->count &&
		       !(is_of(&r->events[j], to) && is_arrival(&r->events[j])))
			j++;
		if (j == r->count)
			return;
		e->arrival = (uint32_t)j++;
	}
}

/* ---- 留下哪些 ------------------------------------------------------------- */

bool is_data(const struct event *event)
{
	return event->class != CLASS_CONTROL && event->class != CLASS_FAILURE;
}

static void leave_out(struct report *r, int side)
{
	size_t total = 0, seen = 0;

	for (size_t i = 0; i < r->count; i++)
		total += r->events[i].side == side && is_data(&r->events[i]);
	for (size_t i = 0; i < r->count; i++) {
		struct event *e = &r->events[i];

		if (e->side != side || !is_data(e))
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

void report_build(struct report *r, bool all)
{
	find_qps(r);
	find_peers(r);
	world_regions(r);
	for (int side = 0; side < r->sides; side++)
		link_completions(r, side);
	for (size_t i = 0; i < r->qp_count; i++)
		if (r->qps[i].peer)
			link_arrivals(r, &r->qps[i]);
	for (int side = 0; !all && side < r->sides; side++)
		leave_out(r, side);
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
	struct belief *rows;
	size_t n;
};

/*
 * 一行：同一件事，A 的话与 B 的话。两边都说了而不同，才算不一致；谁也没有说的，不成一行。
 */
static struct belief *add_row(struct table *t, const char *what,
			      const char *key_a, const char *key_b)
{
	struct belief *row = &t->rows[t->n];

	row->what = what;
	belief_text(row->a, sizeof(row->a), t->a, key_a);
	belief_text(row->b, sizeof(row->b), t->b, key_b);
	row->differs = row->a[0] && row->b[0] && strcmp(row->a, row->b);
	t->n += row->a[0] || row->b[0];
	return row;
}

/* 我发出的 READ/ATOMIC 不能比对端肯接的多。*/
static bool asks_too_much(const struct qp *qp, const struct qp *peer)
{
	int64_t takes = number_of(peer, "max_dest_rd_atomic");

	return takes >= 0 && number_of(qp, "max_rd_atomic") > takes;
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

	row->what = "kinds of GID";
	row->differs = !good_a || !good_b;
	t->n += row->differs;
}

size_t report_beliefs(const struct qp *a, struct belief rows[MAX_BELIEFS])
{
	struct table t = { a, a->peer, rows, 0 };
	struct belief *row;

	add_row(&t, "A's QPN", "qpn", "dest_qpn");
	add_row(&t, "B's QPN", "dest_qpn", "qpn");
	add_row(&t, "A's first PSN", "sq_psn", "rq_psn");
	add_row(&t, "B's first PSN", "rq_psn", "sq_psn");
	add_row(&t, "A's GID", "sgid", "dgid");
	add_row(&t, "B's GID", "dgid", "sgid");
	add_kinds(&t);
	add_row(&t, "path MTU", "path_mtu", "path_mtu");
	add_row(&t, "Q_Key", "qkey", "qkey");
	row = add_row(&t, "A reads, B answers", "max_rd_atomic",
		      "max_dest_rd_atomic");
	row->differs = asks_too_much(a, a->peer);
	row = add_row(&t, "B reads, A answers", "max_dest_rd_atomic",
		      "max_rd_atomic");
	row->differs = asks_too_much(a->peer, a);
	return t.n;
}

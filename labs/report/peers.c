// SPDX-License-Identifier: MIT
/*
 * peers.c —— 谁和谁是一对，谁的事件有哪些：一千份记录里也要很快找得到
 */
#include "live.h"

#include "base/array.h"
#include "base/report.h"
#include "explain/parts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qp *qp_of(const struct report *r, int side, uint64_t id)
{
	const struct side *s = &r->side[side];

	return id < s->qps_end && s->qps[id] ? &r->qps[s->qps[id] - 1] : NULL;
}

bool is_of(const struct event *event, const struct qp *qp)
{
	return event->side == qp->side && event->qp == qp->id;
}

int64_t qp_believes(const struct qp *qp, const char *key)
{
	json_t *value = json_object_get(qp->believes, key);

	return value ? json_integer_value(value) : -1;
}

bool gid_in(const struct qp *qp, const char *key, union ibv_gid *gid)
{
	const char *text = text_in(qp->believes, key);

	return *text && inet_pton(AF_INET6, text, gid->raw) == 1;
}

/* ---- 一个请求怎样了 -------------------------------------------------------- */

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

/* ---- 谁和谁是一对 ---------------------------------------------------------- */

static bool same_text(const struct qp *a, const char *key_a, const struct qp *b,
		      const char *key_b)
{
	const char *x = json_string_value(json_object_get(a->believes, key_a));
	const char *y = json_string_value(json_object_get(b->believes, key_b));

	return x && y && !strcmp(x, y);
}

/* @a 的包去的 GID，是这台机器上另一个设备的，不是 @b 的。*/
static bool goes_past(const struct qp *a, const struct qp *b)
{
	char device[IBV_SYSFS_NAME_MAX];
	union ibv_gid gid;

	if (!gid_in(a, "dgid", &gid))
		return false;
	device_with_gid(device, sizeof(device), &gid);
	return *device && strcmp(device, b->dev);
}

/*
 * 旁边碰巧在跑的程序，QPN 常常也对得上：每个设备都从 17 数起。用户自己挑出来的两份记录才可以连
 * GID 也对不上。
 */
static bool are_strangers(const struct report *r, const struct qp *a,
			  const struct qp *b)
{
	const struct side *x = &r->side[a->side], *y = &r->side[b->side];

	if (!r->by || a->side == b->side ||
	    (is_watched(r->by, x->path) && is_watched(r->by, y->path)))
		return false;
	return (x->ended && x->last < y->first) ||
	       (y->ended && y->last < x->first) || goes_past(a, b) ||
	       goes_past(b, a);
}

/*
 * 两边的话对得上几条？QPN 写错正是要找的错误之一，所以不能只凭 QPN 配对：对上的
 * 越多越像。没有一个 QPN 对得上的，只有没有别的可选时（@only）才算一对：同一台机器上
 * GID 都一样，PSN 也常常是同一个常数。
 * 从同一个 GID 发往同一个 GID 的不是：两台主机的 QPN 常常相同，旁边上一次运行的记录看着就像
 * 对端。
 */
static int likeness(const struct report *r, const struct qp *a,
		    const struct qp *b, bool only)
{
	int score = 4 * (qp_believes(a, "dest_qpn") == (int64_t)b->qpn) +
		    4 * (qp_believes(b, "dest_qpn") == (int64_t)a->qpn);

	if (strcmp(a->type, b->type) || (!only && !score) ||
	    are_strangers(r, a, b) ||
	    (same_text(a, "sgid", b, "sgid") &&
	     same_text(a, "dgid", b, "dgid") &&
	     !same_text(a, "sgid", a, "dgid")))
		return -1;
	score += 3 * same_text(a, "dgid", b, "sgid");
	score += 3 * same_text(b, "dgid", a, "sgid");
	score += 2 * (qp_believes(a, "rq_psn") >= 0 &&
		      qp_believes(a, "rq_psn") == qp_believes(b, "sq_psn"));
	score += 2 * (qp_believes(b, "rq_psn") >= 0 &&
		      qp_believes(b, "rq_psn") == qp_believes(a, "sq_psn"));
	return score;
}

/* 用过，而还没有配对。*/
static bool is_free(const struct qp *qp)
{
	return !qp->peer &&
	       (json_object_size(qp->believes) || qp->sends || qp->receives);
}

static void join(struct qp *a, struct qp *b)
{
	a->peer = b;
	b->peer = a;
}

static bool has_pairs(const struct report *r)
{
	for (size_t i = 0; i < r->qp_count; i++)
		if (r->qps[i].peer)
			return true;
	return false;
}

/* 还没有配对的里面最像的一对；没有则 false。*/
static bool join_best(struct report *r)
{
	bool only = r->sides == 2 && !has_pairs(r);
	struct qp *a = NULL, *b = NULL;
	int floor = 0;

	for (size_t i = 0; i < r->qp_count; i++)
		for (size_t j = i + 1; is_free(&r->qps[i]) && j < r->qp_count;
		     j++) {
			bool apart = r->qps[i].side != r->qps[j].side;
			int score = apart && is_free(&r->qps[j])
					    ? likeness(r, &r->qps[i],
						       &r->qps[j], only)
					    : -1;

			if (score < floor)
				continue;
			floor = score + 1;
			a = &r->qps[i];
			b = &r->qps[j];
		}
	if (a)
		join(a, b);
	return a != NULL;
}

#define SURE	 8   /* 两个 QPN 都对得上 */
#define MANY_QPS 100 /* 再多就只配有把握的 */

/* 按 QPN 找：一千份记录里有上百万个 QP，不能两两去比。*/
static json_t *by_number(const struct report *r)
{
	json_t *index = json_object();
	char key[24];

	for (size_t i = 0; i < r->qp_count; i++) {
		json_t *list;

		snprintf(key, sizeof(key), "%ju", r->qps[i].qpn);
		list = json_object_get(index, key);
		if (!list) {
			list = json_array();
			json_object_set_new(index, key, list);
		}
		json_array_append_new(list, json_integer((json_int_t)i));
	}
	return index;
}

/* 一个进程里自己连自己的也算；最像的那一个，GID 也要对得上的在前。*/
static void join_sure(struct report *r, struct qp *qp, const json_t *index)
{
	struct qp *best = NULL;
	const json_t *item;
	int most = SURE - 1;
	char key[24];
	size_t i;

	snprintf(key, sizeof(key), "%jd",
		 (intmax_t)qp_believes(qp, "dest_qpn"));
	json_array_foreach(json_object_get(index, key), i, item)
	{
		struct qp *other = &r->qps[json_integer_value(item)];
		int score = other != qp && is_free(other)
				    ? likeness(r, qp, other, false)
				    : -1;

		score -= other->side == qp->side;
		if (score <= most)
			continue;
		most = score;
		best = other;
	}
	if (best)
		join(qp, best);
}

void report_pair(struct report *r)
{
	json_t *index = by_number(r);

	for (size_t i = 0; i < r->qp_count; i++)
		if (is_free(&r->qps[i]))
			join_sure(r, &r->qps[i], index);
	json_decref(index);
	if (r->qp_count <= MANY_QPS)
		while (join_best(r))
			;
}

/* ---- 谁的事件，谁和谁说话 --------------------------------------------------- */

static void append(struct list *list, size_t i)
{
	list->at[list->count++] = (uint32_t)i;
}

/* 先数，再分：每一侧、每个 QP 有哪些事件。*/
int report_lists(struct report *r)
{
	uint32_t *room = calloc(r->count * 2 + 1, sizeof(*room));

	if (!room)
		return fail(-1, "record less: --control-only, --last",
			    "no memory for %zu events", r->count);
	for (size_t i = 0; i < r->count; i++) {
		struct qp *qp = qp_of(r, r->events[i].side, r->events[i].qp);

		r->side[r->events[i].side].own.count++;
		if (qp)
			qp->own.count++;
	}
	for (int s = 0; s < r->sides; s++) {
		r->side[s].own.at = room;
		room += r->side[s].own.count;
		r->side[s].own.count = 0;
	}
	for (size_t i = 0; i < r->qp_count; i++) {
		r->qps[i].own.at = room;
		room += r->qps[i].own.count;
		r->qps[i].own.count = 0;
	}
	for (size_t i = 0; i < r->count; i++) {
		struct qp *qp = qp_of(r, r->events[i].side, r->events[i].qp);

		append(&r->side[r->events[i].side].own, i);
		if (qp)
			append(&qp->own, i);
	}
	return 0;
}

static void acquaint(struct report *r, int side, int other)
{
	struct side *s = &r->side[side];
	int *more;

	for (size_t i = 0; i < s->other_count; i++)
		if (s->others[i] == other)
			return;
	more = array_room(s->others, s->other_count, sizeof(*more));
	if (!more)
		return;
	s->others = more;
	s->others[s->other_count++] = other;
}

#define FEW 8 /* 没有连上的，只有几份时才两两去看 */

/* 它的 QP 都连着自己的 QP：没有别人要找。*/
static bool is_complete(const struct report *r, int side)
{
	size_t qps = 0;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		if (qp->side == side &&
		    (!qp->peer || qp->peer == qp || qp->peer->side != side))
			return false;
		qps += qp->side == side;
	}
	return qps;
}

/* 正在跑的程序旁边，可以有毫不相干的：同一条命令的才是。*/
static bool may_talk(const struct report *r, int a, int b)
{
	return !r->by || (is_watched(r->by, r->side[a].path) &&
			  is_watched(r->by, r->side[b].path));
}

void report_acquaint(struct report *r)
{
	bool *alone = calloc((size_t)r->sides + 1, sizeof(*alone));
	int n = 0;

	for (size_t i = 0; i < r->qp_count; i++)
		if (r->qps[i].peer && r->qps[i].peer->side != r->qps[i].side)
			acquaint(r, r->qps[i].side, r->qps[i].peer->side);
	for (int s = 0; s < r->sides; s++)
		r->side[s].shown = !r->side[s].other_count;
	for (int s = 0; alone && s < r->sides; s++)
		n += alone[s] = r->side[s].shown && !is_complete(r, s);
	for (int s = 0; alone && n <= FEW && s < r->sides; s++)
		for (int o = 0; alone[s] && o < r->sides; o++)
			if (o != s &&
			    (alone[o] ||
			     (r->sides <= FEW && !is_complete(r, o))) &&
			    may_talk(r, s, o)) {
				acquaint(r, s, o);
				acquaint(r, o, s);
			}
	free(alone);
}

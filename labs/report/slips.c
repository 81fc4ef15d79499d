// SPDX-License-Identifier: MIT
/*
 * slips.c —— 有一个请求与别的都不一样：多发了一遍、漏了 SIGNALED；或者该有的那一个根本没有
 *
 * 设备不觉得有什么不对：多发的一个照样到，没有 SIGNALED 的照样发出去。看得出来的是程序自己的
 * 习惯：别处从不连着发两个一样的，别的 send 都带着 SIGNALED。
 */
#include "rules.h"

#include <string.h>

/* ---- 漏了 SIGNALED --------------------------------------------------------- */

struct habit {
	size_t with, without;
	size_t odd;  /* index of the last one without */
	size_t last; /* of the last send of all */
};

static struct habit signals(const struct report *r, const struct qp *qp)
{
	struct habit h = { .odd = NOWHERE, .last = NOWHERE };

	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];

		if (h.with + h.without >= MOST_POSTS || e->refused ||
		    e->class != CLASS_POST_SEND)
			continue;
		h.last = i;
		if (makes_completion(r, qp, e)) {
			h.with++;
		} else {
			h.without++;
			h.odd = i;
		}
	}
	return h;
}

/* @qp 的 send（@sends）或 receive 的 completion 进 @at 看着的 CQ；不知道是哪一个，都算。*/
static bool goes_to(const struct report *r, const struct qp *qp, bool sends,
		    const json_t *at)
{
	uint64_t cq = number_in(at, "cq"), on = number_in(at, "channel");
	uint64_t own = number_in(qp->first, sends ? "send_cq" : "recv_cq");
	uint64_t channel = on ? channel_of(r, qp->side, own) : ANY_CHANNEL;

	return cq ? cq == own : channel == ANY_CHANNEL || channel == on;
}

/* @side 的 @at 在等，可是它发的、收的，没有一个还会往那里去。*/
bool waits_for_nothing(const struct report *r, int side, const json_t *at)
{
	bool posted = last_event(r, side, "wr_abort", NULL) != NOWHERE;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);

		if (e->class != CLASS_POST_RECV &&
		    (!qp || e->class != CLASS_POST_SEND))
			continue;
		if (!e->refused && !e->gone && e->complete == NOWHERE &&
		    (!qp || (goes_to(r, qp, e->class == CLASS_POST_SEND, at) &&
			     makes_completion(r, qp, e))))
			return false;
		posted = posted || e->class == CLASS_POST_SEND || e->gone;
	}
	return posted || side_went_up(r, side);
}

/* 停下来等 completion，而再也不会有。*/
static bool is_stuck_polling(const struct report *r, int side, size_t *where)
{
	json_t *at = stopped_at(r, side, where);
	bool found = at && is_waiting_for_completion(r, side) &&
		     waits_for_nothing(r, side, at);

	json_decref(at);
	return found;
}

/* 只有一个没有 SIGNALED，自己的别的、对方的全部都有。*/
static bool is_the_odd_one(const struct report *r, const struct qp *qp,
			   const struct habit *mine)
{
	struct habit theirs = { 0 };

	if (mine->without != 1)
		return false;
	if (qp->peer)
		theirs = signals(r, qp->peer);
	return mine->with || (theirs.with && !theirs.without);
}

/* 停下来等的正是它：它与众不同，又是最后一个；或者此外已经没有什么可等。*/
static size_t unsignaled_slip(const struct report *r, const struct qp *qp)
{
	struct habit mine = signals(r, qp);
	bool last = mine.odd == mine.last, odd;
	size_t where;

	if (!mine.without || r->events[mine.odd].complete != NOWHERE)
		return NOWHERE;
	odd = is_the_odd_one(r, qp, &mine);
	if (last && odd)
		return mine.odd;
	return (last || odd) && is_stuck_polling(r, qp->side, &where) ? mine.odd
								      : NOWHERE;
}

void check_unsignaled(const struct report *r, struct causes *all)
{
	const struct explanation why = because("unsignaled");

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		size_t slip = gave_up(&r->side[qp->side])
				      ? unsignaled_slip(r, qp)
				      : NOWHERE;

		if (slip == NOWHERE)
			continue;
		for (size_t c = 0; c < all->count; c++)
			if (!strcmp(all->items[c].id, why.id) &&
			    all->items[c].side == qp->side &&
			    all->items[c].qp == qp->id) {
				all->items[c].kind = CAUSE_HINT;
				all->items[c].proven = true;
				return;
			}
		cause_suggest(r, all, slip, &why);
		return;
	}
}

/* ---- 该有的没有 ------------------------------------------------------------ */

/* 它在看 @cq，可是还没有完成的 send，进的是同一个 QP 的另一个 CQ。*/
static bool sends_go_elsewhere(const struct report *r, int side, uint64_t cq)
{
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, side, e->qp);

		if (e->class == CLASS_POST_SEND && qp && !e->refused &&
		    !e->gone && e->complete == NOWHERE &&
		    makes_completion(r, qp, e) &&
		    number_in(qp->first, "recv_cq") == cq &&
		    number_in(qp->first, "send_cq") != cq)
			return true;
	}
	return false;
}

void check_nothing_posted(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t where;

	for (int s = 0; s < r->sides && !is_suggested(all); s++) {
		if (!is_stuck_polling(r, s, &where))
			continue;
		if (sends_go_elsewhere(
			    r, s, event_number(r, &r->events[where], "cq")))
			why = because("wrong-cq", "send\tsend_cq");
		else
			why = why_nothing(r, s);
		cause_suggest(r, all, where, &why);
	}
}

/* ---- 多发了一遍 ------------------------------------------------------------ */

static bool is_same_request(const json_t *a, const json_t *b)
{
	static const char *const members[] = {
		"op",	"wr_id", "flags",	"addr", "len",	     "lkey",
		"rkey", "sges",	 "remote_addr", "imm",	"remote_qpn"
	};

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		const json_t *x = json_object_get(a, members[i]);
		const json_t *y = json_object_get(b, members[i]);

		if (x != y && !json_equal(x, y))
			return false;
	}
	return true;
}

struct pairs {
	size_t sends;
	size_t in_a_row; /* next to each other, with no completion between */
	size_t same;	 /* of those, with the same request; */
	size_t where;	 /* the last of these */
	bool numbered;	 /* wr_id tells one request from the next */
};

static struct pairs count_pairs(const struct report *r, const struct qp *qp)
{
	struct pairs p = { .where = NOWHERE };
	json_t *before = NULL, *line;
	bool between = false;

	EACH(i, &r->side[qp->side].own) {
		const struct event *e = &r->events[i];

		if (p.sends >= MOST_POSTS)
			break;
		between = between || e->class == CLASS_COMPLETION;
		if (e->qp != qp->id || e->refused ||
		    e->class != CLASS_POST_SEND)
			continue;
		line = event_line(r, e);
		p.sends++;
		if (before &&
		    value_in(before, "wr_id") != value_in(line, "wr_id"))
			p.numbered = true;
		if (before && !between) {
			p.in_a_row++;
			if (is_same_request(before, line)) {
				p.same++;
				p.where = i;
			}
		}
		json_decref(before);
		before = line;
		between = false;
	}
	json_decref(before);
	return p;
}

#define ENOUGH_TO_TELL 4 /* 这么多个 send，才说得上有习惯 */

void check_doubled(const struct report *r, struct causes *all)
{
	struct explanation why;
	char name[80];

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		struct pairs p = count_pairs(r, qp);

		if (p.same != 1 || p.sends < ENOUGH_TO_TELL ||
		    (p.in_a_row > 1 && !p.numbered))
			continue;
		why = because("post-doubled", "%s",
			      world_name(r, name, sizeof(name), qp));
		also_seen(&why, "posted-twice");
		cause_add(r, all, p.where, qp, &why);
		return;
	}
}

/* 对方收够了，好好地走了；这边还有一个，没有 receive 可用。*/
void check_surplus(const struct report *r, struct causes *all)
{
	struct explanation why;
	char names[2][80];

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		size_t sent = 0, left = 0, where = NOWHERE;

		if (!qp->peer || !gave_up(&r->side[qp->side]) ||
		    gave_up(&r->side[qp->peer->side]))
			continue;
		EACH(k, &qp->own) {
			const struct event *e = &r->events[k];

			if (!takes_receive(e))
				continue;
			sent++;
			if (e->arrival == NOWHERE) {
				left++;
				where = k;
			}
		}
		if (left != 1 || sent < ENOUGH_TO_TELL ||
		    receives_left(r, qp->peer) > 0)
			continue;
		why = because("post-doubled", "%s",
			      world_name(r, names[0], sizeof(names[0]), qp));
		also_seen(&why, "one-too-many", "%s\t%zu\t%s", names[0], sent,
			  world_name(r, names[1], sizeof(names[1]), qp->peer));
		cause_add(r, all, where, qp, &why);
		return;
	}
}

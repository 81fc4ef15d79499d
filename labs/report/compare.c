// SPDX-License-Identifier: MIT
/*
 * compare.c —— 两边的值合不合得上：连接的属性、rkey 与地址、数据报的去处、receive 与 CQ 够不够
 */
#include "rules.h"

#include <byteswap.h>
#include <stdlib.h>
#include <string.h>

void compare_pairs(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		if (!qp->peer || qp->peer < qp || !strcmp(qp->type, "UD"))
			continue;
		why = world_explain(r, qp, NULL, INT64_MAX,
				    IBV_WC_RETRY_EXC_ERR);
		if (why.id)
			cause_add(r, all, modified(r, qp), qp, &why);
	}
}

/* @qp 的 @post 错在哪里。false：这一个不必看。*/
typedef bool judge(const struct report *r, const struct qp *qp,
		   const struct event *post, struct explanation *why);

static void first_wrong(const struct report *r, struct causes *all, judge *by)
{
	bool *in_error = calloc(r->qp_count + 1, sizeof(*in_error));
	struct explanation why = { 0 };
	size_t looked = 0;

	for (size_t i = 0; in_error && i < r->count && looked < MOST_POSTS;
	     i++) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);

		if (!qp)
			continue;
		if (!strcmp(e->ev, "modify_qp") && e->class != CLASS_FAILURE)
			in_error[qp - r->qps] = event_says(r, e, "to", "ERR");
		if (e->class != CLASS_POST_SEND || e->refused ||
		    in_error[qp - r->qps] || !by(r, qp, e, &why))
			continue;
		looked++;
		if (why.id) {
			cause_add(r, all, i, qp, &why);
			break;
		}
	}
	free(in_error);
}

/* UC 的 WRITE 被对端丢掉，自己却“成功”；RC 的成功则证明它没有错。*/
static bool judge_write(const struct report *r, const struct qp *qp,
			const struct event *post, struct explanation *why)
{
	if (!qp->peer || strncmp(post->op, "SEND", 4) == 0 ||
	    (strcmp(qp->type, "UC") && !came_to_nothing(r, post)))
		return false;
	*why = world_explain(r, qp, post, post->t, IBV_WC_REM_ACCESS_ERR);
	return true;
}

void check_writes(const struct report *r, struct causes *all)
{
	first_wrong(r, all, judge_write);
}

/* ---- UD ------------------------------------------------------------------- */

/* 别的哪一侧的 UD QP 是 @qpn；@qpn 为 0：任何一个，只有一个才说得出本该是谁。*/
static const struct qp *datagram_qp(const struct report *r, int from,
				    uint64_t qpn)
{
	const struct qp *found = NULL;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		if (qp->side == from || strcmp(qp->type, "UD") ||
		    (qpn && qp->qpn != qpn))
			continue;
		if (qpn || found)
			return qpn ? qp : NULL;
		found = qp;
	}
	return found;
}

static struct explanation wrong_target(const struct qp *to, uint32_t qpn)
{
	if (bswap_32(qpn) == to->qpn ||
	    bswap_32(qpn & 0xffffff) >> 8 == to->qpn)
		return because("qpn-byte-order", "0x%x\t0x%jx", qpn, to->qpn);
	return because("qpn-differs", "%s\t0x%x\t%s\t0x%jx", "this side", qpn,
		       "the peer", to->qpn);
}

#define CONTROLLED 0x80000000u

static struct explanation why_dropped(const struct report *r,
				      const struct event *post)
{
	const struct qp *only = datagram_qp(r, post->side, 0);
	const struct qp *to;
	struct recalled wr;
	char name[80];
	uint32_t key;

	world_recall(r, post, &wr);
	to = datagram_qp(r, post->side, wr.send.wr.ud.remote_qpn);
	if (!to && only)
		return wrong_target(only, wr.send.wr.ud.remote_qpn);
	if (!to || !json_object_get(to->believes, "qkey"))
		return (struct explanation){ 0 };
	key = (uint32_t)value_in(to->believes, "qkey");
	if (wr.send.wr.ud.remote_qkey == key ||
	    (wr.send.wr.ud.remote_qkey & CONTROLLED))
		return (struct explanation){ 0 };
	return because("qkey-differs", "0x%x\t%s\t0x%x",
		       wr.send.wr.ud.remote_qkey,
		       world_name(r, name, sizeof(name), to), key);
}

static bool judge_datagram(const struct report *r, const struct qp *qp,
			   const struct event *post, struct explanation *why)
{
	if (strcmp(qp->type, "UD"))
		return false;
	*why = why_dropped(r, post);
	return true;
}

void check_datagrams(const struct report *r, struct causes *all)
{
	if (r->sides > 1)
		first_wrong(r, all, judge_datagram);
}

/*
 * 到不了对端的 send：不管它有没有 completion、是什么 status，它自己的 SGE、lkey、opcode 错没错，
 * 一看便知。有的程序不看 completion，UC 与 UD 的又总说成功。
 */
static bool judge_request(const struct report *r, const struct qp *qp,
			  const struct event *post, struct explanation *why)
{
	if (post->arrival != NOWHERE ||
	    (strcmp(qp->type, "RC") == 0 && !came_to_nothing(r, post)))
		return false;
	*why = world_explain(r, qp, post, post->t, IBV_WC_LOC_PROT_ERR);
	if (!why->id)
		*why = world_explain(r, qp, post, post->t,
				     IBV_WC_LOC_QP_OP_ERR);
	return true;
}

void check_own_requests(const struct report *r, struct causes *all)
{
	first_wrong(r, all, judge_request);
}

/* 已经说了它的对端在 ERR：那里的 receive 是被冲刷掉的，不是没有 post。*/
static bool peer_is_down(const struct causes *all, const struct qp *qp)
{
	for (size_t i = 0; i < all->count; i++)
		if (!strcmp(all->items[i].id, "peer-in-error") &&
		    all->items[i].side == qp->side &&
		    all->items[i].qp == qp->id)
			return true;
	return false;
}

static void count_receives(const struct report *r, const struct qp *qp,
			   struct explanation *why)
{
	bool shared = json_object_get(qp->first, "srq") != NULL;
	size_t posted = 0, used = 0;

	EACH(i, shared ? &r->side[qp->side].own : &qp->own) {
		const struct event *e = &r->events[i];

		posted += e->class == CLASS_POST_RECV && !e->refused;
		used += is_arrival(e);
	}
	also_seen(why, "receives-used", "%s\t%zu\t%zu",
		  shared ? "the SRQ" : "this QP", posted, used);
}

/* @qp 的第一条该到而没有到的消息。*/
static size_t first_unreceived(const struct report *r, const struct qp *qp)
{
	EACH(i, &qp->own) {
		const struct event *post = &r->events[i];

		if (takes_receive(post) && post->arrival == NOWHERE &&
		    (came_to_nothing(r, post) || !strcmp(qp->type, "UC")))
			return i;
	}
	return NOWHERE;
}

void check_receives(const struct report *r, struct causes *all)
{
	const struct qp *sender = NULL;
	struct explanation why;
	size_t first = NOWHERE;
	char name[80];

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		size_t at;

		if (!qp->peer || !strcmp(qp->type, "UD") ||
		    peer_is_down(all, qp))
			continue;
		at = first_unreceived(r, qp);
		if (at >= first || receives_left(r, qp->peer) > 0)
			continue;
		first = at;
		sender = qp;
	}
	if (!sender)
		return;
	why = because("no-receive-posted", "%s",
		      world_name(r, name, sizeof(name), sender->peer));
	count_receives(r, sender->peer, &why);
	cause_add(r, all, first, sender, &why);
}

/* ---- CQ 装不装得下 -------------------------------------------------------- */

/* @cq 里也许有、也许将有的 completion。*/
struct room {
	uint64_t now, most; /* outstanding */
};

static struct room outstanding_in(const struct report *r, int side, uint64_t cq)
{
	struct room n = { 0 };
	size_t looked = 0;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);
		bool send = e->class == CLASS_POST_SEND;

		if (e->class == CLASS_COMPLETION && e->cq == cq && n.now)
			n.now--;
		if (looked >= MOST_POSTS || !qp || e->refused || e->gone ||
		    (!send && e->class != CLASS_POST_RECV) ||
		    number_in(qp->first, send ? "send_cq" : "recv_cq") != cq)
			continue;
		looked++;
		n.now += makes_completion(r, qp, e);
		if (n.now > n.most)
			n.most = n.now;
	}
	return n;
}

void check_cq_room(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];
		struct room n = { 0 };
		uint64_t room;
		json_t *line;

		if (strcmp(e->ev, "create_cq"))
			continue;
		line = event_line(r, e);
		room = number_in(line, "cqe");
		if (room)
			n = outstanding_in(r, e->side, number_in(line, "cq"));
		if (n.most > room && n.now) {
			why = because("cq-overrun");
			also_seen(&why, "cq-room", "%ju\t%ju\t%ju",
				  number_in(line, "cq"), room, n.most);
			cause_add(r, all, i, NULL, &why);
		}
		json_decref(line);
	}
}

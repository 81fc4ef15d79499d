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

/* 几段的请求，自己说有错：rxe 的 provider 把长度加错了。*/
static struct explanation ask_pieces(const struct report *r,
				     const struct cause *cause)
{
	static const char *const own[] = { "LOC_LEN_ERR", "LOC_QP_OP_ERR",
					   "LOC_PROT_ERR", "WR_FLUSH_ERR" };
	const struct qp *qp = qp_of(r, cause->side, cause->qp);
	const struct event *post = post_of(r, cause);
	uint64_t sges = post ? event_number(r, post, "sges") : 0;

	if (sges < 2 || !qp || !value_in(qp->first, "send_ops") ||
	    post->class != CLASS_POST_SEND ||
	    !IS_ONE_OF(text_in(cause->line, "status"), own))
		return (struct explanation){ 0 };
	return because("sge-list", "%ju", sges);
}

/* 要失效的 rkey：只有 bind 过的 memory window 才行。*/
static struct explanation ask_invalidation(const struct report *r,
					   const struct cause *cause)
{
	static const char *const ops[] = { "LOCAL_INV", "SEND_WITH_INV" };
	const struct event *post = post_of(r, cause);
	struct recalled wr;

	if (!post || !IS_ONE_OF(post->op, ops))
		return (struct explanation){ 0 };
	world_recall(r, post, &wr);
	return because("inv-refused", "%s\t0x%x", post->op,
		       wr.send.wr.rdma.rkey);
}

struct explanation why_by_kind(const struct report *r,
			       const struct cause *cause)
{
	struct explanation why = ask_pieces(r, cause);

	return why.id ? why : ask_invalidation(r, cause);
}

/* @qp 发往的那个 QP 连着别人，而那一个也发往它：两个 QP 拿到了同一个对端。*/
void find_sharer(const struct report *r, const struct qp *qp,
		 struct explanation *why)
{
	int64_t to = qp ? qp_believes(qp, "dest_qpn") : -1, back = -1;
	char names[2][80];

	for (size_t i = 0; i < r->qp_count && to >= 0; i++)
		if ((int64_t)r->qps[i].qpn == to)
			back = qp_believes(&r->qps[i], "dest_qpn");
	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *other = &r->qps[i];

		if (back >= 0 && back != (int64_t)qp->qpn && other != qp &&
		    (int64_t)other->qpn == back &&
		    qp_believes(other, "dest_qpn") == to &&
		    !strcmp(text_in(other->believes, "dgid"),
			    text_in(qp->believes, "dgid")))
			*why = because("qpn-shared", "%s\t%s\t%jd\t%jd",
				       world_name(r, names[0], sizeof(names[0]),
						  qp),
				       world_name(r, names[1], sizeof(names[1]),
						  other),
				       (intmax_t)to, (intmax_t)back);
	}
}

/* @qp 在 @until 之前被自己的程序拆了，或者带离了 RTS；没有：NULL。*/
static const char *how_closed(const struct report *r, const struct qp *qp,
			      size_t until, int64_t *when)
{
	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];

		if (i > until || e->class == CLASS_FAILURE)
			continue;
		*when = e->t;
		if (!strcmp(e->ev, "destroy_qp"))
			return "was destroyed by its own program";
		if (strcmp(e->ev, "modify_qp"))
			continue;
		if (event_says(r, e, "to", "ERR"))
			return "was moved to ERR by its own program";
		if (event_says(r, e, "to", "RESET") && got_to(r, qp, "RTR") &&
		    event_says(r, e, "from", "RTS"))
			return "was moved to RESET by its own program";
	}
	return NULL;
}

/*
 * 只知道没有 ACK，或者对端在 ERR、没有了：它的记录里，是它自己的程序先拆了那个 QP，或者把它带离了
 * RTS。
 */
void find_closer(const struct report *r, struct cause *cause)
{
	static const char *const ids[] = { "RETRY_EXC_ERR", "peer-in-error",
					   "peer-qp-absent" };
	const struct qp *qp = qp_of(r, cause->side, cause->qp);
	struct explanation why;
	const char *how;
	int64_t when = 0;
	char name[80];

	if (cause->kind != CAUSE_FAILURE || !IS_ONE_OF(cause->id, ids) || !qp ||
	    !qp->peer || !got_to(r, qp->peer, "RTR"))
		return;
	how = how_closed(r, qp->peer, cause->event, &when);
	if (!how)
		return;
	why = because("peer-closed", "%s\t%s\t%.1f",
		      world_name(r, name, sizeof(name), qp->peer), how,
		      (double)(r->events[cause->event].t - when) / 1e6);
	cause_restate(cause, &why);
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

/*
 * 别的哪一侧的 UD QP 是 @qpn，没有就看自己这一侧；@qpn 为 0：别的一侧的任何一个，只有一个才说得出
 * 本该是谁。
 */
static const struct qp *datagram_qp(const struct report *r, int from,
				    uint64_t qpn)
{
	const struct qp *found = NULL;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];

		if (strcmp(qp->type, "UD") || (qpn && qp->qpn != qpn) ||
		    (!qpn && qp->side == from))
			continue;
		if (qpn && qp->side != from)
			return qp;
		if (!qpn && found)
			return NULL;
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

/* @dev 的 active_mtu；0：没有记下。*/
static uint64_t mtu_of_device(const struct report *r, const char *dev)
{
	for (size_t i = 0; i < r->count; i++)
		if (!strcmp(r->events[i].ev, "port") &&
		    event_says(r, &r->events[i], "dev", dev))
			return event_number(r, &r->events[i], "active_mtu");
	return 0;
}

#define GRH_BYTES 40

/* 发往 @to 的比到了的多，而 @post 那时 @to 没有 receive，或者放不下；或者它超过一个包。*/
static struct explanation why_not_taken(const struct report *r,
					const struct event *post,
					const struct qp *to, uint64_t length)
{
	uint64_t mtu = mtu_of_device(r, to->dev), room = 0;
	size_t sent = 0, came = 0, waiting = 0;
	struct explanation why;
	char name[80];

	for (size_t i = 0; i < r->count; i++)
		sent += r->events[i].class == CLASS_POST_SEND &&
			r->events[i].remote_qpn == to->qpn &&
			delivers(r, &r->events[i]);
	EACH(i, &to->own) {
		const struct event *e = &r->events[i];

		came += is_arrival(e);
		if (e->class == CLASS_POST_RECV && !e->refused && e < post &&
		    (e->complete == NOWHERE ||
		     &r->events[e->complete] > post) &&
		    !waiting++)
			room = event_number(r, e, "len");
	}
	if (sent <= came || json_object_get(to->first, "srq"))
		return (struct explanation){ 0 };
	if (mtu && length > mtu)
		return because("ud-too-long", "%ju\t%ju", length, mtu);
	if (!waiting)
		return because("no-receive-posted", "%s",
			       world_name(r, name, sizeof(name), to));
	if (room >= length + GRH_BYTES)
		return (struct explanation){ 0 };
	why = because("ud-no-grh-room", "%ju", room);
	also_seen(&why, "message", "%ju", length);
	return why;
}

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
		return why_not_taken(r, post, to, wr.sge.length);
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
	first_wrong(r, all, judge_datagram);
}

/* 没有谁失败，@side 却说不对：它用过的东西里，哪一样的内容最容易读错。NULL：没有。*/
static const char *const *misread(const struct report *r, int side)
{
	static const char *const words[][2] = {
		{ "the message begins at byte 40 of a UD receive, behind the "
		  "GRH",
		  "read the message at buffer + 40, and take its length as "
		  "byte_len - 40" },
		{ "a compare-and-swap returns the old value, and swaps only if "
		  "that is equal to compare_add",
		  "compare_add and swap are values (uint64_t, host byte "
		  "order), not addresses of values; compare what came back "
		  "with compare_add" },
		{ "imm_data is in network byte order",
		  "call htonl() once before posting it, and ntohl() once on "
		  "wc.imm_data" },
	};
	int found = -1;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, side, e->qp);
		int use = -1;

		if (e->class == CLASS_COMPLETION && !went_well(e))
			return NULL;
		if (qp && !strcmp(qp->type, "UD") && is_arrival(e))
			use = 0;
		else if (!strcmp(e->op, "ATOMIC_CMP_AND_SWP"))
			use = 1;
		else if (strstr(e->op, "_IMM"))
			use = 2;
		if (use >= 0 && (found < 0 || use < found))
			found = use;
	}
	return found < 0 ? NULL : words[found];
}

void check_payload(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (int s = 0; s < r->sides && !is_suggested(all); s++) {
		const char *const *words =
			r->side[s].ended && gave_up(&r->side[s]) ? misread(r, s)
								 : NULL;

		if (!words)
			continue;
		why = because("data-differs", "%s\t%s\t%s", r->side[s].name,
			      words[0], words[1]);
		cause_suggest(r, all, last_of(r, s), &why);
	}
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
	int64_t when;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		size_t at;

		if (!qp->peer || !strcmp(qp->type, "UD") ||
		    peer_is_down(all, qp))
			continue;
		at = first_unreceived(r, qp);
		if (at == NOWHERE || how_closed(r, qp->peer, at, &when) ||
		    at >= first || receives_left(r, qp->peer) > 0)
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

/* 停下时 @side 有一个 QP 在 ERR，而没有一个坏 completion：CQ 满了就是这样。*/
static bool in_error_silently(const struct report *r, int side)
{
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, side, e->qp);

		if (qp && !qp->bad && !strcmp(e->ev, "stall") &&
		    event_says(r, e, "kernel_state", "ERR"))
			return true;
	}
	return false;
}

/* SRQ 里的 receive，完成在用它的 QP 的 CQ 里。*/
static const struct qp *user_of(const struct report *r, const struct event *e)
{
	for (size_t i = 0; e->owner_kind == OBJECT_SRQ && i < r->qp_count; i++)
		if (r->qps[i].side == e->side &&
		    number_in(r->qps[i].first, "srq") == e->owner)
			return &r->qps[i];
	return qp_of(r, e->side, e->qp);
}

static struct room outstanding_in(const struct report *r, int side, uint64_t cq)
{
	bool shared = in_error_silently(r, side);
	struct room n = { 0 };
	size_t looked = 0;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp =
			shared ? user_of(r, e) : qp_of(r, e->side, e->qp);
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

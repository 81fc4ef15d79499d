// SPDX-License-Identifier: MIT
/*
 * blame.c —— 两份记录合起来证明了什么；什么是因，什么是果
 *
 * 每一端只说得出自己看见的：“对端不应答”“对端拒绝了我”。对端的记录里有另一半，这里
 * 把它们合起来，说不准的话就换成说得准的。然后排次序：证明了的在前；别人先失败所引起的
 * （flush、对端不见了、一直等）是后果；等过又等到了的，什么也不是，只是提示。
 */
#include "rules.h"

#include <string.h>

/* ---- 失败的 completion 与停顿：对端的那一半 --------------------------------- */

static struct explanation ask(const struct report *r, const struct cause *cause)
{
	const struct qp *qp = qp_of(r, cause->side, cause->qp);
	const struct event *post = post_of(r, cause);
	enum ibv_wc_status status = status_of(text_in(cause->line, "status"));
	int64_t t = post ? post->t : r->events[cause->event].t;
	struct explanation why;

	if (!qp)
		return (struct explanation){ 0 };
	/* 6.12 起，自己的错也报 flush。*/
	why = status == IBV_WC_WR_FLUSH_ERR
		      ? world_explain(r, qp, post, t, status)
		      : (struct explanation){ 0 };
	if (why.id)
		return why;
	if (cause->kind == CAUSE_STALL || status == IBV_WC_SUCCESS ||
	    status == IBV_WC_WR_FLUSH_ERR)
		status = IBV_WC_RETRY_EXC_ERR;
	why = world_explain(r, qp, post, t, status);
	/* post 的时候还好好的，做的时候 MR 已经没有了。*/
	if (!why.id && post && status != IBV_WC_RETRY_EXC_ERR)
		why = world_explain(r, qp, post, r->events[cause->event].t,
				    status);
	return why;
}

/*
 * 重试用完时，出事的一端只有整个设备的 RNR 计数可看。对端的记录说 receive 还有，那就不是
 * receive。
 */
static bool has_receives(const struct report *r, const struct cause *cause)
{
	const struct qp *qp = qp_of(r, cause->side, cause->qp);

	return !strcmp(cause->id, "no-receive-posted") && !cause->proven &&
	       strcmp(text_in(cause->line, "status"), "RNR_RETRY_EXC_ERR") &&
	       qp && qp->peer && receives_left(r, qp->peer) > 0;
}

/* 错在自己的请求里。*/
static bool is_local(const struct cause *cause)
{
	static const char *const statuses[] = { "LOC_LEN_ERR", "LOC_QP_OP_ERR",
						"LOC_PROT_ERR" };

	return IS_ONE_OF(text_in(cause->line, "status"), statuses);
}

/*
 * “对端都收到了，丢的是 ACK”是从 PSN 推出来的，“路上丢了”说不出丢了多少。两份记录里一个
 * completion 也没有成功，而要用掉 receive 的，receive 还都在，那就是什么也没有到。
 */
static bool nothing_came(const struct report *r, const struct cause *cause)
{
	const struct qp *qp = qp_of(r, cause->side, cause->qp);
	const struct event *post = post_of(r, cause);

	if (!post || !qp || !qp->peer || got_through(r, qp))
		return false;
	if (takes_receive(post) && receives_left(r, qp->peer) <= 0)
		return false;
	return !strcmp(cause->id, "lost-on-the-way") ||
	       (!strcmp(cause->id, "acks-lost") && takes_receive(post));
}

static void doubt_receives(const struct report *r, struct cause *cause)
{
	const struct explanation nothing =
		because("nothing-arrives", "%s", r->side[cause->side].name);
	const struct explanation why = because("lost-on-the-way");

	if (!has_receives(r, cause) && !nothing_came(r, cause))
		return;
	cause_restate(cause, got_through(r, qp_of(r, cause->side, cause->qp))
				     ? &why
				     : &nothing);
	cause->proven = false;
}

/*
 * 一个 QP 的请求若都用同一个 wr_id（perftest 如此），坏 completion 说的是哪一个就认不准。同一
 * 个 QP 上没有做成的（send 与 receive），挨个看：能证明错了的那一个就是。
 */
static struct explanation ask_posts(const struct report *r, const struct qp *qp,
				    enum event_class class,
				    enum ibv_wc_status status)
{
	struct explanation why = { 0 };
	size_t looked = 0;

	if (!qp)
		return why;
	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];

		if (looked >= MOST_POSTS || why.id || e->refused ||
		    e->class != class || !came_to_nothing(r, e))
			continue;
		looked++;
		why = world_explain(r, qp, e, e->t, status);
	}
	return why;
}

static struct explanation ask_others(const struct report *r,
				     const struct cause *cause)
{
	const struct qp *qp = qp_of(r, cause->side, cause->qp);
	enum ibv_wc_status status = status_of(text_in(cause->line, "status"));
	struct explanation why = ask_posts(r, qp, CLASS_POST_SEND, status);

	/* 只问 SGE：每个 receive 都可能“太短”。*/
	if (!why.id)
		why = ask_posts(r, qp, CLASS_POST_RECV, IBV_WC_LOC_PROT_ERR);
	return why;
}

/* 对端自己的 completion 说了它的 receive 错在哪里：那一端的话才是原因。*/
static bool peer_tells(const struct report *r, const struct causes *all,
		       const struct cause *cause)
{
	const struct qp *qp = qp_of(r, cause->side, cause->qp);

	if (strcmp(text_in(cause->line, "status"), "REM_OP_ERR") || !qp ||
	    !qp->peer)
		return false;
	for (const struct cause *c = all->items; c < all->items + all->count;
	     c++)
		if (c->side == qp->peer->side && c->qp == qp->peer->id &&
		    c->kind == CAUSE_FAILURE && is_local(c))
			return true;
	return false;
}

static void resolve(const struct report *r, struct cause *cause)
{
	bool about_data = !strcmp(text_in(cause->line, "about"), "completion");
	struct explanation why;

	if (!cause_is_vague(cause->id) || was_done(r, cause))
		if (cause->kind != CAUSE_FAILURE || !cause_is_vague(cause->id))
			return;
	if (cause->kind != CAUSE_STALL && !about_data)
		return;
	why = ask(r, cause);
	if (!why.id && is_local(cause))
		why = ask_others(r, cause);
	if (!why.id)
		why = why_by_kind(r, cause);
	if (!why.id || !strcmp(why.id, "qpn-differs"))
		find_sharer(r, qp_of(r, cause->side, cause->qp), &why);
	if (why.id)
		cause_restate(cause, &why);
}

/*
 * 收的一端说 receive 太短；可是发的那一端的 SGE 自己就伸出了它的 MR：rxe 一个包一个包地取，
 * 前面的包早已把 receive 撑破。错的是长度，不是 receive。
 */
static void blame_sender(const struct report *r, struct causes *all)
{
	struct cause *small = NULL;
	struct explanation why;

	for (size_t i = 0; i < all->count; i++)
		if (!strcmp(all->items[i].id, "recv-too-small"))
			small = &all->items[i];
	for (size_t i = 0; small && i < r->count; i++) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);

		if (!qp || !takes_receive(e) || !came_to_nothing(r, e))
			continue;
		why = world_explain(r, qp, e, e->t, IBV_WC_LOC_PROT_ERR);
		if (!why.id)
			continue;
		small->kind = CAUSE_AFTERMATH;
		cause_add(r, all, i, qp, &why);
		return;
	}
}

static bool shares_cq(const struct qp *a, const struct qp *b)
{
	uint64_t send = number_in(b->first, "send_cq");
	uint64_t recv = number_in(b->first, "recv_cq");

	return number_in(a->first, "send_cq") == send ||
	       number_in(a->first, "send_cq") == recv ||
	       number_in(a->first, "recv_cq") == send ||
	       number_in(a->first, "recv_cq") == recv;
}

/*
 * @qp（NULL：@side 的任何一个）的 CQ 里也许有没取的：自己还没完成的 send，或者对方发了、这边还
 * 没收到的。
 */
static bool may_lie_unread(const struct report *r, int side,
			   const struct qp *qp)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];
		const struct qp *by = qp_of(r, e->side, e->qp), *in;

		if (e->class != CLASS_POST_SEND || e->refused)
			continue;
		in = by && e->side != side ? by->peer : by;
		if (in && in->side != side)
			continue;
		if (qp && in && !shares_cq(in, qp))
			continue;
		if (e->side == side
			    ? e->complete == NOWHERE &&
				      (!by || makes_completion(r, by, e))
			    : takes_receive(e) && e->arrival == NOWHERE)
			return true;
	}
	return false;
}

/* 那一次停顿以后，同一边又有了 completion，或者同一个 QP 停下来等的是别的了。*/
static bool went_on(const struct report *r, const struct cause *cause)
{
	for (size_t i = cause->event + 1; i < r->count; i++) {
		const struct event *e = &r->events[i];

		if (e->side != cause->side)
			continue;
		if (e->class == CLASS_COMPLETION)
			return true;
		if (!strcmp(e->ev, "stall") && e->qp == cause->qp &&
		    !event_says(r, e, "id", cause->id))
			return true;
	}
	return false;
}

/* 它在看另一个 CQ，而那里还会有：它等的是那里的。*/
static bool looks_elsewhere(const struct report *r, const struct qp *qp)
{
	size_t where;
	json_t *at = qp ? stopped_at(r, qp->side, &where) : NULL;
	uint64_t cq = at ? number_in(at, "cq") : 0;
	bool found = cq && cq != number_in(qp->first, "send_cq") &&
		     cq != number_in(qp->first, "recv_cq") &&
		     !waits_for_nothing(r, qp->side, at);

	json_decref(at);
	return found;
}

/*
 * 说没有人 poll 的那一边，CQ 是空的：那就什么也不是。后来还是 poll 了：机器太忙，poll 着的线程
 * 有一阵没有轮到。
 */
static void doubt_unread(const struct report *r, struct cause *cause)
{
	const struct qp *qp = qp_of(r, cause->side, cause->qp);
	struct explanation why;

	if (!r->side[cause->side].other_count || cause->kind != CAUSE_STALL ||
	    strcmp(cause->id, "nobody-polls"))
		return;
	if (!may_lie_unread(r, cause->side, qp)) {
		cause->kind = CAUSE_AFTERMATH;
		return;
	}
	if (went_on(r, cause) || looks_elsewhere(r, qp)) {
		cause->kind = CAUSE_HINT;
		return;
	}
	/* 不用 ibv_get_cq_event 而用 poll() 等 channel 的，记录器当场看不出是在睡。*/
	why = why_no_event_for(r, qp);
	if (why.id)
		cause_restate(cause, &why);
}

/*
 * 没有 SIGNALED 的 send 已经到了，自己又还有 receive 在等：多半等的是对方的消息，而不是这个
 * completion。
 */
static void doubt_unsignaled(const struct report *r, struct cause *cause)
{
	const struct qp *qp = qp_of(r, cause->side, cause->qp);
	const struct event *post = post_of(r, cause);

	if (cause->kind == CAUSE_STALL && !strcmp(cause->id, "unsignaled") &&
	    post && post->arrival != NOWHERE && qp && receives_left(r, qp) > 0)
		cause->kind = CAUSE_HINT;
}

/* 有谁失败了、没有等到，或者没有做成。*/
static bool is_trouble(const struct report *r, const struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].kind == CAUSE_FAILURE ||
		    (all->items[i].kind == CAUSE_STALL &&
		     !was_done(r, &all->items[i])))
			return true;
	for (int s = 0; s < r->sides; s++)
		if (gave_up(&r->side[s]))
			return true;
	return false;
}

/* ---- 收下时警告过的 --------------------------------------------------------- */

static bool reads(const struct report *r, const struct qp *qp)
{
	if (!qp)
		return false;
	EACH(i, &qp->own)
		if (r->events[i].class == CLASS_POST_SEND &&
		    (!strcmp(r->events[i].op, "RDMA_READ") ||
		     !strncmp(r->events[i].op, "ATOMIC", 6)))
			return true;
	return false;
}

/* 警告过“会永远不返回”的调用，真的没有返回。*/
static bool never_returned(const struct report *r, const struct cause *cause)
{
	static const char *const ids[] = { "events-not-acked",
					   "events-acked-twice",
					   "cm-event-not-acked" };
	bool cm = !strncmp(cause->id, "cm-", 3);
	const char *call = cm ? "rdma_destroy_id" : "destroy_cq";

	return cause->kind == CAUSE_WARNING && IS_ONE_OF(cause->id, ids) &&
	       !r->side[cause->side].ended &&
	       (any_thread_in(r, cause->side, call) ||
		(cm && any_thread_in(r, cause->side, "rdma_migrate_id")) ||
		!is_after(last_event(r, cause->side, call, NULL),
			  cause->event));
}

/* 它此刻就停在那里：早先失败过什么，它自己已经处理了。*/
static void believe_hangs(const struct report *r, struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (never_returned(r, &all->items[i])) {
			all->items[i].kind = CAUSE_FAILURE;
			all->items[i].proven = true;
		}
}

/* 等事件的调用没有等到就返回了，此后它什么也没有做，就说没有做成。*/
static bool gave_up_waiting(const struct report *r, const struct cause *cause)
{
	EACH(i, &r->side[cause->side].own)
		if (i > cause->event &&
		    (is_data(&r->events[i]) ||
		     !strncmp(r->events[i].ev, "rdma_event", 10)))
			return false;
	return r->side[cause->side].ended && gave_up(&r->side[cause->side]);
}

/* 出了事，而早先收下的值正会出这样的事。*/
static bool came_true(const struct report *r, const struct cause *cause)
{
	static const char *const sure[] = { "wrong-mac", "end-poll-alone",
					    "next-poll-ahead",
					    "pair-not-ended" };
	static const char *const mild[] = {
		"no-wr-functions",	"retry-forever",
		"timeout-zero",		"retry-too-large",
		"rnr-retry-too-large",	"rnr-timer-too-large",
		"path-mtu-above-active"
	};
	const struct qp *qp = qp_of(r, cause->side, cause->qp);

	if (cause->kind != CAUSE_WARNING)
		return false;
	if (strstr(cause->id, "-acked"))
		return false;
	if (!cause->qp && (!strcmp(cause->id, "netdev-down") ||
			   !strcmp(cause->id, "no-carrier")))
		return number_in(cause->line, "idle") ||
		       !is_connected(r, cause->side);
	if (!strncmp(cause->id, "wait-", 5))
		return gave_up_waiting(r, cause);
	if (IS_ONE_OF(cause->id, sure))
		return true;
	if (!qp)
		return false;
	if (!strcmp(cause->id, "rd-atomic-zero"))
		return reads(r, qp) &&
		       !number_in(qp->believes, "max_rd_atomic");
	if (!strcmp(cause->id, "dest-rd-atomic-zero"))
		return reads(r, qp->peer) &&
		       !number_in(qp->believes, "max_dest_rd_atomic");
	return !IS_ONE_OF(cause->id, mild);
}

static void believe_warnings(const struct report *r, struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (came_true(r, &all->items[i])) {
			all->items[i].kind = CAUSE_FAILURE;
			all->items[i].proven = true;
		}
}

/* 往 librdmacm 还停在 INIT 的 QP 上 post：缺的不是 modify_qp，是 rdma_connect 或 rdma_accept。*/
static struct explanation missing_cm_call(const struct report *r, int side)
{
	if (never_connected(r, side))
		return because("cm-not-connected", "%s", r->side[side].name);
	if (never_accepted(r, side))
		return because("cm-not-accepted", "%s", r->side[side].name);
	return (struct explanation){ 0 };
}

/* librdmacm 的一个调用失败了，是因为它里面的 ibv_ 调用失败了。*/
static bool failed_within(const struct report *r, const struct causes *all,
			  const struct cause *c)
{
	const struct event *outer = &r->events[c->event];
	int64_t end = returned_at(r, outer);

	for (size_t i = 0; i < all->count; i++) {
		const struct event *e = &r->events[all->items[i].event];

		if (all->items[i].kind == CAUSE_FAILURE &&
		    e->class == CLASS_FAILURE && e->side == outer->side &&
		    strncmp(e->ev, "rdma_", 5) && e->t >= outer->t &&
		    e->t <= end)
			return true;
	}
	return false;
}

/*
 * 第二次 rdma_accept 又去碰已经连好的 QP：那里的“没有路”是它的后果。没有 QP 的 rdma_accept 告诉
 * 对端的 QPN 是 0。
 */
static void follow_cm(const struct report *r, struct causes *all)
{
	bool again = false, bare = false;

	for (size_t i = 0; i < all->count; i++)
		if (!strncmp(all->items[i].id, "cm-", 3) &&
		    all->items[i].kind == CAUSE_FAILURE &&
		    failed_within(r, all, &all->items[i]))
			all->items[i].kind = CAUSE_AFTERMATH;
	for (size_t i = 0; i < all->count; i++) {
		struct cause *c = &all->items[i];
		struct explanation why = { 0 };

		if (!strcmp(c->id, "cm-order"))
			why = why_out_of_order(r, c);
		if (why.id)
			cause_restate(c, &why);
		c->proven = c->proven && !why.id;
		again = again || !strcmp(c->id, "cm-state");
		bare = bare || !strcmp(c->id, "cm-without-qp");
	}
	for (size_t i = 0; i < all->count; i++) {
		struct cause *c = &all->items[i];
		struct explanation why = { 0 };

		if ((again && !strcmp(c->id, "no-way")) ||
		    (bare && !strcmp(c->id, "qpn-not-set")))
			c->kind = CAUSE_AFTERMATH;
		if (!strcmp(c->id, "send-too-early"))
			why = missing_cm_call(r, c->side);
		if (!strcmp(c->id, "cm-port-in-use"))
			why = why_port_in_use(r, c);
		if (strstr(text_in(c->line, "seen"), "cm-addresses"))
			why = why_no_address(r, c);
		if (why.id)
			cause_restate(c, &why);
	}
}

/* 没有 IBV_QP_STATE 的 modify_qp 什么也没有做；之后“没有路”是它的后果。*/
static void forgot_state(struct causes *all)
{
	static const char *const late[] = { "no-way", "send-too-early",
					    "qp-too-early", "recv-too-early" };
	static const char *const early[] = { "state-bit-forgotten",
					     "mask-empty" };
	struct cause *first = NULL;

	for (size_t i = 0; i < all->count; i++)
		if (IS_ONE_OF(all->items[i].id, early))
			first = &all->items[i];
	for (size_t i = 0; first && i < all->count; i++) {
		struct cause *c = &all->items[i];

		if (c->side != first->side || !IS_ONE_OF(c->id, late))
			continue;
		c->kind = CAUSE_AFTERMATH;
		first->kind = CAUSE_FAILURE;
		first->proven = true;
	}
}

/* receive 用完了，因为该再 post 的那个线程睡着了。*/
static void follow_sleepers(const struct report *r, struct causes *all)
{
	for (size_t i = 0; i < all->count; i++) {
		const struct qp *qp =
			qp_of(r, all->items[i].side, all->items[i].qp);

		if (strcmp(all->items[i].id, "no-receive-posted") || !qp ||
		    !qp->peer)
			continue;
		check_sleepers(r, all);
		for (size_t k = 0; k < all->count; k++)
			if (!strcmp(all->items[k].id, "peer-asleep") &&
			    all->items[k].side == qp->peer->side) {
				all->items[i].kind = CAUSE_AFTERMATH;
				all->items[k].kind = CAUSE_FAILURE;
			}
	}
}

/* ---- 因与果 ---------------------------------------------------------------- */

/* 失败了，而且知道是为什么。*/
static bool is_committed(const struct cause *cause)
{
	return cause->kind == CAUSE_FAILURE && !cause_is_vague(cause->id);
}

static bool has_committed(const struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (is_committed(&all->items[i]))
			return true;
	return false;
}

/* 另有失败时，这些就是它的后果：对端已经倒下，自己的 QP 已在 ERR，连接被拒绝。*/
static bool is_consequence(const struct cause *cause)
{
	static const char *const ids[] = {
		"WR_FLUSH_ERR",	    "peer-in-error", "peer-qp-absent",
		"qp-in-error",	    "cm-refused",    "cm-refused-by-peer",
		"cm-connect-error",
	};

	return IS_ONE_OF(cause->id, ids);
}

struct verdict {
	bool committed, failed, rooted, sure, suggested;
};

static struct verdict look_over(const struct report *r, struct causes *all)
{
	struct verdict v = { .committed = has_committed(all) };

	for (size_t i = 0; i < all->count; i++) {
		struct cause *c = &all->items[i];
		bool fails = c->kind == CAUSE_FAILURE;

		if (c->kind == CAUSE_STALL && was_done(r, c))
			c->kind = CAUSE_HINT;
		v.failed = v.failed || fails;
		v.suggested =
			v.suggested || (c->kind == CAUSE_HINT && c->proven);
		v.rooted = v.rooted || (fails && !is_consequence(c));
		v.sure = v.sure || (c->kind == CAUSE_STALL && !is_weak(c));
	}
	return v;
}

static void rank(const struct report *r, struct causes *all)
{
	const struct verdict v = look_over(r, all);

	for (size_t i = 0; i < all->count; i++) {
		struct cause *c = &all->items[i];

		if (v.committed && !is_committed(c) && c->kind <= CAUSE_HINT)
			c->kind = CAUSE_AFTERMATH;
		else if (v.rooted && is_consequence(c) && c->kind <= CAUSE_HINT)
			c->kind = CAUSE_AFTERMATH;
		else if (c->kind == CAUSE_STALL &&
			 (v.failed || cause_is_vague(c->id) ||
			  ((v.sure || v.suggested) && is_weak(c))))
			c->kind = CAUSE_HINT;
	}
}

/* 都以 0 结束：失败过的，是打听、重试，或者它们不在乎。*/
static bool ended_well(const struct report *r)
{
	for (int s = 0; s < r->sides; s++)
		if (!r->side[s].ended || r->side[s].code)
			return false;
	return true;
}

/*
 * 打听不会弄出这样的 completion：写错了的请求。此后又有做成了的，就是它自己收拾好了；再没有，
 * 就只是退出码没有说。
 */
static bool is_broken(const struct report *r, const struct cause *cause)
{
	static const char *const statuses[] = { "REM_ACCESS_ERR",
						"REM_INV_REQ_ERR",
						"REM_OP_ERR" };
	size_t i = r->count;

	if (cause->kind != CAUSE_FAILURE ||
	    strcmp(text_in(cause->line, "about"), "completion") ||
	    (!is_local(cause) &&
	     !IS_ONE_OF(text_in(cause->line, "status"), statuses)))
		return false;
	while (--i > cause->event)
		if (r->events[i].side == cause->side &&
		    went_well(&r->events[i]))
			return false;
	return true;
}

static void excuse(const struct report *r, struct causes *all)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].kind <= CAUSE_HINT &&
		    !is_broken(r, &all->items[i])) {
			all->items[i].kind = CAUSE_HINT;
			all->items[i].over = cause_is_vague(all->items[i].id);
		}
}

/* 停下时看见的，说的只是“也许”，而对端的记录没有证明它。*/
static bool is_only_hint(const struct report *r, const struct cause *cause)
{
	return cause->kind == CAUSE_STALL && !cause->proven &&
	       !r->side[cause->side].other_count &&
	       !strcmp(text_in(cause->line, "kind"), "hint");
}

void report_blame(const struct report *r, struct causes *all)
{
	static rule *const rules[] = {
		compare_pairs,	      check_writes,	check_own_requests,
		check_datagrams,      believe_warnings, check_silent_write,
		check_dead,	      check_used_after, check_crash,
		check_half_open,      check_forked,	check_cm,
		check_lengths,	      check_doubled,	check_cq_room,
		check_surplus,	      check_receives,	check_unsignaled,
		check_unread_event,   check_lost,	check_tcp,
		check_no_cm_event,    check_sleepers,	check_idle_thread,
		check_nothing_posted, check_exchange,	check_late_arm,
		check_untaken,	      check_stuck,	check_deadlock,
		check_not_flushed,    check_all_taken,	suspect_exchange,
		check_reuse,	      check_peer_gone,	check_payload,
		check_none_opened,    tell_direction,
	};

	for (size_t i = 0; i < all->count; i++) {
		doubt_receives(r, &all->items[i]);
		doubt_unread(r, &all->items[i]);
		doubt_unsignaled(r, &all->items[i]);
	}
	forgot_state(all);
	weigh_failures(r, all);
	believe_hangs(r, all);
	blame_sender(r, all);
	follow_cm(r, all);
	blame_other_thread(r, all);
	for (size_t i = 0; i < all->count; i++)
		if ((all->items[i].kind == CAUSE_FAILURE &&
		     !peer_tells(r, all, &all->items[i])) ||
		    (all->items[i].kind == CAUSE_STALL && !has_committed(all)))
			resolve(r, &all->items[i]);
	follow_sleepers(r, all);
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (!has_committed(all) && is_trouble(r, all))
			rules[i](r, all);
	for (size_t i = 0; i < all->count; i++)
		find_closer(r, &all->items[i]);
	rank(r, all);
	for (size_t i = 0; i < all->count; i++)
		if (is_only_hint(r, &all->items[i]))
			all->items[i].kind = CAUSE_HINT;
	/* 正在说的，是刚失败的调用：不等它怎样结束。*/
	if (!r->by && ended_well(r))
		excuse(r, all);
}

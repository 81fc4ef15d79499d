// SPDX-License-Identifier: MIT
/*
 * balance.c —— 借与还：谁还占着要拆的对象，请求去了哪里，等的还会不会来
 *
 * 设备不觉得有什么不对：少还一个、多等一个、早用一步，都要把两头的数目放在一起才看得出来。
 */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

/* ---- 谁还占着 -------------------------------------------------------------- */

static const struct made {
	const char *call, *key, *name, *undo;
} made[] = {
	{ "reg_mr", "mr", "MR", "dereg_mr" },
	{ "reg_dmabuf_mr", "mr", "MR", "dereg_mr" },
	{ "create_ah", "ah", "AH", "destroy_ah" },
	{ "create_qp", "qp", "QP", "destroy_qp" },
	{ "create_srq", "srq", "SRQ", "destroy_srq" },
	{ "create_cq", "cq", "CQ", "destroy_cq" },
	{ "alloc_mw", "mw", "memory window", "dealloc_mw" },
};

static const struct made *made_by(const char *call)
{
	for (size_t i = 0; i < sizeof(made) / sizeof(*made); i++)
		if (!strcmp(made[i].call, call))
			return &made[i];
	return NULL;
}

/* @side 在 @until 之前把它拆了。*/
static bool undone(const struct report *r, int side, const struct made *how,
		   uint64_t id, size_t until)
{
	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		if (i < until && !strcmp(e->ev, how->undo) &&
		    e->class != CLASS_FAILURE &&
		    event_number(r, e, how->key) == id)
			return true;
	}
	return false;
}

/* 造它的那一行说，它用着 @key 的 @id。*/
static bool uses(const json_t *line, const char *key, uint64_t id)
{
	return number_in(line, key) == id ||
	       (!strcmp(key, "cq") && (number_in(line, "send_cq") == id ||
				       number_in(line, "recv_cq") == id));
}

static void name_object(char *out, size_t size, const struct made *how,
			const json_t *line)
{
	uint64_t number =
		number_in(line, strcmp(how->key, "qp") ? how->key : "qpn");

	if (!strcmp(how->key, "mr"))
		snprintf(out, size, "MR %ju (%s, %ju bytes)", number,
			 text_in(line, "addr"), number_in(line, "len"));
	else if (!strcmp(how->key, "ah"))
		snprintf(out, size, "AH %ju (to %s)", number,
			 text_in(line, "dgid"));
	else if (!strcmp(how->key, "mw"))
		snprintf(out, size, "memory window (rkey %s)",
			 text_in(line, "rkey"));
	else
		snprintf(out, size, "%s %ju", how->name, number);
}

static const char *broken_key(const char *call)
{
	static const struct {
		const char *call, *key;
	} rows[] = {
		{ "dereg_mr", "mr" },	  { "dealloc_pd", "pd" },
		{ "destroy_cq", "cq" },	  { "destroy_comp_channel", "channel" },
		{ "destroy_srq", "srq" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strcmp(rows[i].call, call))
			return rows[i].key;
	return NULL;
}

/* @post 的远端地址在 @side 的 @mr 里。*/
static bool lies_in(const struct report *r, int side, uint64_t mr,
		    const struct event *post)
{
	struct recalled wr;

	world_recall(r, post, &wr);
	for (size_t i = 0; i < r->region_count; i++) {
		const struct region *it = &r->regions[i];

		if (it->side == side && it->id == mr &&
		    wr.send.wr.rdma.remote_addr - it->mr.addr < it->mr.length)
			return true;
	}
	return false;
}

/* 在 @until 之前 bind 到这个 MR 上的 memory window；没有：NOWHERE。*/
static size_t window_on(const struct report *r, int side, uint64_t mr,
			size_t until)
{
	size_t found = NOWHERE;

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];

		if (i < until && !strcmp(e->op, "BIND_MW") &&
		    e->class == CLASS_POST_SEND && !came_to_nothing(r, e) &&
		    lies_in(r, side, mr, e))
			found = i;
	}
	return found;
}

/* EBUSY：说出留下的那一个，什么时候、由哪个线程造的。*/
static void name_holder(const struct report *r, struct cause *cause)
{
	const char *key = broken_key(text_in(cause->line, "ev"));
	uint64_t id = key ? number_in(cause->line, key) : 0;
	struct explanation why = { 0 };
	size_t window = id && !strcmp(key, "mr")
				? window_on(r, cause->side, id, cause->event)
				: NOWHERE;
	char name[128];

	EACH(i, &r->side[cause->side].own) {
		const struct event *e = &r->events[i];
		const struct made *how =
			i == window ? made_by("alloc_mw") : made_by(e->ev);
		json_t *line;

		if (!id || why.id || i >= cause->event || !how ||
		    !strcmp(how->key, key) || e->class == CLASS_FAILURE)
			continue;
		line = event_line(r, e);
		if (i == window ||
		    (uses(line, key, id) &&
		     !undone(r, cause->side, how, number_in(line, how->key),
			     cause->event))) {
			name_object(name, sizeof(name), how, line);
			why = because(
				"left-behind", "%s\t%.1f\t%d\tibv_%s", name,
				(double)(e->t - r->side[cause->side].first) /
					1e6,
				(int)e->place.tid, how->undo);
		}
		json_decref(line);
	}
	if (why.id)
		cause_restate(cause, &why);
}

#define MANY 4

/*
 * 没有内存了，而同一段内存早已注册过几次，一次也没有注销；或者一样大的几段都还在，而用它们的 QP
 * 已经拆了：每试一次，留下一段。
 */
static void find_leak(const struct report *r, struct cause *cause)
{
	uint64_t same = 0, times = 0, bytes;
	struct explanation why;
	bool again;

	if (strcmp(text_in(cause->line, "ev"), "reg_mr") ||
	    strcmp(text_in(cause->line, "errname"), "ENOMEM"))
		return;
	bytes = number_in(cause->line, "len");
	for (size_t i = 0; i < r->region_count; i++) {
		const struct region *it = &r->regions[i];

		if (it->side != cause->side || it->died != INT64_MAX ||
		    it->mr.length != bytes)
			continue;
		times++;
		same += it->mr.addr == value_in(cause->line, "addr");
	}
	again = same >= MANY;
	if (!again && (times < MANY || last_event(r, cause->side, "destroy_qp",
						  NULL) == NOWHERE))
		return;
	why = because("mr-again", "%s\t%ju\t%ju",
		      again ? "the same memory"
			    : "memory of QPs that are destroyed",
		      bytes, again ? same : times);
	cause_restate(cause, &why);
}

/* 失败了，随后又用别的值试成了：是在试探。*/
static bool was_a_try(const struct report *r, const struct cause *cause)
{
	const char *ev = text_in(cause->line, "ev");

	if (strcmp(ev, "create_qp") && strcmp(ev, "create_cq") &&
	    strcmp(ev, "create_srq") && strcmp(ev, "reg_mr"))
		return false;
	EACH(i, &r->side[cause->side].own)
		if (i > cause->event && !strcmp(r->events[i].ev, ev) &&
		    r->events[i].place.tid ==
			    r->events[cause->event].place.tid &&
		    r->events[i].class != CLASS_FAILURE)
			return true;
	return false;
}

/* 驱动拒绝的，是交给一个已经拆掉了的 QP 的：怎样拒绝的，什么也不说明。*/
static bool was_too_late(const struct report *r, const struct cause *cause)
{
	size_t i = cause->event;

	if (strcmp(text_in(cause->line, "about"), "post"))
		return false;
	while (i-- > 0)
		if (r->events[i].side == cause->side &&
		    !strcmp(r->events[i].ev, "post_failed"))
			return r->events[i].late;
	return false;
}

/* EBADF：设备早已关上，它的 fd 不在了。*/
static void find_closed_device(const struct report *r, struct cause *cause)
{
	size_t at = last_event(r, cause->side, "close_device", NULL);
	const struct event *use = &r->events[cause->event], *end;
	struct explanation why;

	if (strcmp(text_in(cause->line, "errname"), "EBADF") ||
	    !strncmp(use->ev, "rdma_", 5) || at == NOWHERE || at > cause->event)
		return;
	end = &r->events[at];
	why = because("used-after-destroy", "%s\t%.1f\t%d\t%d\t%s",
		      "the ibv_context (ibv_close_device)",
		      (double)(use->t - end->t) / 1e6, (int)end->place.tid,
		      (int)use->place.tid, "uses what was made on it");
	cause_restate(cause, &why);
}

void weigh_failures(const struct report *r, struct causes *all)
{
	for (size_t i = 0; i < all->count; i++) {
		struct cause *c = &all->items[i];

		if (c->kind != CAUSE_FAILURE)
			continue;
		if (was_too_late(r, c)) {
			c->kind = CAUSE_AFTERMATH;
			check_used_after(r, all);
			continue;
		}
		name_holder(r, c);
		find_closed_device(r, c);
		find_leak(r, c);
		if (was_a_try(r, c))
			c->kind = CAUSE_WARNING;
	}
}

/* ---- 请求去了哪里 ---------------------------------------------------------- */

struct tally {
	size_t posted, signaled, taken, bad, aborted, gone;
	size_t gone_at; /* index of the last one */
};

static struct tally count_requests(const struct report *r, int side)
{
	struct tally n = { .gone_at = NOWHERE };

	EACH(i, &r->side[side].own) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);

		if (e->class == CLASS_COMPLETION) {
			n.taken++;
			n.bad += !went_well(e);
		} else if (!strcmp(e->ev, "wr_abort")) {
			n.aborted += event_number(r, e, "count");
		}
		if ((e->class != CLASS_POST_SEND &&
		     e->class != CLASS_POST_RECV) ||
		    e->refused)
			continue;
		n.posted++;
		n.signaled += !qp || makes_completion(r, qp, e);
		n.gone += e->gone && (!qp || makes_completion(r, qp, e));
		if (e->gone)
			n.gone_at = i;
	}
	return n;
}

/* 那个请求随着哪个调用一起没有了。*/
static const char *gone_with(const struct report *r, size_t post)
{
	const struct qp *qp =
		qp_of(r, r->events[post].side, r->events[post].qp);

	EACH(i, &qp->own)
		if (i > post && !strcmp(r->events[i].ev, "destroy_qp"))
			return "ibv_destroy_qp";
	return "RESET";
}

/* @side 等着 completion，而没有一个还会有：为什么。*/
struct explanation why_nothing(const struct report *r, int side)
{
	struct tally n = count_requests(r, side);
	const char *name = r->side[side].name;
	struct explanation why;

	if (n.gone)
		return because("requests-gone", "%s\t%zu\t%s\t%u", name, n.gone,
			       gone_with(r, n.gone_at),
			       r->events[n.gone_at].qpn);
	if (n.aborted)
		why = because("requests-aborted", "%s\t%zu", name, n.aborted);
	else if (n.signaled < n.posted)
		why = because("unsignaled-awaited", "%s\t%zu\t%zu\t%zu", name,
			      n.posted, n.posted - n.signaled, n.signaled);
	else
		why = because("post-forgotten", "%s", name);
	also_seen(&why, "all-taken", "%zu\t%zu", n.posted, n.taken);
	if (n.bad)
		also_seen(&why, "opcode-invalid", "%zu", n.bad);
	return why;
}

/* ---- 等的不会来 ------------------------------------------------------------ */

/* 对端 post 的全是不带 immediate 的 WRITE、READ、atomic：这一边的 CQ 里什么也不会有。*/
void check_silent_write(const struct report *r, struct causes *all)
{
	struct explanation why;
	char name[80];

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		size_t writes = 0, where = NOWHERE;
		bool takes = false, reads = false;

		if (!qp->peer || !gave_up(&r->side[qp->peer->side]) ||
		    !is_waiting_for_completion(r, qp->peer->side) ||
		    receives_left(r, qp->peer) <= 0)
			continue;
		EACH(k, &qp->own) {
			const struct event *e = &r->events[k];

			takes = takes || takes_receive(e);
			if (e->class != CLASS_POST_SEND || e->refused ||
			    (e->complete != NOWHERE && came_to_nothing(r, e)))
				continue;
			reads = reads || strcmp(e->op, "RDMA_WRITE");
			writes++;
			where = k;
		}
		if (!writes || takes)
			continue;
		why = because("write-is-silent", "%s\t%zu\t%s",
			      world_name(r, name, sizeof(name), qp), writes,
			      reads ? "RDMA READs or atomics"
				    : "RDMA WRITEs without immediate");
		cause_suggest(r, all, where, &why);
		return;
	}
}

/* 拿走别人的 receive 的 completion 的线程，自己也 post receive：不是一个只 post、一个只 poll。*/
static bool shares_work(const struct report *r, const struct qp *qp,
			int32_t taker)
{
	EACH(k, &qp->own)
		if (r->events[k].class == CLASS_POST_RECV &&
		    r->events[k].place.tid == taker)
			return true;
	return false;
}

/*
 * 几个线程 poll 同一个 CQ，谁 poll 到就归谁：别人 post 的请求，completion 也被取走。之后两边都
 * 等着已经取走了的，也就没有人再 post receive。
 */
void blame_other_thread(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->qp_count; i++) {
		const struct qp *qp = &r->qps[i];
		size_t taken = 0, crossed = 0;

		if (receives_left(r, qp) > 0)
			continue;
		EACH(k, &qp->own) {
			const struct event *e = &r->events[k];

			if (!is_arrival(e) || e->cause == NOWHERE)
				continue;
			taken++;
			crossed +=
				r->events[e->cause].place.tid != e->place.tid &&
				shares_work(r, qp, e->place.tid);
		}
		if (!crossed)
			continue;
		why = because("taken-by-other-thread", "%ju\t%zu\t%zu",
			      number_in(qp->first, "recv_cq"), crossed, taken);
		for (size_t c = 0; c < all->count; c++)
			if (!strcmp(all->items[c].id, "no-receive-posted"))
				cause_restate(&all->items[c], &why);
	}
}

/* @qp 的一端停下来等消息：receive 还有，也在看 CQ，或者在等事件。*/
static bool waits_for_message(const struct report *r, const struct qp *qp)
{
	return gave_up(&r->side[qp->side]) &&
	       is_waiting_for_completion(r, qp->side) &&
	       receives_left(r, qp) > 0;
}

/* @qp 这一端不会再发了：走了、断开了、QP 拆了、转到了 ERR。NULL：还会。*/
static const char *why_left(const struct report *r, const struct qp *qp,
			    int from)
{
	const struct side *side = &r->side[qp->side];

	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];

		if (e->class == CLASS_FAILURE)
			continue;
		if (!strcmp(e->ev, "destroy_qp"))
			return "destroyed its QP";
		if (!strcmp(e->ev, "modify_qp") &&
		    event_says(r, e, "to", "ERR"))
			return "moved its QP to ERR";
	}
	if (qp->side == from)
		return NULL;
	if (last_event(r, qp->side, "rdma_disconnect", NULL) != NOWHERE)
		return "called rdma_disconnect";
	return side->ended ? "ended" : NULL;
}

void count_messages(const struct report *r, const struct qp *qp, size_t *sent,
		    size_t *taken)
{
	*sent = *taken = 0;
	EACH(i, &qp->own) {
		const struct event *e = &r->events[i];

		*sent += takes_receive(e);
		*taken += takes_receive(e) && e->arrival != NOWHERE;
	}
}

/* 等着消息，而对端发过的都已经取走了；它若走了，就再也不会有。*/
void check_all_taken(const struct report *r, struct causes *all)
{
	struct explanation why;
	size_t sent, taken;
	char name[80];

	for (size_t i = 0; i < r->qp_count && !is_suggested(all); i++) {
		const struct qp *qp = &r->qps[i];
		const char *left;

		if (!qp->peer || !waits_for_message(r, qp))
			continue;
		count_messages(r, qp->peer, &sent, &taken);
		left = why_left(r, qp->peer, qp->side);
		if (sent != taken || (!left && !sent))
			continue;
		world_name(r, name, sizeof(name), qp->peer);
		if (left)
			why = because("peer-left", "%s\t%s\t%s\t%zu",
				      r->side[qp->side].name, name, left, sent);
		else
			why = because("messages-taken", "%s\t%s\t%zu",
				      r->side[qp->side].name, name, sent);
		cause_suggest(r, all, last_of(r, qp->side), &why);
	}
}

/* 停顿时内核里的状态；没有停过：""。*/
static const char *kernel_state(const struct report *r, const struct qp *qp,
				json_t **line)
{
	EACH(i, &qp->own)
		if (!strcmp(r->events[i].ev, "stall")) {
			json_decref(*line);
			*line = event_line(r, &r->events[i]);
		}
	return text_in(*line, "kernel_state");
}

/* 断开以后等着 receive 被冲刷出来，而 QP 还在 RTS。*/
void check_not_flushed(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->qp_count && !is_suggested(all); i++) {
		const struct qp *qp = &r->qps[i];
		size_t over = last_event(r, qp->side, "rdma_disconnect", NULL);
		json_t *stall = NULL;

		if (over == NOWHERE)
			over = last_event(r, qp->side, "rdma_event",
					  "DISCONNECTED");
		if (over != NOWHERE && waits_for_message(r, qp) &&
		    !strcmp(kernel_state(r, qp, &stall), "RTS")) {
			why = because("not-flushed", "%s\t%ju\t%s",
				      r->side[qp->side].name, qp->qpn,
				      *r->events[over].op ? r->events[over].op
							  : "rdma_disconnect");
			cause_suggest(r, all, over, &why);
		}
		json_decref(stall);
	}
}

/* ---- 内容 ------------------------------------------------------------------ */

static bool overlaps(const struct recalled *a, const struct recalled *b)
{
	return a->sge.length && b->sge.length &&
	       a->sge.addr < b->sge.addr + b->sge.length &&
	       b->sge.addr < a->sge.addr + a->sge.length;
}

static bool keeps_its_bytes(const struct event *e)
{
	return !e->refused && (e->class == CLASS_POST_RECV ||
			       (e->class == CLASS_POST_SEND &&
				(!strncmp(e->op, "SEND", 4) ||
				 !strncmp(e->op, "RDMA_WRITE", 10))));
}

#define OUTSTANDING 64 /* so many are compared with the next */

/*
 * @e 的内存，也在同一个队列里还没有完成的另一个请求里；receive 的，要别的都各用各的才算：有的程序
 * 不看内容，全用一段。
 */
static bool shares_bytes(const struct report *r, const struct list *own,
			 size_t k, struct recalled *now)
{
	const struct event *e = &r->events[own->at[k]];
	size_t shared = 0, apart = 0,
	       from = k < OUTSTANDING ? 0 : k - OUTSTANDING;
	struct recalled before;

	world_recall(r, e, now);
	for (size_t i = from; i < k; i++) {
		const struct event *old = &r->events[own->at[i]];

		if (old->class != e->class || !keeps_its_bytes(old) ||
		    old->gone ||
		    (old->complete != NOWHERE && old->complete < own->at[k]))
			continue;
		world_recall(r, old, &before);
		shared += overlaps(&before, now);
		apart += !overlaps(&before, now);
	}
	return shared && (e->class == CLASS_POST_SEND || apart);
}

/*
 * 没有谁失败，程序却说不对：同一段内存，同时在几个还没有完成的请求里。设备发送的时候才去读它，而
 * 不是 post 的时候；收到的写在同一处。
 */
void check_reuse(const struct report *r, struct causes *all)
{
	struct explanation why;
	struct recalled now;

	for (int s = 0; s < r->sides; s++)
		if (!r->side[s].ended)
			return;
	for (size_t i = 0; i < r->qp_count && !is_suggested(all); i++) {
		const struct list *own = &r->qps[i].own;

		for (size_t k = 0; k < own->count && k < MOST_POSTS; k++) {
			const struct event *e = &r->events[own->at[k]];

			if (!keeps_its_bytes(e) ||
			    !shares_bytes(r, own, k, &now) ||
			    (now.send.send_flags & IBV_SEND_INLINE))
				continue;
			why = because("buffer-reused", "0x%jx\t%u\t%s",
				      now.sge.addr, now.sge.length,
				      e->class == CLASS_POST_SEND ? "send"
								  : "receive");
			cause_suggest(r, all, own->at[k], &why);
			return;
		}
	}
}

/* 到了，可是长度不是 post 时的：provider 或设备没有照做。*/
void check_lengths(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->count && i < MOST_POSTS; i++) {
		const struct event *e = &r->events[i];
		const struct qp *qp = qp_of(r, e->side, e->qp);
		uint64_t sent, came;
		json_t *line;

		if (!qp || strcmp(qp->type, "RC") ||
		    e->class != CLASS_POST_SEND || e->arrival == NOWHERE ||
		    strncmp(e->op, "SEND", 4))
			continue;
		sent = event_number(r, e, "len");
		line = event_line(r, &r->events[e->arrival]);
		came = json_object_get(line, "len") ? number_in(line, "len")
						    : sent;
		json_decref(line);
		if (came >= sent)
			continue;
		why = because("length-differs", "%ju\t%ju\t%s", sent, came,
			      qp->dev);
		cause_add(r, all, i, qp, &why);
		return;
	}
}

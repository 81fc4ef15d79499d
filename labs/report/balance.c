// SPDX-License-Identifier: MIT
/*
 * balance.c —— 借与还：谁还占着要拆的对象，拆掉了的谁还在用，请求去了哪里，等的还会不会来
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
	else
		snprintf(out, size, "%s %ju", how->name, number);
}

static const char *broken_key(const char *call)
{
	static const struct {
		const char *call, *key;
	} rows[] = {
		{ "dealloc_pd", "pd" },
		{ "destroy_cq", "cq" },
		{ "destroy_comp_channel", "channel" },
		{ "destroy_srq", "srq" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strcmp(rows[i].call, call))
			return rows[i].key;
	return NULL;
}

/* EBUSY：说出留下的那一个，什么时候、由哪个线程造的。*/
static void name_holder(const struct report *r, struct cause *cause)
{
	const char *key = broken_key(text_in(cause->line, "ev"));
	uint64_t id = key ? number_in(cause->line, key) : 0;
	struct explanation why = { 0 };
	char name[128];

	EACH(i, &r->side[cause->side].own) {
		const struct event *e = &r->events[i];
		const struct made *how = made_by(e->ev);
		json_t *line;

		if (!id || why.id || i >= cause->event || !how ||
		    !strcmp(how->key, key) || e->class == CLASS_FAILURE)
			continue;
		line = event_line(r, e);
		if (uses(line, key, id) &&
		    !undone(r, cause->side, how, number_in(line, how->key),
			    cause->event)) {
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

/* 没有内存了，而同一段内存早已注册过几次，一次也没有注销。*/
static void find_leak(const struct report *r, struct cause *cause)
{
	struct explanation why;
	uint64_t times = 0, bytes;

	if (strcmp(text_in(cause->line, "ev"), "reg_mr") ||
	    strcmp(text_in(cause->line, "errname"), "ENOMEM"))
		return;
	bytes = number_in(cause->line, "len");
	for (size_t i = 0; i < r->region_count; i++)
		times += r->regions[i].side == cause->side &&
			 r->regions[i].died == INT64_MAX &&
			 r->regions[i].mr.addr ==
				 value_in(cause->line, "addr") &&
			 r->regions[i].mr.length == bytes;
	if (times < MANY)
		return;
	why = because("mr-again", "%s\t%ju\t%ju", text_in(cause->line, "addr"),
		      bytes, times);
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
		if (!strcmp(c->id, "still-used"))
			name_holder(r, c);
		find_leak(r, c);
		if (was_a_try(r, c))
			c->kind = CAUSE_WARNING;
	}
}

/* ---- 拆掉了还用 ------------------------------------------------------------ */

/* 拆它的那一次。*/
static size_t destroyed_at(const struct report *r, const struct event *use)
{
	const char *call =
		use->owner_kind == OBJECT_QP ? "destroy_qp" : "destroy_cq";
	const char *key = use->owner_kind == OBJECT_QP ? "qp" : "cq";
	size_t found = NOWHERE;

	EACH(i, &r->side[use->side].own)
		if (&r->events[i] < use && !strcmp(r->events[i].ev, call) &&
		    event_number(r, &r->events[i], key) == use->owner)
			found = i;
	return found;
}

void check_used_after(const struct report *r, struct causes *all)
{
	struct explanation why;
	char name[32];

	for (size_t i = 0; i < r->count; i++) {
		const struct event *use = &r->events[i], *end;
		bool qp = use->owner_kind == OBJECT_QP;
		size_t at = use->late ? destroyed_at(r, use) : NOWHERE;

		if (at == NOWHERE)
			continue;
		end = &r->events[at];
		/* 崩溃的线程自己拆的：它早就不看那个 CQ 了。*/
		if (!strcmp(use->ev, "signal") &&
		    use->place.tid == end->place.tid)
			continue;
		snprintf(name, sizeof(name), qp ? "QP %u" : "CQ %u",
			 qp ? use->qpn : use->owner);
		why = because("used-after-destroy", "%s\t%.1f\t%d\t%d\t%s",
			      name, (double)(use->t - end->t) / 1e6,
			      (int)end->place.tid, (int)use->place.tid,
			      qp ? "posts to it" : "polls it");
		cause_add(r, all, i, NULL, &why);
		return;
	}
}

#define NEAR_NULL 4096u

/*
 * 通过 NULL 附近的指针崩溃：扩展 API 里，没有要的操作与字段，函数指针就是 NULL。刚取到
 * completion 的，是在读它的字段；否则是在 post。
 */
void check_crash(const struct report *r, struct causes *all)
{
	static const char *const words[][2] = {
		{ "a QP of it has ibv_wr functions only for the operations in "
		  "its send_ops_flags",
		  "set IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, and in send_ops_flags "
		  "each operation that is posted; check that ibv_qp_to_qp_ex "
		  "gives no NULL" },
		{ "a CQ of it gives only the fields in its wc_flags",
		  "ask for each field that is read (ibv_wc_read_...) in "
		  "wc_flags of ibv_create_cq_ex" },
	};
	struct explanation why;

	for (int s = 0; s < r->sides; s++) {
		size_t at = last_event(r, s, "signal", NULL);
		bool reads = false, cq = false, qp = false;
		json_t *line =
			at == NOWHERE ? NULL : event_line(r, &r->events[at]);
		bool null = json_object_get(line, "fault") &&
			    value_in(line, "fault") < NEAR_NULL;

		json_decref(line);
		if (!null || believe(all, s, "no-wr-functions") ||
		    believe(all, s, "cm-order"))
			continue;
		EACH(i, &r->side[s].own) {
			const struct event *e = &r->events[i];

			if (is_data(e))
				reads = e->class == CLASS_COMPLETION;
			if (strncmp(e->ev, "create_", 7))
				continue;
			line = event_line(r, e);
			qp = qp || value_in(line, "send_ops");
			cq = cq || json_object_get(line, "wc_flags");
			json_decref(line);
		}
		cq = cq && reads;
		why = because("null-operation", "%s\t%s\t%s", r->side[s].name,
			      words[cq][0], words[cq][1]);
		if (qp || cq)
			cause_suggest(r, all, at, &why);
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

/* fork 出来的进程，用着父进程造的对象。*/
void check_forked(const struct report *r, struct causes *all)
{
	struct explanation why;

	for (size_t i = 0; i < r->count; i++) {
		const struct event *e = &r->events[i];

		if (!number_in(r->side[e->side].start, "forked") || e->late ||
		    (e->class != CLASS_POST_SEND &&
		     e->class != CLASS_POST_RECV &&
		     strcmp(e->ev, "modify_qp") &&
		     strcmp(e->ev, "destroy_qp")) ||
		    (e->qp &&
		     !strcmp(text_in(qp_of(r, e->side, e->qp)->first, "ev"),
			     "create_qp")))
			continue;
		why = because("used-in-child", "%s\t%s", r->side[e->side].name,
			      e->ev);
		cause_add(r, all, i, NULL, &why);
		return;
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
	return e->class == CLASS_POST_SEND && !e->refused &&
	       (!strncmp(e->op, "SEND", 4) ||
		!strncmp(e->op, "RDMA_WRITE", 10));
}

/*
 * 没有谁失败，程序却说不对：同一段内存，同时在几个还没有完成的 send 里。设备发送的时候才去读
 * 它，而不是 post 的时候。
 */
void check_reuse(const struct report *r, struct causes *all)
{
	struct recalled last = { 0 }, now;
	const struct event *before = NULL;
	struct explanation why;

	for (int s = 0; s < r->sides; s++)
		if (!r->side[s].ended)
			return;
	if (is_suggested(all))
		return;
	for (size_t i = 0; i < r->count && i < MOST_POSTS; i++) {
		const struct event *e = &r->events[i];

		if (!keeps_its_bytes(e))
			continue;
		world_recall(r, e, &now);
		if (before && before->side == e->side && before->qp == e->qp &&
		    (before->complete == NOWHERE || before->complete > i) &&
		    !(now.send.send_flags & IBV_SEND_INLINE) &&
		    overlaps(&last, &now)) {
			why = because("buffer-reused", "0x%jx\t%u",
				      now.sge.addr, now.sge.length);
			cause_suggest(r, all, i, &why);
			return;
		}
		before = e;
		last = now;
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

// SPDX-License-Identifier: MIT
/*
 * stall.c —— 程序卡住了：在等哪个 WR、等什么、从什么时候起、用户态与内核各说是什么
 * 状态
 *
 * “没有 completion”有好几种，样子一样：没有人 poll、没有 arm、没有要 SIGNALED、
 * QP 早已进了 ERR、对端不应答、对端根本没有发。谁在 poll、谁睡着了，只有记录器知道，
 * 在这里判断；其余的交给解释器（why.c）。
 *
 * 查询内核期间一直拿着锁：ibv_destroy_qp 的包装要先拿到它，QP 不会在半路消失。
 */
#include "stall.h"

#include "base/verbs_names.h"
#include "explain/qp_table.h"
#include "format.h"
#include "ids.h"
#include "objects.h"
#include "proc.h"
#include "recorder.h"
#include "ring.h"
#include "why.h"
#include "writer.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECOND	    1000000000u
#define MILLISECOND 1000000u
#define MAX_QPS	    16
#define RECENTLY    (SECOND / 2) /* 一个 poll 着的线程，两个 tick 里总会 poll */

struct account {
	char text[16 * 1024];
	size_t used;
	uint64_t now;
	uint64_t idle; /* ns since the last post or completion */
	bool asked;
	unsigned int shown;
};

static void __attribute__((format(printf, 2, 3)))
say(struct account *a, const char *fmt, ...)
{
	size_t left = sizeof(a->text) - a->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(a->text + a->used, left, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < left)
		a->used += (size_t)n;
}

static double seconds(uint64_t ns)
{
	return (double)ns / SECOND;
}

/* ---- 谁在看这个 CQ -------------------------------------------------------- */

static void look_at_rings(uint64_t now)
{
	struct ring *ring = atomic_load(&all_rings);
	uint64_t polls;

	for (; ring; ring = ring->next) {
		polls = atomic_load(&ring->polls) + atomic_load(&ring->head);
		if (polls == ring->polls_seen)
			continue;
		ring->polls_seen = polls;
		ring->polls_time = now;
	}
}

static pid_t who_polls(const void *cq, uint64_t now)
{
	struct ring *ring = atomic_load(&all_rings);

	for (; ring; ring = ring->next)
		if (atomic_load(&ring->polled) == cq &&
		    now - ring->polls_time < RECENTLY)
			return ring->tid;
	return 0;
}

static pid_t who_sleeps(const void *channel)
{
	struct ring *ring = atomic_load(&all_rings);

	for (; channel && ring; ring = ring->next)
		if (atomic_load(&ring->sleeps) == channel)
			return ring->tid;
	return 0;
}

/*
 * 不一定非要睡在 ibv_get_cq_event 里：事件循环等的是 channel 的 fd（poll、epoll），那是
 * 记录不到的。但 fd 上有没有一个没人取的事件，看一眼就知道，看的时候不取走。
 */
static bool event_lies_there(const void *pointer)
{
	const struct ibv_comp_channel *channel = pointer;
	struct pollfd fd = { .events = POLLIN };

	if (!object_find(OBJECT_CHANNEL, pointer))
		return false;
	fd.fd = channel->fd;
	return poll(&fd, 1, 0) == 1 && (fd.revents & POLLIN);
}

static bool is_armed(const struct object *cq)
{
	return cq->channel && cq->armed && cq->armed >= cq->event;
}

/* 有人在看这个 CQ：poll 着，睡在它的 channel 上，或者 arm 了它等 fd。*/
static bool is_watched(const void *cq, uint64_t now)
{
	const struct object *object = object_find(OBJECT_CQ, cq);

	return object && (who_polls(cq, now) || who_sleeps(object->channel) ||
			  is_armed(object));
}

/* 该看 @right，而大家只看着同一个 QP 的另一个 CQ。*/
static const void *watched_instead(const struct object *qp, const void *right,
				   uint64_t now)
{
	const void *other = qp->send_cq == right ? qp->recv_cq : qp->send_cq;

	return !is_watched(right, now) && is_watched(other, now) ? other
								 : right;
}

/* ---- 诊断 ----------------------------------------------------------------- */

static struct explanation nobody_polls(uint32_t cq, const char *seen)
{
	struct explanation why = because("nobody-polls", "%u", cq);

	explain_also(&why, seen, "%s", "");
	return why;
}

/*
 * completion 也许早就在 CQ 里了，只是没有人去拿。解释器看不见谁在 poll，记录器看得
 * 见。
 */
static struct explanation judge_cq(const void *pointer, uint64_t now)
{
	const struct object *cq = object_find(OBJECT_CQ, pointer);
	pid_t sleeper;

	if (!cq || who_polls(pointer, now))
		return (struct explanation){ 0 };
	sleeper = who_sleeps(cq->channel);
	if (!sleeper && is_armed(cq) && event_lies_there(cq->channel))
		return because("event-unread", "%u", cq->id);
	if (cq->event && cq->got < cq->event)
		return nobody_polls(cq->id, "event-not-followed");
	if (is_armed(cq) && cq->solicited)
		return because("armed-solicited-only", "%u", cq->id);
	if (is_armed(cq))
		return (struct explanation){ 0 };
	if (!sleeper)
		return because("nobody-polls", "%u", cq->id);
	return because("cq-not-armed", "%u\t%s", cq->id,
		       cq->armed ? " after its last event" : "");
}

/* 问哪一个：有 signaled 的 send 就问最早的那个，其余的本来就没有 completion。*/
static const struct waiting *asked_for(const struct object *qp)
{
	const struct queue *queue = queue_length(&qp->sq) ? &qp->sq : &qp->rq;

	for (uint64_t i = 0; i < queue_length(queue); i++)
		if (queue_at(queue, i)->signaled)
			return queue_at(queue, i);
	return queue_oldest(queue);
}

/* QP 自己就不对（ERR、SQD、还没到 RTS）的，有没有人 poll 都一样。*/
static bool can_move(enum ibv_qp_state kernel, const struct waiting *wr)
{
	return kernel == IBV_QPS_RTS ||
	       (kernel == IBV_QPS_RTR && wr->post.kind != RECORD_POST_SEND);
}

/*
 * UD 收到过，现在又等：也许没有人再发，也许包来了而程序自己没有认它（第 13 课里的
 * UCX）。从这一侧分不出来，计数器分得出来。
 */
static struct explanation judge_datagrams(const struct object *qp,
					  const struct waiting *wr)
{
	if (qp->type != IBV_QPT_UD || wr->post.kind == RECORD_POST_SEND ||
	    !qp->rq.completed)
		return (struct explanation){ 0 };
	return because("sent-or-not-taken");
}

/* arm 过，却没有 channel：睡在任何 channel 上都等不到它。*/
static struct explanation judge_channel(const struct object *qp, uint64_t now)
{
	const void *const cqs[] = { qp->send_cq, qp->recv_cq };

	for (size_t i = 0; i < sizeof(cqs) / sizeof(cqs[0]); i++) {
		const struct object *cq = object_find(OBJECT_CQ, cqs[i]);

		if (cq && cq->armed && !cq->channel && !who_polls(cqs[i], now))
			return because("cq-without-channel", "%u", cq->id);
	}
	return (struct explanation){ 0 };
}

static struct explanation judge(struct object *qp, enum ibv_qp_state kernel,
				uint64_t now)
{
	const struct waiting *wr = asked_for(qp);
	const void *cq =
		wr->post.kind == RECORD_POST_SEND ? qp->send_cq : qp->recv_cq;
	const void *watched = watched_instead(qp, cq, now);
	struct explanation why = judge_channel(qp, now);

	if (!why.id && can_move(kernel, wr) && watched == cq)
		why = judge_cq(cq, now);
	if (!why.id)
		why = judge_datagrams(qp, wr);
	if (why.id)
		return why;
	return why_stall(qp, wr, watched,
			 (int64_t)((now - wr->time) / MILLISECOND));
}

/* ---- 一个 QP -------------------------------------------------------------- */

/* @one, @many: "send waits", "sends wait" */
static void say_queue(struct account *a, const struct queue *queue,
		      const char *one, const char *many)
{
	const struct waiting *oldest = queue_oldest(queue);
	uint64_t n = queue_length(queue);
	char what[64] = "";

	if (!oldest)
		return;
	if (oldest->post.kind == RECORD_POST_SEND)
		snprintf(what, sizeof(what), "%s%s%s", IN_WORDS(", ", "，"),
			 wr_opcode_name(oldest->post.opcode),
			 oldest->signaled ? ""
					  : IN_WORDS(", not signaled",
						     "，没有 SIGNALED"));
	say(a,
	    IN_WORDS("qptrace:     %llu %s, the oldest for %.1f s: wr_id "
		     "0x%llx, %u bytes%s (%llu completed before)\n",
		     "qptrace:     %llu 个 %s，最早的等了 %.1f 秒：wr_id "
		     "0x%llx，%u 字节%s（之前完成了 %llu 个）\n"),
	    (unsigned long long)n, n == 1 ? one : many,
	    seconds(a->now - oldest->time),
	    (unsigned long long)oldest->post.wr_id, oldest->post.length, what,
	    (unsigned long long)queue->completed);
}

static void say_peer(struct account *a, const struct object *qp,
		     const struct ibv_qp_attr *kernel)
{
	char gid[46];

	if (!(qp->told.attr_mask & IBV_QP_DEST_QPN))
		return;
	say(a,
	    IN_WORDS("qptrace:     peer: QP %u at %s; kernel: rq_psn %u, "
		     "sq_psn %u\n",
		     "qptrace:     对端：QP %u，在 %s；内核：rq_psn %u，sq_psn "
		     "%u\n"),
	    qp->told.attr.dest_qp_num,
	    gid_text(gid, qp->told.attr.ah_attr.grh.dgid.raw), kernel->rq_psn,
	    kernel->sq_psn);
}

/*
 * 程序也许只是在计算、在睡、没有话要说：等着不是错。这些只是“若等得不对，可以看看这里”。
 * 只等着收的，对端走了也不是错：没有人答应过还要再发。
 */
static bool is_hint(const struct object *qp, const char *id)
{
	static const char *const ids[] = {
		"nothing-came", "sent-or-not-taken", "nobody-polls",
		"event-unread", "unsignaled",	     "no-completion",
		"wrong-cq",	"still-retrying",
	};

	for (size_t i = 0; id && i < sizeof(ids) / sizeof(ids[0]); i++)
		if (!strcmp(id, ids[i]))
			return true;
	return !id || (!queue_length(&qp->sq) && !strcmp(id, "peer-qp-absent"));
}

static void add_stall(const struct account *a, const struct object *qp,
		      const char *user, const char *kernel,
		      const struct explanation *why)
{
	const struct waiting *send = queue_oldest(&qp->sq);
	const struct waiting *receive = queue_oldest(&qp->rq);
	struct line line;

	line_start(&line, "stall");
	LINE_NUMBER(&line, "qp", qp->id);
	LINE_NUMBER(&line, "qpn", qp->qpn);
	LINE_NUMBER(&line, "asked", a->asked);
	LINE_NUMBER(&line, "idle", a->idle);
	LINE_TEXT(&line, "user_state", user);
	LINE_TEXT(&line, "kernel_state", kernel);
	LINE_NUMBER(&line, "sends", queue_length(&qp->sq));
	LINE_NUMBER(&line, "receives", queue_length(&qp->rq));
	if (send) {
		LINE_NUMBER(&line, "oldest_send", send->number);
		LINE_HEX(&line, "send_wr_id", send->post.wr_id);
	}
	if (receive) {
		LINE_NUMBER(&line, "oldest_receive", receive->number);
		LINE_HEX(&line, "receive_wr_id", receive->post.wr_id);
	}
	format_why(&line, why);
	if (is_hint(qp, why->id))
		LINE_TEXT(&line, "kind", "hint");
	writer_add_now(&line);
}

static bool is_waiting(const struct object *object)
{
	return queue_length(&object->sq) || queue_length(&object->rq);
}

static void explain_qp(struct account *a, struct object *qp)
{
	struct ibv_qp *handle = (struct ibv_qp *)(uintptr_t)qp->pointer;
	enum ibv_qp_state user = handle->state;
	const char *kernel = "unknown";
	struct ibv_qp_init_attr init;
	struct explanation why = { 0 };
	struct explain_words words;
	struct ibv_qp_attr now = { .qp_state = user };
	int err;

	if (a->shown++ >= MAX_QPS)
		return;
	err = ibv_query_qp(handle, &now,
			   IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init);
	if (!err)
		kernel = qp_state_name(now.qp_state);
	say(a,
	    IN_WORDS("qptrace:   QP %u of %s (%s): %s in the user's copy, %s "
		     "in the kernel\n",
		     "qptrace:   QP %u（%s，%s）：用户态的副本是 %s，内核里是 "
		     "%s\n"),
	    qp->qpn, handle->context->device->name, qp_type_name(qp->type),
	    qp_state_name(user), kernel);
	say_queue(a, &qp->sq, IN_WORDS("send waits", "send 在等待"),
		  IN_WORDS("sends wait", "send 在等待"));
	say_queue(a, &qp->rq, IN_WORDS("receive waits", "receive 在等待"),
		  IN_WORDS("receives wait", "receive 在等待"));
	say_peer(a, qp, &now);
	if (is_waiting(qp)) {
		why = judge(qp, now.qp_state, a->now);
		explain_in_words(&words, &why, recorder.chinese);
		say(a, "qptrace:     %s%s\n",
		    is_hint(qp, why.id) ? IN_WORDS("hint: ", "提示：")
					: IN_WORDS("cause: ", "原因："),
		    words.cause);
		a->used += next_as_text(a->text + a->used,
					sizeof(a->text) - a->used,
					"qptrace:    ", &words);
	}
	add_stall(a, qp, qp_state_name(user), kernel, &why);
}

/* @watched: 只看有人看着的，或者没有人看的。*/
static void explain_qps(struct account *a, bool watched)
{
	struct object *qp = NULL;

	while ((qp = object_after(OBJECT_QP, qp)))
		if ((a->asked || is_waiting(qp)) &&
		    watched == (is_watched(qp->send_cq, a->now) ||
				is_watched(qp->recv_cq, a->now)))
			explain_qp(a, qp);
}

static void show_srqs(struct account *a)
{
	const struct object *srq = NULL;

	while ((srq = object_after(OBJECT_SRQ, srq))) {
		if (!queue_length(&srq->rq))
			continue;
		say(a, "qptrace:   SRQ %u\n", srq->id);
		say_queue(a, &srq->rq,
			  IN_WORDS("receive waits", "receive 在等待"),
			  IN_WORDS("receives wait", "receive 在等待"));
	}
}

static bool something_waits(enum object_kind kind)
{
	const struct object *object = NULL;

	while ((object = object_after(kind, object)))
		if (is_waiting(object))
			return true;
	return false;
}

/* ---- 一次查看 ------------------------------------------------------------- */

/* 一次停顿只说一遍；有了新的 post 或 completion 才重新计时。*/
static bool is_stalled(struct account *a)
{
	static uint64_t explained;
	uint64_t last = objects_last_activity();

	a->idle = last && a->now > last ? a->now - last : 0;
	if (a->asked)
		return true;
	if (!recorder.stall_ns || !last || explained == last ||
	    a->idle < recorder.stall_ns)
		return false;
	if (!something_waits(OBJECT_QP) && !something_waits(OBJECT_SRQ))
		return false;
	explained = last;
	return true;
}

/* ---- 什么也没有做：每个线程在哪里 ------------------------------------------ */

#define MOST_THREADS 8

struct places {
	size_t n;
	struct place {
		pid_t tid;
		struct blocked where;
		const char *verb; /* NULL: in none */
	} of[MOST_THREADS];
};

static const char *call_of(pid_t tid, uint64_t now)
{
	struct ring *ring = atomic_load(&all_rings);

	while (ring && (ring->tid != tid || atomic_load(&ring->orphan)))
		ring = ring->next;
	if (!ring)
		return NULL;
	if (atomic_load(&ring->sleeps))
		return "get_cq_event";
	if (now - ring->polls_time < RECENTLY)
		return "poll_cq";
	return atomic_load(&ring->in);
}

static void look_where(struct places *here, uint64_t now)
{
	pid_t threads[MOST_THREADS];

	memset(here, 0, sizeof(*here));
	here->n = threads_of_process(threads, MOST_THREADS);
	for (size_t i = 0; i < here->n; i++) {
		struct place *place = &here->of[i];

		place->tid = threads[i];
		thread_blocked(place->tid, &place->where);
		place->verb = call_of(place->tid, now);
	}
}

/* 在同一个 verb 里就是同一处：poll 一次睡一会儿的，两样都见得到。*/
static bool same_places(const struct places *a, const struct places *b)
{
	bool same = a->n == b->n;

	for (size_t i = 0; same && i < a->n; i++) {
		const struct place *p = &a->of[i], *q = &b->of[i];

		same = p->tid == q->tid && p->verb == q->verb &&
		       (p->verb ||
			!memcmp(&p->where, &q->where, sizeof(p->where)));
	}
	return same;
}

/*
 * 什么也没有发生，已经多久了（ns）；0：还不算久，或者说过了。一次停顿只说一遍，除非后来换了
 * 地方，又在那里停了同样久：连好以前等对端的字节，连好以后睡着了，中间一个 verb 也没有。
 */
static uint64_t idle_for(uint64_t now, struct places *here)
{
	static struct places seen, told;
	static uint64_t since, told_after;
	uint64_t last = objects_last_call();
	uint64_t fast = objects_last_activity();

	last = fast > last ? fast : last;
	if (!recorder.stall_ns || !last || now < last + recorder.stall_ns)
		return 0;
	look_where(here, now);
	if (!same_places(here, &seen)) {
		seen = *here;
		since = now;
	}
	if (told_after == last) {
		if (same_places(here, &told) || now - since < recorder.stall_ns)
			return 0;
		last = since;
	} else {
		told_after = last;
	}
	told = *here;
	return now - last;
}

static void add_thread(const struct place *place, uint64_t idle)
{
	const char *tcp = place->tid == getpid() ? unanswered_tcp() : NULL;
	struct line line;

	line_start(&line, "thread");
	LINE_NUMBER(&line, "thread", place->tid);
	LINE_NUMBER(&line, "idle", idle);
	LINE_TEXT(&line, "in", place->where.call);
	if (place->where.on[0])
		LINE_TEXT(&line, "on", place->where.on);
	if (tcp)
		LINE_TEXT(&line, "tcp", tcp);
	if (place->verb)
		LINE_TEXT(&line, "verb", place->verb);
	writer_add_now(&line);
}

/* 此刻网断着，等的多半就是它。*/
static void look_at_port(struct ibv_context *context)
{
	struct ibv_port_attr port;
	struct explanation why;
	struct line line;

	if (ibv_query_port(context, 1, &port) || port.state == IBV_PORT_ACTIVE)
		return;
	why = explain_port(context, 1);
	line_start(&line, "warning");
	LINE_TEXT(&line, "dev", context->device->name);
	LINE_NUMBER(&line, "idle", 1);
	format_why(&line, &why);
	writer_add_now(&line);
}

static void tell_threads(const struct places *here, uint64_t idle)
{
	const struct object *device = NULL;

	for (size_t i = 0; i < here->n; i++)
		add_thread(&here->of[i], idle);
	while ((device = object_after(OBJECT_CONTEXT, device)))
		look_at_port(device->context);
	look_at_ids();
}

static struct account account;
static bool over; /* 收摊可以很慢，那不是在等谁 */

void stall_over(void)
{
	over = true;
}

void stall_look(bool asked)
{
	struct account *a = &account;
	struct places here;
	uint64_t idle;

	a->asked = asked;
	a->used = a->shown = 0;
	if (over)
		return;
	a->now = writer_now();
	look_at_rings(a->now);
	idle = idle_for(a->now, &here);
	if (idle)
		tell_threads(&here, idle);
	if (!is_stalled(a))
		return;
	say(a,
	    IN_WORDS("qptrace: %s (pid %d): no completion for %.1f s\n",
		     "qptrace: %s（pid %d）：已有 %.1f 秒没有 completion\n"),
	    program_invocation_short_name, (int)getpid(), seconds(a->idle));
	if (recorder.control_only)
		say(a,
		    IN_WORDS(
			    "qptrace:   posts and completions are not recorded "
			    "(--control-only)\n",
			    "qptrace:   没有记录 post 与 "
			    "completion（--control-only）\n"));
	/* 先说程序正等着的，再说没有人等的。*/
	explain_qps(a, true);
	explain_qps(a, false);
	show_srqs(a);
	if (a->shown > MAX_QPS)
		say(a,
		    IN_WORDS("qptrace:   and %u more QPs\n",
			     "qptrace:   另有 %u 个 QP\n"),
		    a->shown - MAX_QPS);
}

void stall_say(void)
{
	if (account.used && (account.asked || !recorder.quiet))
		recorder_say(account.text, account.used);
}

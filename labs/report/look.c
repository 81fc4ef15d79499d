// SPDX-License-Identifier: MIT
/*
 * look.c —— 程序卡住了：在等哪个 WR、等什么、从什么时候起、用户态与内核各说是什么
 * 状态；什么也没有等的，每个线程停在哪里
 *
 * “没有 completion”有好几种，样子一样：没有人 poll、没有 arm、没有要 SIGNALED、
 * QP 早已进了 ERR、对端不应答、对端根本没有发。谁在 poll、谁睡着了，在线程的 slot 里，
 * 在这里判断；其余的交给解释器（kernel.c）。看到的写进记录：以后读它的人，看到的一样多。
 */
#include "look.h"

#include "../recorder/ring.h"
#include "base/verbs_names.h"
#include "explain/qp_table.h"
#include "rules.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND	     1000000000u
#define MILLISECOND  1000000u
#define MAX_QPS	     16
#define MOST_THREADS 8
#define STILL	     (SECOND / 4)

static void __attribute__((format(printf, 2, 3)))
say(struct account *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(a->out, fmt, ap);
	va_end(ap);
}

static uint64_t since(const struct account *a, uint64_t time)
{
	return time < a->now ? a->now - time : 0;
}

static double seconds(uint64_t ns)
{
	return (double)ns / SECOND;
}

/* ---- 诊断 ----------------------------------------------------------------- */

/*
 * completion 也许早就在 CQ 里了，只是没有人去拿。解释器看不见谁在 poll，记录器看得
 * 见。
 */
static struct explanation nobody_polls(uint32_t cq, const char *seen)
{
	struct explanation why = because("nobody-polls", "%u", cq);

	explain_also(&why, seen, "%s", "");
	return why;
}

static struct explanation judge_cq(const struct account *a, const void *pointer)
{
	const struct object *cq = object_find(OBJECT_CQ, pointer);
	pid_t sleeper;

	if (!cq || who_polls(a, pointer))
		return (struct explanation){ 0 };
	sleeper = who_sleeps(a, cq->channel);
	if (!sleeper && is_armed(cq) && event_lies_there(a, cq->channel))
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
static struct explanation judge_channel(const struct account *a,
					const struct object *qp)
{
	const void *const cqs[] = { qp->send_cq, qp->recv_cq };

	for (size_t i = 0; i < sizeof(cqs) / sizeof(cqs[0]); i++) {
		const struct object *cq = object_find(OBJECT_CQ, cqs[i]);

		if (cq && cq->armed && !cq->channel && !who_polls(a, cqs[i]))
			return because("cq-without-channel", "%u", cq->id);
	}
	return (struct explanation){ 0 };
}

static const struct event *event_of(const struct report *r, const struct qp *qp,
				    const struct waiting *wr)
{
	EACH(i, &qp->own)
		if (r->events[i].n == wr->number &&
		    r->events[i].class != CLASS_COMPLETION)
			return &r->events[i];
	return NULL;
}

static struct explanation judge(const struct account *a,
				const struct object *object,
				const struct qp *qp, enum ibv_qp_state kernel)
{
	const struct report *r = a->r;
	const struct waiting *wr = asked_for(object);
	const void *cq = wr->post.kind == RECORD_POST_SEND ? object->send_cq
							   : object->recv_cq;
	const void *watched = watched_instead(a, object, cq);
	struct explanation why = judge_channel(a, object);
	uintptr_t polled = object_id(OBJECT_CQ, watched);

	if (!why.id && can_move(kernel, wr) && watched == cq)
		why = judge_cq(a, cq);
	if (!why.id)
		why = judge_datagrams(object, wr);
	if (why.id)
		return why;
	return kernel_stall(r, qp, event_of(r, qp, wr),
			    (const struct ibv_cq *)polled,
			    (int64_t)(since(a, wr->time) / MILLISECOND));
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
		snprintf(what, sizeof(what), "%s%s%s",
			 IN_WORDS(a->r, ", ", "，"),
			 wr_opcode_name(oldest->post.opcode),
			 oldest->signaled ? ""
					  : IN_WORDS(a->r, ", not signaled",
						     "，没有 SIGNALED"));
	say(a,
	    IN_WORDS(a->r,
		     "qptrace:     %llu %s, the oldest for %.1f s: wr_id "
		     "0x%llx, %u bytes%s (%llu completed before)\n",
		     "qptrace:     %llu 个 %s，最早的等了 %.1f 秒：wr_id "
		     "0x%llx，%u 字节%s（之前完成了 %llu 个）\n"),
	    (unsigned long long)n, n == 1 ? one : many,
	    seconds(since(a, oldest->time)),
	    (unsigned long long)oldest->post.wr_id, oldest->post.length, what,
	    (unsigned long long)queue->completed);
}

static void say_receives(struct account *a, const struct queue *queue)
{
	say_queue(a, queue, IN_WORDS(a->r, "receive waits", "receive 在等待"),
		  IN_WORDS(a->r, "receives wait", "receive 在等待"));
}

static void say_peer(struct account *a, const struct qp *qp,
		     const struct ibv_qp_attr *kernel)
{
	if (qp_believes(qp, "dest_qpn") < 0)
		return;
	say(a,
	    IN_WORDS(a->r,
		     "qptrace:     peer: QP %u at %s; kernel: rq_psn %u, "
		     "sq_psn %u\n",
		     "qptrace:     对端：QP %u，在 %s；内核：rq_psn %u，sq_psn "
		     "%u\n"),
	    (unsigned int)qp_believes(qp, "dest_qpn"),
	    text_in(qp->believes, "dgid"), kernel->rq_psn, kernel->sq_psn);
}

/*
 * 程序也许只是在计算、在睡、没有话要说：等着不是错。这些只是“若等得不对，可以看看这里”。
 * 只等着收的，对端走了也不是错：没有人答应过还要再发。QP 还没连完，又没有人在看它的 CQ：等的是
 * 对端的 TCP，或者 rdma_cm 的事件。
 */
static bool is_hint(const struct account *a, const struct object *qp,
		    const char *id)
{
	static const char *const ids[] = {
		"nothing-came", "sent-or-not-taken", "nobody-polls",
		"event-unread", "unsignaled",	     "no-completion",
		"wrong-cq",	"still-retrying",
	};

	for (size_t i = 0; id && i < sizeof(ids) / sizeof(ids[0]); i++)
		if (!strcmp(id, ids[i]))
			return true;
	return !id ||
	       (!queue_length(&qp->sq) && (!strcmp(id, "peer-qp-absent") ||
					   (!strcmp(id, "qp-too-early") &&
					    !cq_is_watched(a, qp->recv_cq))));
}

static void add_stall(const struct account *a, const struct object *qp,
		      const char *user, const char *kernel,
		      const struct explanation *why)
{
	const struct waiting *send = queue_oldest(&qp->sq);
	const struct waiting *receive = queue_oldest(&qp->rq);
	struct line line;

	line_start(&line, "stall");
	note_object(&line, "qp", qp);
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
	line_add_why(&line, why);
	if (is_hint(a, qp, why->id))
		LINE_TEXT(&line, "kind", "hint");
	note(a->view, &line);
}

static bool is_waiting(const struct object *object)
{
	return queue_length(&object->sq) || queue_length(&object->rq);
}

static void explain_qp(struct account *a, const struct object *object)
{
	const struct report *r = a->r;
	const struct qp *qp = qp_of(r, a->side, object->id);
	struct explanation why = { 0 };
	const char *kernel = "unknown";
	enum ibv_qp_state user;
	struct ibv_qp_attr now;

	if (!qp || a->shown++ >= MAX_QPS)
		return;
	user = kernel_user_state(r, qp);
	now = (struct ibv_qp_attr){ .qp_state = user };
	if (kernel_qp(qp, &now))
		kernel = qp_state_name(now.qp_state);
	say(a,
	    IN_WORDS(r,
		     "qptrace:   QP %u of %s (%s): %s in the user's copy, %s "
		     "in the kernel\n",
		     "qptrace:   QP %u（%s，%s）：用户态的副本是 %s，内核里是 "
		     "%s\n"),
	    object->qpn, qp->dev, qp->type, qp_state_name(user), kernel);
	say_queue(a, &object->sq, IN_WORDS(r, "send waits", "send 在等待"),
		  IN_WORDS(r, "sends wait", "send 在等待"));
	say_receives(a, &object->rq);
	say_peer(a, qp, &now);
	if (is_waiting(object))
		why = judge(a, object, qp, now.qp_state);
	add_stall(a, object, qp_state_name(user), kernel, &why);
}

/* @watched: 只看有人看着的，或者没有人看的。*/
static void explain_qps(struct account *a, bool watched)
{
	struct object *qp = NULL;

	while ((qp = object_after(OBJECT_QP, qp)))
		if ((a->asked || is_waiting(qp)) &&
		    watched == (cq_is_watched(a, qp->send_cq) ||
				cq_is_watched(a, qp->recv_cq)))
			explain_qp(a, qp);
}

static void show_srqs(struct account *a)
{
	const struct object *srq = NULL;

	while ((srq = object_after(OBJECT_SRQ, srq))) {
		if (!queue_length(&srq->rq))
			continue;
		say(a, "qptrace:   SRQ %u\n", srq->id);
		say_receives(a, &srq->rq);
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

/* ---- 什么也没有做：每个线程在哪里 ------------------------------------------ */

struct spot {
	pid_t tid;
	struct blocked where;
	char verb[32]; /* "": in none */
};

static const struct doing *doing_of(const struct account *a, pid_t tid)
{
	static const struct doing nothing;

	for (size_t i = 0; i < a->n; i++)
		if (a->doing[i].tid == tid)
			return &a->doing[i];
	return &nothing;
}

static size_t look_where(const struct account *a,
			 struct spot here[MOST_THREADS])
{
	pid_t threads[MOST_THREADS], pid = a->view->pid;
	size_t n = proc_threads(pid, threads, MOST_THREADS);

	for (size_t i = 0; i < n; i++) {
		const struct doing *d = doing_of(a, threads[i]);

		here[i] = (struct spot){ .tid = threads[i] };
		proc_blocked(pid, threads[i], &here[i].where);
		snprintf(here[i].verb, sizeof(here[i].verb), "%s",
			 d->polling ? "poll_cq" : d->in);
	}
	return n;
}

static void add_thread(const struct account *a, const struct spot *place)
{
	const char *tcp = place->tid == a->view->pid
				  ? proc_unanswered_tcp(place->tid)
				  : NULL;
	const struct doing *d = doing_of(a, place->tid);
	uint32_t cq =
		d->polling ? object_id(OBJECT_CQ, (const void *)d->polled) : 0;
	uint32_t channel = object_id(OBJECT_CHANNEL, (const void *)d->sleeps);
	struct line line;

	line_start(&line, "thread");
	LINE_NUMBER(&line, "thread", place->tid);
	LINE_NUMBER(&line, "idle", a->call_idle);
	LINE_TEXT(&line, "in", place->where.call);
	if (place->where.on[0])
		LINE_TEXT(&line, "on", place->where.on);
	if (tcp)
		LINE_TEXT(&line, "tcp", tcp);
	if (place->verb[0])
		LINE_TEXT(&line, "verb", place->verb);
	if (cq)
		LINE_NUMBER(&line, "cq", cq);
	if (d->sleeps)
		LINE_HEX(&line, "events", d->sleeps);
	if (channel)
		LINE_NUMBER(&line, "channel", channel);
	if (d->open)
		LINE_NUMBER(&line, "open", d->open);
	note(a->view, &line);
}

/* 没有 QP 在等的，停在哪里就是在等什么。*/
static void say_thread(struct account *a, const struct spot *place)
{
	const char *on = place->where.on;

	if (!place->where.call[0])
		return;
	if (!place->verb[0] && !strcmp(place->where.call, "running")) {
		say(a,
		    IN_WORDS(a->r, "qptrace:   thread %d runs, for %.1f s\n",
			     "qptrace:   线程 %d 在运行，已有 %.1f 秒\n"),
		    (int)place->tid, seconds(a->call_idle));
		return;
	}
	say(a,
	    IN_WORDS(a->r, "qptrace:   thread %d is in %s%s%s%s, for %.1f s\n",
		     "qptrace:   线程 %d 在 %s%s%s%s 里，已有 %.1f 秒\n"),
	    (int)place->tid, place->verb[0] ? place->verb : place->where.call,
	    on[0] && !place->verb[0] ? " (" : "",
	    on[0] && !place->verb[0] ? on : "",
	    on[0] && !place->verb[0] ? ")" : "", seconds(a->call_idle));
}

static void warn(const struct account *a, const char *key, const char *device,
		 uint64_t id, const struct explanation *why)
{
	struct line line;

	if (!why->id)
		return;
	line_start(&line, "warning");
	if (device)
		LINE_TEXT(&line, key, device);
	else
		LINE_NUMBER(&line, key, id);
	LINE_NUMBER(&line, "idle", 1);
	line_add_why(&line, why);
	note(a->view, &line);
}

/* 此刻网断着，等的多半就是它。*/
static void look_at_ports(const struct account *a)
{
	const struct report *r = a->r;

	EACH(i, &r->side[a->side].own) {
		struct explanation why;
		json_t *line;

		if (strcmp(r->events[i].ev, "open_device"))
			continue;
		line = event_line(r, &r->events[i]);
		why = kernel_port(text_in(line, "dev"));
		warn(a, "dev", text_in(line, "dev"), 0, &why);
		json_decref(line);
	}
}

/* 连接请求也是包：等不到回答，看看它们去了哪里。*/
static void look_at_requests(const struct account *a)
{
	const struct report *r = a->r;
	int side = a->side;
	size_t resolved = last_event(r, side, "rdma_resolve_addr", NULL);
	union ibv_gid to = { .raw = { [10] = 0xff, 0xff } };
	struct explanation why = { 0 };
	json_t *line;

	if (resolved == NOWHERE || !cm_asks(r, side))
		return;
	line = event_line(r, &r->events[resolved]);
	if (inet_pton(AF_INET, text_in(line, "address"), to.raw + 12) == 1)
		why = explain_neighbour(&to);
	warn(a, "cm_id", NULL, number_in(line, "cm_id"), &why);
	json_decref(line);
}

/* 看着的人自己写的不算。*/
static uint64_t last_call(const struct account *a)
{
	const struct list *own = &a->r->side[a->side].own;

	for (size_t k = own->count; k-- > 0;) {
		const struct event *e = &a->r->events[own->at[k]];

		if (strcmp(e->ev, "thread") && strcmp(e->ev, "stall") &&
		    strcmp(e->ev, "warning"))
			return (uint64_t)(e->t + a->r->zero -
					  a->r->side[a->side].shift);
	}
	return a->now;
}

static void set_clocks(struct account *a)
{
	uint64_t call = last_call(a), work = objects_last_activity();

	a->call_idle = since(a, call);
	a->idle = work ? since(a, work) : a->call_idle;
}

static void look(struct account *a)
{
	const struct side *side = &a->r->side[a->side];
	struct spot here[MOST_THREADS];
	size_t n;

	set_clocks(a);
	/* 它刚刚又动了。*/
	if (!a->asked && a->idle < a->still && a->call_idle < a->still)
		return;
	a->samples = a->it->samples;
	if (!a->samples.n)
		look_sample(a->view, &a->samples);
	look_for_polls(a);
	n = look_where(a, here);
	if (proc_ended(a->it->fd))
		return;
	for (size_t i = 0; a->call_idle > a->still && i < n; i++)
		add_thread(a, &here[i]);
	look_at_ports(a);
	look_at_requests(a);
	say(a,
	    IN_WORDS(a->r, "qptrace: %s (pid %d): no completion for %.1f s\n",
		     "qptrace: %s（pid %d）：已有 %.1f 秒没有 completion\n"),
	    text_in(side->start, "program"), a->view->pid, seconds(a->idle));
	if (number_in(side->start, "control_only"))
		say(a, IN_WORDS(a->r,
				"qptrace:   posts and completions are not "
				"recorded (--control-only)\n",
				"qptrace:   没有记录 post 与 "
				"completion（--control-only）\n"));
	/* 先说程序正等着的，再说没有人等的。*/
	explain_qps(a, true);
	explain_qps(a, false);
	show_srqs(a);
	if (a->shown > MAX_QPS)
		say(a,
		    IN_WORDS(a->r, "qptrace:   and %u more QPs\n",
			     "qptrace:   另有 %u 个 QP\n"),
		    a->shown - MAX_QPS);
	if (!something_waits(OBJECT_QP) && !something_waits(OBJECT_SRQ))
		for (size_t i = 0; i < n; i++)
			say_thread(a, &here[i]);
}

void look_around(FILE *out, const struct watched *it, const struct report *r,
		 uint64_t now, uint64_t stall_ns, bool asked)
{
	struct account *a = calloc(1, sizeof(*a));

	if (!a)
		return;
	*a = (struct account){ .out = out,
			       .it = it,
			       .view = &it->view,
			       .r = r,
			       .side = r->sides - 1,
			       .now = now,
			       .still = stall_ns && stall_ns / 2 < STILL
						? stall_ns / 2
						: STILL,
			       .asked = asked };
	look(a);
	free(a);
}

uint64_t look_places(const struct view *view)
{
	pid_t threads[MOST_THREADS];
	size_t n = proc_threads(view->pid, threads, MOST_THREADS);
	uint64_t hash = n;

	for (size_t i = 0; i < n; i++) {
		struct blocked where = { "", "" };
		struct thread_slot *slot = NULL;
		const char *in = NULL;

		while ((slot = view_slot(view, slot)))
			if (atomic_load(&slot->tid) == threads[i] &&
			    *view_call(slot))
				in = view_call(slot);
		if (!in)
			proc_blocked(view->pid, threads[i], &where);
		in = in ? in : where.call;
		if (!strcmp(in, "running"))
			return 0;
		for (size_t k = 0; k < sizeof(where.call) && in[k]; k++)
			hash = hash * 31 + (unsigned char)in[k];
	}
	return hash;
}

// SPDX-License-Identifier: MIT
/*
 * stall.c —— 程序卡住了：在等哪个 WR、等什么、从什么时候起、用户态与内核各说是什么
 * 状态
 *
 * “没有 completion”有好几种，样子一样：没有人 poll、没有 arm、没有要 SIGNALED、
 * QP 早已进了 ERR、对端不应答、对端根本没有发。能从记录里排除的先排除；剩下两种可能时
 * 两种都说，并说明怎样区分。
 *
 * 查询内核期间一直拿着锁：ibv_destroy_qp 的包装要先拿到它，QP 不会在半路消失。
 */
#include "stall.h"

#include "format.h"
#include "objects.h"
#include "qp_table.h"
#include "verbs_names.h"
#include "writer.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define SECOND	 1000000000u
#define MAX_QPS	 16
#define RECENTLY (SECOND / 2) /* 一个 poll 着的线程，两个 tick 里总会 poll */

struct account {
	char text[16 * 1024];
	size_t used;
	uint64_t now;
	uint64_t idle; /* ns since the last post or completion */
	bool asked;
	unsigned int qps, shown;
};

/* 一个 QP 的诊断。*/
struct verdict {
	char cause[400];
	char next[400];
};

static void say(struct account *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct account *a, const char *fmt, ...)
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

/* ---- 诊断 ----------------------------------------------------------------- */

static bool because(struct verdict *v, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static bool because(struct verdict *v, const char *next, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(v->cause, sizeof(v->cause), fmt, ap);
	va_end(ap);
	snprintf(v->next, sizeof(v->next), "%s", next);
	return true;
}

static bool judge_states(struct verdict *v, const struct object *qp,
			 enum ibv_qp_state user, enum ibv_qp_state kernel)
{
	if (kernel == IBV_QPS_ERR)
		return because(
			v,
			"find the first bad completion (not a flush) of both "
			"sides; the way back is ERR -> RESET -> INIT -> RTR -> "
			"RTS with new PSNs",
			"the QP is in ERR in the kernel%s; it sends and "
			"receives nothing any more",
			user == kernel ? ""
				       : ", which the program has not noticed");
	if (queue_length(&qp->sq) && kernel < IBV_QPS_RTS)
		return because(v, "bring the QP to RTS before posting sends",
			       "sends were posted, but the QP is only in %s",
			       qp_state_name(kernel));
	if (kernel == IBV_QPS_SQD)
		return because(v, "move the QP back from SQD to RTS",
			       "the send queue is drained (SQD): sends are "
			       "held back");
	if (queue_length(&qp->rq) && kernel < IBV_QPS_RTR)
		return because(v,
			       "exchange QPN, PSN and GID with the peer, then "
			       "INIT -> RTR",
			       "the QP is only in %s: it receives from RTR on",
			       qp_state_name(kernel));
	return false;
}

/* completion 也许早就在 CQ 里了，只是没有人去拿。*/
static bool judge_cq(struct verdict *v, const void *pointer, uint64_t now)
{
	const struct object *cq = object_find(OBJECT_CQ, pointer);
	pid_t sleeper;
	bool armed;

	if (!cq || who_polls(pointer, now))
		return false;
	sleeper = who_sleeps(cq->channel);
	armed = cq->channel && cq->armed && cq->armed >= cq->event;
	if (!sleeper && armed && event_lies_there(cq->channel))
		return because(v,
			       "watch the channel's fd (poll, epoll), then "
			       "ibv_get_cq_event, ibv_req_notify_cq, "
			       "ibv_poll_cq",
			       "an event lies unread on the channel of CQ %u, "
			       "so there is a completion",
			       cq->id);
	if (armed)
		return false;
	if (!sleeper)
		return because(
			v,
			"call ibv_poll_cq on this CQ; is it another CQ "
			"that the program polls?",
			"no thread polls CQ %u or sleeps on its channel: "
			"a completion may lie there unread",
			cq->id);
	return because(
		v,
		"call ibv_req_notify_cq after each event, then poll "
		"once more, then sleep",
		"thread %d sleeps in ibv_get_cq_event, but CQ %u was not "
		"armed%s: it raises no event",
		(int)sleeper, cq->id, cq->armed ? " after its last event" : "");
}

static bool all_unsignaled(const struct queue *sq)
{
	for (uint64_t i = sq->first; i != sq->last; i++)
		if (sq->slots[i & (sq->size - 1)].signaled)
			return false;
	return true;
}

/*
 * 发出去了，没有回音：是没有 ACK，还是对端一直回 RNR？从这一侧的状态分不出来，计数器
 * 分得出来。
 */
static bool judge_send(struct verdict *v, const struct object *qp)
{
	const struct ibv_qp_attr *attr = &qp->attr;
	const char *why = "";

	if (all_unsignaled(&qp->sq))
		return because(
			v,
			"set IBV_SEND_SIGNALED on at least every "
			"(queue size / 2)th send, or sq_sig_all",
			"none of the sends is signaled, so no completion "
			"will ever come of them");
	if (qp->type != IBV_QPT_RC)
		return because(v, "look at `rdma resource show qp` and dmesg",
			       "a send of an unreliable QP completes as soon "
			       "as it is sent: the device does not send");
	if (queue_oldest(&qp->sq)->opcode == IBV_WR_RDMA_READ &&
	    (qp->attr_set & IBV_QP_MAX_QP_RD_ATOMIC) && !attr->max_rd_atomic)
		return because(v, "set max_rd_atomic above 0 on the way to RTS",
			       "max_rd_atomic is 0: READs are never sent");
	if ((qp->attr_set & IBV_QP_RETRY_CNT) && attr->retry_cnt == 7)
		why = " (retry_cnt 7: rxe tries for ever)";
	else if ((qp->attr_set & IBV_QP_TIMEOUT) && !attr->timeout)
		why = " (timeout 0: it is never sent again)";
	else if ((qp->attr_set & IBV_QP_RNR_RETRY) && attr->rnr_retry == 7)
		why = " (rnr_retry 7: RNR is waited out for ever)";
	return because(v,
		       "in /sys/class/infiniband/*/ports/1/hw_counters: if "
		       "rcvd_rnr_err grows, the peer has no receive posted; if "
		       "completer_retry_err grows, it does not answer: compare "
		       "QPN, PSN and GID of both sides, see UDP port 4791",
		       "no ACK has come from QP %u, or only \"not ready\" "
		       "(RNR)%s",
		       attr->dest_qp_num, why);
}

/*
 * 只等着收。UD 不看 PSN，也没有连接：错了就是一声不响地丢。收到过的话还有一种可能：包
 * 来了，是程序自己没有认它（第 08 课里的 UCX）。从这一侧分不出来，计数器分得出来。
 */
static bool judge_receive(struct verdict *v, const struct object *qp)
{
	if (qp->type != IBV_QPT_UD)
		return because(v,
			       "look at the peer: has it posted a send, and "
			       "does it complete? `qptrace report A.json "
			       "B.json` shows both; compare its sq_psn with "
			       "this side's rq_psn",
			       "all is ready here, and nothing has come from "
			       "the peer");
	if (!qp->rq.completed)
		return because(
			v,
			"look at the peer: has it posted a send? Compare "
			"its wr.ud.remote_qpn and remote_qkey with this "
			"QP's number and Q_Key: UD drops what does not "
			"fit without a word",
			"all is ready here, and nothing has come");
	return because(v,
		       "see whether rcvd_pkts in /sys/class/infiniband/*/"
		       "ports/1/hw_counters grows while it waits. If so, look "
		       "at what the program does with a good receive: over "
		       "IPv4 the 40 bytes before the message are no GRH "
		       "(labs/faults/run ud-dgid-ipv4)",
		       "either the peer sends nothing more, or the program did "
		       "not take what came: receives have completed here");
}

static void judge(struct verdict *v, const struct object *qp,
		  enum ibv_qp_state user, enum ibv_qp_state kernel,
		  uint64_t now)
{
	bool sends = queue_length(&qp->sq);
	const void *cq = sends ? qp->send_cq : qp->recv_cq;

	if (judge_states(v, qp, user, kernel) || judge_cq(v, cq, now))
		return;
	if (sends)
		judge_send(v, qp);
	else
		judge_receive(v, qp);
}

/* ---- 一个 QP -------------------------------------------------------------- */

static void say_queue(struct account *a, const struct queue *queue,
		      const char *what)
{
	const struct waiting *oldest = queue_oldest(queue);
	uint64_t n = queue_length(queue);

	if (!oldest)
		return;
	say(a,
	    "qptrace:     %llu %s%s wait%s, the oldest for %.1f s: wr_id "
	    "0x%llx, %u bytes",
	    (unsigned long long)n, what, n == 1 ? "" : "s", n == 1 ? "s" : "",
	    seconds(a->now - oldest->time), (unsigned long long)oldest->wr_id,
	    oldest->length);
	if (what[0] == 's')
		say(a, ", %s%s", wr_opcode_name(oldest->opcode),
		    oldest->signaled ? "" : ", not signaled");
	say(a, " (%llu completed before)\n",
	    (unsigned long long)queue->completed);
}

static void say_peer(struct account *a, const struct object *qp,
		     const struct ibv_qp_attr *kernel)
{
	char gid[46];

	if (!(qp->attr_set & IBV_QP_DEST_QPN))
		return;
	say(a, "qptrace:     peer: QP %u at %s; kernel: rq_psn %u, sq_psn %u\n",
	    qp->attr.dest_qp_num, gid_text(gid, qp->attr.ah_attr.grh.dgid.raw),
	    kernel->rq_psn, kernel->sq_psn);
}

static void add_stall(const struct account *a, const struct object *qp,
		      const char *user, const char *kernel,
		      const struct verdict *v)
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
		LINE_HEX(&line, "send_wr_id", send->wr_id);
	}
	if (receive) {
		LINE_NUMBER(&line, "oldest_receive", receive->number);
		LINE_HEX(&line, "receive_wr_id", receive->wr_id);
	}
	LINE_TEXT(&line, "cause", v->cause);
	LINE_TEXT(&line, "next", v->next);
	writer_add(ring_stamp(), &line);
}

static void explain_qp(struct object *qp, void *arg)
{
	struct account *a = arg;
	struct ibv_qp *handle = (struct ibv_qp *)(uintptr_t)qp->pointer;
	enum ibv_qp_state user = handle->state;
	const char *kernel = "unknown";
	struct ibv_qp_init_attr init;
	struct verdict v = { .cause = "" };
	struct ibv_qp_attr now = { .qp_state = user };
	bool waits = queue_length(&qp->sq) || queue_length(&qp->rq);
	int err;

	if (!waits && !a->asked)
		return;
	if (a->shown++ >= MAX_QPS)
		return;
	err = ibv_query_qp(handle, &now,
			   IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN, &init);
	if (!err)
		kernel = qp_state_name(now.qp_state);
	say(a,
	    "qptrace:   QP %u of %s (%s): %s in the user's copy, %s in the "
	    "kernel\n",
	    qp->qpn, handle->context->device->name, qp_type_name(qp->type),
	    qp_state_name(user), kernel);
	say_queue(a, &qp->sq, "send");
	say_queue(a, &qp->rq, "receive");
	say_peer(a, qp, &now);
	if (waits) {
		judge(&v, qp, user, now.qp_state, a->now);
		say(a, "qptrace:     cause: %s\nqptrace:      next: %s\n",
		    v.cause, v.next);
	}
	add_stall(a, qp, qp_state_name(user), kernel, &v);
}

static void explain_srq(struct object *srq, void *arg)
{
	struct account *a = arg;

	if (queue_length(&srq->rq)) {
		say(a, "qptrace:   SRQ %u\n", srq->id);
		say_queue(a, &srq->rq, "receive");
	}
}

static void count_waiting(struct object *qp, void *arg)
{
	struct account *a = arg;

	a->qps += queue_length(&qp->sq) || queue_length(&qp->rq);
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
	object_each(OBJECT_QP, count_waiting, a);
	object_each(OBJECT_SRQ, count_waiting, a);
	if (!a->qps)
		return false;
	explained = last;
	return true;
}

static struct account account;

void stall_look(bool asked)
{
	struct account *a = &account;

	a->asked = asked;
	a->used = a->qps = a->shown = 0;
	a->now = writer_now();
	look_at_rings(a->now);
	if (!is_stalled(a))
		return;
	say(a, "qptrace: %s (pid %d): no completion for %.1f s\n",
	    program_invocation_short_name, (int)getpid(), seconds(a->idle));
	if (recorder.control_only)
		say(a, "qptrace:   posts and completions are not recorded "
		       "(--control-only)\n");
	object_each(OBJECT_QP, explain_qp, a);
	object_each(OBJECT_SRQ, explain_srq, a);
	if (a->shown > MAX_QPS)
		say(a, "qptrace:   and %u more QPs\n", a->shown - MAX_QPS);
}

void stall_say(void)
{
	if (account.used && (account.asked || !recorder.quiet))
		writer_say(account.text, account.used);
}

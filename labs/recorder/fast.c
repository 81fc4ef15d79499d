// SPDX-License-Identifier: MIT
/*
 * fast.c —— 快路径：post_send、post_recv、poll_cq、req_notify_cq
 *
 * 这些在 verbs.h 里是 inline 函数，直接跳到 context->ops 里的指针，LD_PRELOAD 换
 * 不了符号，只能换指针。每次调用多做的事只有：记一个时间，填一个 64 字节的记录。
 *
 * 次序有讲究：post 的记录在交给驱动“之前”发布，completion 的在拿到“之后”发布。
 * 于是记录里 post 一定在它的 completion 前面，哪怕收 completion 的是另一个线程。
 */
#include "base/verbs_names.h"
#include "event.h"
#include "explain/qp_table.h"
#include "format.h"
#include "hooks.h"
#include "objects.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>

#define MAX_CONTEXTS 64

/*
 * 只增不减，读者不用锁；关掉的 context 留下空位给以后的用。每个 provider 的 context 都指向
 * 同一组函数，但不能指望：按 context 存。
 */
static struct hooked contexts[MAX_CONTEXTS];

static inline const struct ibv_context_ops *
real_ops(const struct ibv_context *context)
{
	const struct hooked *h = contexts;
	const struct hooked *last = &contexts[MAX_CONTEXTS - 1];

	while (h != last &&
	       atomic_load_explicit(&h->context, memory_order_relaxed) !=
		       context)
		h++;
	return &h->ops;
}

/* 驱动先看 num_sge 再去读它们；程序填错了的（99 个），后面就不是它的内存了。*/
#define MOST_SGES 32

static void add_sges(struct record *r, const struct ibv_sge *sge, int count)
{
	r->num_sge = (uint8_t)count;
	if (count <= 0 || !sge)
		return;
	r->addr = sge->addr;
	r->qpn = sge->lkey;
	for (int i = 0; count <= MOST_SGES && i < count; i++)
		r->length += sge[i].length;
}

/* ---- completion ----------------------------------------------------------- */

/* 每个 QP 只一次；程序自己转到 ERR 引起的 flush 不算。@qp 为 NULL：不知道是哪个。*/
static bool worth_explaining(struct object *qp, enum ibv_wc_status status)
{
	if (!qp)
		return status != IBV_WC_WR_FLUSH_ERR;
	if (qp->failed || (status == IBV_WC_WR_FLUSH_ERR && qp->to_error))
		return false;
	return qp->failed = true;
}

/*
 * 请求与 MR 对不对，读记录的人知道；此刻只有这里问得到的，是内核里的 QP 与它在本机的对端。持锁：
 * QP 不会在半路被拆掉。
 */
static struct explanation why_now(const struct object *qp,
				  enum ibv_wc_status status)
{
	struct ibv_qp *handle = (struct ibv_qp *)(uintptr_t)qp->pointer;
	const struct ibv_wc wc = { .status = status, .qp_num = qp->qpn };

	return explain_completion(handle, &wc, NULL);
}

/*
 * 只解释每个 QP 的第一个坏 completion：第一个才带着原因，后面的都是 flush。
 * 程序自己把 QP 转到 ERR 引起的 flush 是正常的收尾，不是失败。
 */
void completion_failed(const struct ibv_cq *cq, uint32_t qpn, uint64_t wr_id,
		       enum ibv_wc_status status)
{
	struct explanation why;
	struct event e;
	struct object *qp;
	uint32_t id;
	bool worth;

	if (!event_begin(&e, "explain"))
		return;
	writer_lock();
	qp = object_completed(cq, qpn);
	qpn = qp ? qp->qpn : qpn;
	id = qp ? qp->id : 0;
	worth = worth_explaining(qp, status);
	if (worth)
		why = qp ? why_now(qp, status) : explain_wc_status(status);
	writer_unlock();
	if (!worth) {
		event_drop(&e);
		return;
	}
	LINE_TEXT(&e.line, "about", "completion");
	LINE_NUMBER(&e.line, "qp", id);
	if (qpn != RECORD_NO_QPN)
		LINE_NUMBER(&e.line, "qpn", qpn);
	LINE_HEX(&e.line, "wr_id", wr_id);
	LINE_TEXT(&e.line, "status", wc_status_name(status));
	if (qpn != RECORD_NO_QPN)
		event_explain(
			&e, why,
			"completion of wr_id 0x%llx on QP %u of %s: %s (status "
			"%d)",
			(unsigned long long)wr_id, qpn,
			cq->context->device->name, wc_status_name(status),
			(int)status);
	else
		event_explain(
			&e, why,
			"completion of wr_id 0x%llx of %s: %s (status %d)",
			(unsigned long long)wr_id, cq->context->device->name,
			wc_status_name(status), (int)status);
	writer_lock();
	event_end(&e);
}

static void record_completion(struct ring *ring, uint64_t stamp,
			      const struct ibv_cq *cq, const struct ibv_wc *wc)
{
	struct record *r = ring_add(ring, RECORD_COMPLETION, cq, stamp);

	r->wr_id = wc->wr_id;
	r->qpn = wc->qp_num;
	r->length = wc->byte_len;
	r->rkey = wc->vendor_err;
	r->flags = (uint16_t)wc->wc_flags;
	r->opcode = (uint8_t)wc->opcode;
	r->status = (uint8_t)wc->status;
	ring_publish(ring);
}

static int traced_poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	int n = real_ops(cq->context)->poll_cq(cq, num, wc);
	struct ring *ring = ring_mine();
	uint64_t stamp;

	ring_polled(ring, cq, n <= 0);
	if (n <= 0)
		return n;
	stamp = ring_stamp();
	for (int i = 0; i < n; i++)
		record_completion(ring, stamp, cq, &wc[i]);
	for (int i = 0; i < n; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			completion_failed(cq, wc[i].qp_num, wc[i].wr_id,
					  wc[i].status);
	return n;
}

static int traced_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct ring *ring = ring_mine();

	ring_add(ring, RECORD_ARM, cq, ring_stamp())->flags =
		solicited_only != 0;
	ring_publish(ring);
	return real_ops(cq->context)->req_notify_cq(cq, solicited_only);
}

/* ---- post ----------------------------------------------------------------- */

/*
 * 一串 WR 可能绕回自己：驱动走到队列满了就停，我们却没有尽头。每走到 2、4、8…… 步记一个
 * 标记，再碰到它就是绕回来了；只有一个 WR 的（几乎都是）不花一分。
 */
struct walk {
	const void *mark;
	uint32_t steps, limit;
	bool returned;
};
#define WALK(from) ((struct walk){ (from), 0, 2, false })

static void *walk_to(struct walk *walk, void *next)
{
	if (next == walk->mark && next) {
		walk->returned = true;
		return NULL;
	}
	if (next && ++walk->steps == walk->limit) {
		walk->mark = next;
		walk->steps = 0;
		walk->limit *= 2;
	}
	return next;
}

static void refused(const void *object, uint64_t wr_id, uint32_t count,
		    bool send, int err)
{
	struct ring *ring = ring_mine();
	struct record *r =
		ring_add(ring, RECORD_POST_FAILED, object, ring_stamp());

	r->wr_id = wr_id;
	r->length = count;
	r->opcode = send;
	r->status = (uint8_t)err;
	ring_publish(ring);
}

/* ibv_post_* 返回正的错误码；老驱动有返回 -1 并设 errno 的。*/
static int error_of(int rc)
{
	return rc > 0 ? rc : errno;
}

/* @qp 为 NULL 是 SRQ。*/
static void explain_refusal(const char *call, struct ibv_qp *qp, uint64_t wr_id,
			    int err, struct explanation why)
{
	struct event e;

	if (!event_begin(&e, "explain"))
		return;
	e.err = err;
	LINE_TEXT(&e.line, "about", "post");
	LINE_HEX(&e.line, "wr_id", wr_id);
	if (qp)
		event_explain(&e, why, "%s(QP %u of %s in %s, wr_id 0x%llx)",
			      call, qp->qp_num, qp->context->device->name,
			      qp_state_name(qp->state),
			      (unsigned long long)wr_id);
	else
		event_explain(&e, why, "%s(wr_id 0x%llx)", call,
			      (unsigned long long)wr_id);
	writer_lock();
	if (qp)
		LINE_NUMBER(&e.line, "qp", object_id(OBJECT_QP, qp));
	event_end(&e);
}

void send_refused(const char *call, struct ibv_qp *qp,
		  const struct ibv_send_wr *wr, uint32_t count, int rc,
		  bool returns)
{
	int err = error_of(rc);
	struct explanation why;

	recorder_inside++; /* 解释器要 ibv_query_qp */
	why = returns ? explain_wr_cycle() : explain_post_send(qp, wr, err);
	recorder_inside--;
	refused(qp, wr->wr_id, count, true, err);
	explain_refusal(call, qp, wr->wr_id, err, why);
}

static void record_send(struct ring *ring, uint64_t stamp,
			const struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	struct record *r = ring_add(ring, RECORD_POST_SEND, qp, stamp);

	r->wr_id = wr->wr_id;
	r->flags = (uint16_t)wr->send_flags;
	r->opcode = (uint8_t)wr->opcode;
	add_sges(r, wr->sg_list, wr->num_sge);
	if (qp->qp_type == IBV_QPT_UD) {
		r->remote = wr->wr.ud.remote_qpn;
		r->rkey = wr->wr.ud.remote_qkey;
	} else if (is_atomic(wr->opcode)) {
		r->remote_addr = wr->wr.atomic.remote_addr;
		r->rkey = wr->wr.atomic.rkey;
	} else if (wr->opcode == IBV_WR_RDMA_WRITE ||
		   wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
		   wr->opcode == IBV_WR_RDMA_READ) {
		r->remote_addr = wr->wr.rdma.remote_addr;
		r->rkey = wr->wr.rdma.rkey;
	}
	ring_publish(ring);
}

/* rxe 的 provider 照着 NULL 去读，程序就此崩溃：原因要在那之前说。*/
static void look_at_ah(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	if (!wr->wr.ud.ah)
		explain_refusal("ibv_post_send", qp, wr->wr_id, 0,
				explain_null_ah());
}

static int traced_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			    struct ibv_send_wr **bad)
{
	struct ring *ring = ring_mine();
	struct ibv_send_wr *first = NULL;
	struct walk walk = WALK(wr), rest;
	uint64_t stamp = ring_stamp();
	uint32_t left = 0;
	int rc;

	for (struct ibv_send_wr *w = wr; w; w = walk_to(&walk, w->next))
		record_send(ring, stamp, qp, w);
	if (wr && __builtin_expect(qp->qp_type == IBV_QPT_UD, 0))
		look_at_ah(qp, wr);
	rc = real_ops(qp->context)->post_send(qp, wr, bad);
	if (__builtin_expect(rc == 0, 1) || !wr)
		return rc;
	if (bad)
		first = *bad;
	rest = WALK(first);
	for (struct ibv_send_wr *w = first; w; w = walk_to(&rest, w->next))
		left++;
	/* rxe 在状态不对时不填 bad_wr：WR 已经在环里，到了 RTS 会被执行。*/
	send_refused("ibv_post_send", qp, first ? first : wr, left, rc,
		     walk.returned);
	return rc;
}

static void record_recv(struct ring *ring, uint64_t stamp, const void *object,
			const struct ibv_recv_wr *wr, enum record_kind kind)
{
	struct record *r = ring_add(ring, kind, object, stamp);

	r->wr_id = wr->wr_id;
	add_sges(r, wr->sg_list, wr->num_sge);
	ring_publish(ring);
}

/* @first: *bad_wr；驱动没有填的话是整串的头。*/
static void recv_refused(const char *call, struct ibv_qp *qp, void *object,
			 const struct ibv_recv_wr *first, int rc)
{
	struct walk walk = WALK(first);
	int err = error_of(rc);
	struct explanation why;
	uint32_t left = 0;

	for (const struct ibv_recv_wr *w = first; w;
	     w = walk_to(&walk, w->next))
		left++;
	recorder_inside++;
	if (walk.returned)
		why = explain_wr_cycle();
	else
		why = qp ? explain_post_recv(qp, first, err)
			 : explain_post_srq_recv((struct ibv_srq *)object,
						 first, err);
	recorder_inside--;
	refused(object, first->wr_id, left, false, err);
	explain_refusal(call, qp, first->wr_id, err, why);
}

/* QP 与 SRQ 的只差在去哪里；@qp 为 NULL 是 SRQ。*/
#define TRACED_RECV(call, type, kind, qp)                            \
	static int traced_##call(type *to, struct ibv_recv_wr *wr,   \
				 struct ibv_recv_wr **bad)           \
	{                                                            \
		struct ring *ring = ring_mine();                     \
		struct walk walk = WALK(wr);                         \
		uint64_t stamp = ring_stamp();                       \
		int rc;                                              \
                                                                     \
		for (struct ibv_recv_wr *w = wr; w;                  \
		     w = walk_to(&walk, w->next))                    \
			record_recv(ring, stamp, to, w, kind);       \
		rc = real_ops(to->context)->call(to, wr, bad);       \
		if (__builtin_expect(rc != 0, 0) && wr)              \
			recv_refused("ibv_" #call, qp, to,           \
				     !bad || !*bad ? wr : *bad, rc); \
		return rc;                                           \
	}
TRACED_RECV(post_recv, struct ibv_qp, RECORD_POST_RECV, to)
TRACED_RECV(post_srq_recv, struct ibv_srq, RECORD_POST_SRQ_RECV, NULL)

/* ---- 装与卸 --------------------------------------------------------------- */

struct hooked *hooked_of(const struct ibv_context *context)
{
	for (size_t i = 0; i < MAX_CONTEXTS; i++)
		if (atomic_load(&contexts[i].context) == context)
			return &contexts[i];
	return NULL;
}

static void swap_ops(struct ibv_context_ops *ops)
{
#define SWAP(call) ops->call = ops->call ? traced_##call : NULL
	SWAP(poll_cq);
	SWAP(req_notify_cq);
	SWAP(post_send);
	SWAP(post_recv);
	SWAP(post_srq_recv);
#undef SWAP
}

struct hooked *hook_ops(struct ibv_context *context)
{
	struct hooked *h = hooked_of(NULL);

	if (!h || hooked_of(context))
		return NULL;
	h->ops = context->ops;
	atomic_store(&h->context, context);
	if (!recorder.control_only)
		swap_ops(&context->ops);
	return h;
}

void unhook_ops(struct ibv_context *context)
{
	struct hooked *h = hooked_of(context);

	if (!h)
		return;
	if (!recorder.control_only)
		context->ops = h->ops;
	atomic_store(&h->context, NULL);
}

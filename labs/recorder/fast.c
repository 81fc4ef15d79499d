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
#include "hooks.h"
#include "objects.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>
#include <stdio.h>

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
	char on[24] = "";
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
	LINE_HEX(&e.line, "wr_id", wr_id);
	LINE_TEXT(&e.line, "status", wc_status_name(status));
	if (qpn != RECORD_NO_QPN) {
		LINE_NUMBER(&e.line, "qpn", qpn);
		snprintf(on, sizeof(on), " on QP %u", qpn);
	}
	event_explain(&e, why,
		      "completion of wr_id 0x%llx%s of %s: %s (status %d)",
		      (unsigned long long)wr_id, on, cq->context->device->name,
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

/* 没有队列装得下这么多。一串 WR 若绕回自己，驱动走到队列满了就停，我们却没有尽头。*/
#define MOST_WRS 65536u

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

/* 记下没有收下的 @count 个，再说为什么。ibv_post_* 返回正的错误码；老驱动有返回 -1 的。*/
void post_refused(const struct refusal *r)
{
	const int err = r->rc > 0 ? r->rc : errno;
	struct ring *ring = ring_mine();
	struct record *record =
		ring_add(ring, RECORD_POST_FAILED, r->object, ring_stamp());
	uint64_t wr_id = r->send ? r->send->wr_id : r->recv->wr_id;
	struct explanation why;

	record->wr_id = wr_id;
	record->length = r->count;
	record->opcode = r->send != NULL;
	record->status = (uint8_t)err;
	ring_publish(ring);
	recorder_inside++; /* 解释器要 ibv_query_qp */
	if (r->returns)
		why = explain_wr_cycle();
	else if (r->send)
		why = explain_post_send(r->qp, r->send, err);
	else if (r->qp)
		why = explain_post_recv(r->qp, r->recv, err);
	else
		why = explain_post_srq_recv(r->object, r->recv, err);
	recorder_inside--;
	explain_refusal(r->call, r->qp, wr_id, err, why);
}

static void record_send(struct ring *ring, uint64_t stamp, struct ibv_qp *qp,
			const struct ibv_send_wr *wr)
{
	struct record *r;

	/* rxe 的 provider 照着 NULL 去读，程序就此崩溃：原因要在那之前说。*/
	if (qp->qp_type == IBV_QPT_UD && !wr->wr.ud.ah)
		explain_refusal("ibv_post_send", qp, wr->wr_id, 0,
				explain_null_ah());
	r = ring_add(ring, RECORD_POST_SEND, qp, stamp);
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
	} else if (wr->opcode == IBV_WR_BIND_MW) {
		r->remote_addr = wr->bind_mw.bind_info.addr;
		r->length = (uint32_t)wr->bind_mw.bind_info.length;
		r->rkey = wr->bind_mw.rkey;
	} else if (wr->opcode == IBV_WR_LOCAL_INV ||
		   wr->opcode == IBV_WR_SEND_WITH_INV) {
		r->rkey = wr->invalidate_rkey;
	}
	ring_publish(ring);
}

static void record_recv(struct ring *ring, uint64_t stamp, const void *object,
			const struct ibv_recv_wr *wr, enum record_kind kind)
{
	struct record *r = ring_add(ring, kind, object, stamp);

	r->wr_id = wr->wr_id;
	add_sges(r, wr->sg_list, wr->num_sge);
	ring_publish(ring);
}
#define RECORD_RECV(ring, stamp, qp, wr) \
	record_recv(ring, stamp, qp, wr, RECORD_POST_RECV)
#define RECORD_SRQ_RECV(ring, stamp, srq, wr) \
	record_recv(ring, stamp, srq, wr, RECORD_POST_SRQ_RECV)

/*
 * @wr_kind：send 或 recv；@of_qp：NULL 是 SRQ。rxe 在状态不对时不填 bad_wr：recv 一个也没有收下
 * （@unsaid 是 wr），send 却已经在环里，到了 RTS 会被执行（NULL）。
 */
#define TRACED_POST(name, type, wr_kind, record_it, of_qp, unsaid)        \
	static int traced_##name(type *to, struct ibv_##wr_kind##_wr *wr, \
				 struct ibv_##wr_kind##_wr **bad)         \
	{                                                                 \
		struct ibv_##wr_kind##_wr *w = wr;                        \
		struct ring *ring = ring_mine();                          \
		uint32_t n = 0;                                           \
		uint64_t stamp = ring_stamp();                            \
		struct refusal r;                                         \
		int rc;                                                   \
                                                                          \
		for (; w && n < MOST_WRS; w = w->next, n++)               \
			record_it(ring, stamp, to, w);                    \
		rc = real_ops(to->context)->name(to, wr, bad);            \
		if (__builtin_expect(rc == 0, 1) || !wr)                  \
			return rc;                                        \
		r = (struct refusal){ .call = "ibv_" #name,               \
				      .object = to,                       \
				      .qp = of_qp,                        \
				      .wr_kind = bad && *bad ? *bad : wr, \
				      .rc = rc,                           \
				      .returns = n == MOST_WRS };         \
		w = bad && *bad ? *bad : (unsaid);                        \
		for (; w && r.count < MOST_WRS; w = w->next)              \
			r.count++;                                        \
		post_refused(&r);                                         \
		return rc;                                                \
	}
TRACED_POST(post_send, struct ibv_qp, send, record_send, to, NULL)
TRACED_POST(post_recv, struct ibv_qp, recv, RECORD_RECV, to, wr)
TRACED_POST(post_srq_recv, struct ibv_srq, recv, RECORD_SRQ_RECV, NULL, wr)

/* ---- memory window -------------------------------------------------------- */

static struct ibv_mw *traced_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw;
	struct event e;

	RECORD_MADE(&e, "alloc_mw", mw,
		    real_ops(pd->context)->alloc_mw(pd, type));
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_alloc_mw(type %d)", (int)type);
	writer_lock();
	object_add(OBJECT_MW, mw, pd->context);
	line_add_object(&e.line, OBJECT_PD, pd);
	if (mw)
		LINE_HEX(&e.line, "rkey", mw->rkey);
	writer_unlock();
	event_ends_of(&e, OBJECT_MW, mw);
	return mw;
}

/* 类型 1 的 bind，由 provider 自己 post。*/
static int traced_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
			  struct ibv_mw_bind *bind)
{
	const struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = { mw, ibv_inc_rkey(mw->rkey), bind->bind_info },
	};

	record_send(ring_mine(), ring_stamp(), qp, &wr);
	return real_ops(qp->context)->bind_mw(qp, mw, bind);
}

static int traced_dealloc_mw(struct ibv_mw *mw)
{
	struct event e;
	int err;

	RECORD_ERR(&e, "dealloc_mw", err,
		   real_ops(mw->context)->dealloc_mw(mw));
	EXPLAIN_ERR(&e, explain_destroy(e.err), "ibv_dealloc_mw()");
	event_ends_of(&e, OBJECT_MW, mw);
	return err;
}

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
	SWAP(alloc_mw);
	SWAP(bind_mw);
	SWAP(dealloc_mw);
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

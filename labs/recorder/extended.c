// SPDX-License-Identifier: MIT
/*
 * extended.c —— 扩展 API：verbs_context 里的 create_*_ex，QP 的 wr_*()，CQ 的
 * start_poll/next_poll
 *
 * UCX、librdmacm、新的 perftest 都走这条路。指针放在三个地方：
 *   verbs_context  context 前面的一块（“grows up”：新成员加在前面），用 sz 判断有没有；
 *   ibv_qp_ex      每个 QP 一套 wr_*；
 *   ibv_cq_ex      每个 CQ 一套 start_poll/next_poll/end_poll。
 * 旧版 libibverbs 的 ibv_qp_ex 没有最后的 wr_atomic_write，所以不去碰它。
 */
#include "base/verbs_names.h"
#include "event.h"
#include "hooks.h"
#include "objects.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>

#define BUCKETS 256u
#define PENDING 32

/* 一个被换了指针的 QP 或 CQ。表只增不减，快路径上查它不用锁。*/
struct hook {
	const void *_Atomic key;
	struct hook *next;
	/* CQ */
	uint64_t wc_flags;
	struct ibv_cq_ex cq; /* 原来的指针 */
	_Atomic pid_t open;  /* start_poll 与 end_poll 之间：哪个线程 */
	bool warned;
	/* QP：wr_start 与 wr_complete 之间攒着的 WR */
	struct ibv_qp_ex qp; /* 原来的指针 */
	_Atomic pid_t by;    /* 哪个线程 */
	unsigned int count;
	struct record pending[PENDING];
};

static struct hook *_Atomic table[BUCKETS];

static struct hook *_Atomic *bucket_of(const void *key)
{
	return &table[(uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u >> 56];
}

static struct hook *find(const void *key)
{
	struct hook *h =
		atomic_load_explicit(bucket_of(key), memory_order_acquire);

	while (h && atomic_load_explicit(&h->key, memory_order_relaxed) != key)
		h = h->next;
	return h;
}

/* 已经拆掉的留下的空位，同一个桶里可以再用。持锁。*/
static struct hook *add(const void *key)
{
	struct hook *h = atomic_load(bucket_of(key));

	while (h && h->key)
		h = h->next;
	if (h)
		return h;
	h = recorder_pages(sizeof(*h));
	if (!h)
		return NULL;
	h->next = atomic_load(bucket_of(key));
	atomic_store_explicit(bucket_of(key), h, memory_order_release);
	return h;
}

/* ---- CQ ------------------------------------------------------------------- */

/* 没有要的字段，驱动可能不给读它的函数。*/
static void record_current(const struct hook *h, struct ibv_cq_ex *cq)
{
	struct ring *ring = ring_mine();
	struct record *r = ring_add(ring, RECORD_COMPLETION, cq, ring_stamp());
	uint32_t qpn = RECORD_NO_QPN;

	if ((h->wc_flags & IBV_WC_EX_WITH_QP_NUM) && cq->read_qp_num)
		qpn = cq->read_qp_num(cq);
	r->wr_id = cq->wr_id;
	r->qpn = qpn;
	r->length = RECORD_NO_LENGTH;
	r->status = (uint8_t)cq->status;
	if ((h->wc_flags & IBV_WC_EX_WITH_BYTE_LEN) && cq->read_byte_len)
		r->length = cq->read_byte_len(cq);
	if (cq->status) {
		r->rkey = cq->read_vendor_err(cq);
	} else {
		r->flags = (uint16_t)cq->read_wc_flags(cq);
		r->opcode = (uint8_t)cq->read_opcode(cq);
	}
	ring_publish(ring);
	if (cq->status != IBV_WC_SUCCESS)
		completion_failed(ibv_cq_ex_to_cq(cq), qpn, cq->wr_id,
				  cq->status);
}

static void warn_once(struct hook *h, const struct ibv_cq_ex *cq,
		      struct explanation why)
{
	if (!h->warned)
		event_warn(OBJECT_CQ, cq, why);
	h->warned = true;
}

static int traced_start_poll(struct ibv_cq_ex *cq,
			     struct ibv_poll_cq_attr *attr)
{
	struct hook *h = find(cq);
	struct ring *ring = ring_mine();
	int rc;

	/* 自己拿着锁，再拿一次：从此停在里面。*/
	if (h->open == ring->tid)
		warn_once(h, cq,
			  because("pair-not-ended",
				  "ibv_start_poll\tibv_end_poll"));
	rc = h->cq.start_poll(cq, attr);
	h->open = rc ? 0 : ring->tid;
	ring_opens(ring, OPEN_POLL, !rc);
	if (rc)
		ring_polled(ring, cq, true);
	else
		record_current(h, cq);
	return rc;
}

/* rxe 的 provider 先往前走一格，再看有没有；end_poll 又走一格，CQ 从此对不上。*/
static int traced_next_poll(struct ibv_cq_ex *cq)
{
	struct hook *h = find(cq);
	int rc = h->cq.next_poll(cq);

	if (!rc)
		record_current(h, cq);
	else if (device_is_rxe(cq->context))
		warn_once(h, cq, because("next-poll-ahead"));
	return rc;
}

/* 没有成功的 start_poll，provider 照样往前走，随后读到的是没有写过的 CQE。*/
static void traced_end_poll(struct ibv_cq_ex *cq)
{
	struct hook *h = find(cq);

	if (!h->open)
		warn_once(h, cq, because("end-poll-alone"));
	h->open = 0;
	ring_opens(ring_mine(), OPEN_POLL, false);
	h->cq.end_poll(cq);
}

static void hook_cq_ex(struct ibv_cq_ex *cq, uint64_t wc_flags)
{
	struct hook *h;

	if (recorder.control_only || !cq->start_poll || !cq->next_poll)
		return;
	h = add(cq);
	if (!h)
		return;
	h->cq = *cq;
	h->wc_flags = wc_flags;
	h->open = 0;
	h->warned = false;
	atomic_store(&h->key, cq);
	cq->start_poll = traced_start_poll;
	cq->next_poll = traced_next_poll;
	cq->end_poll = traced_end_poll;
}

void unhook(const void *object)
{
	struct hook *h = find(object);

	if (h)
		atomic_store(&h->key, NULL);
}

/* ---- QP ------------------------------------------------------------------- */

static void publish(struct hook *h)
{
	struct ring *ring = ring_mine();

	for (unsigned int i = 0; i < h->count; i++) {
		*ring_add(ring, RECORD_POST_SEND, NULL, 0) = h->pending[i];
		ring_publish(ring);
	}
	h->count = 0;
}

/* wr_send() 等开始一个新的 WR；它的 SGE 随后由 wr_set_*() 给出。*/
static struct hook *next_wr(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode,
			    uint32_t rkey, uint64_t remote_addr)
{
	struct hook *h = find(qp);

	if (h->count == PENDING)
		publish(h);
	h->pending[h->count++] = (struct record){
		.stamp = ring_stamp(),
		.wr_id = qp->wr_id,
		.object = (uintptr_t)qp,
		.remote_addr = remote_addr,
		.rkey = rkey,
		.flags = (uint16_t)qp->wr_flags,
		.kind = RECORD_POST_SEND,
		.opcode = (uint8_t)opcode,
	};
	return h;
}

static struct record *current(struct hook *h)
{
	return &h->pending[h->count ? h->count - 1 : 0];
}

/* 名字、参数、opcode、rkey 与对端地址（没有的是 0），以及原样交给驱动的实参。*/
#define TRACED(name, PARAMS, opcode, rkey, addr, ...)    \
	static void traced_##name PARAMS                 \
	{                                                \
		next_wr(qp, IBV_WR_##opcode, rkey, addr) \
			->qp.name(__VA_ARGS__);          \
	}
TRACED(wr_atomic_cmp_swp,
       (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, uint64_t compare,
	uint64_t swap),
       ATOMIC_CMP_AND_SWP, rkey, addr, qp, rkey, addr, compare, swap)
TRACED(wr_atomic_fetch_add,
       (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, uint64_t value),
       ATOMIC_FETCH_AND_ADD, rkey, addr, qp, rkey, addr, value)
TRACED(wr_bind_mw,
       (struct ibv_qp_ex * qp, struct ibv_mw *mw, uint32_t rkey,
	const struct ibv_mw_bind_info *info),
       BIND_MW, rkey, info->addr, qp, mw, rkey, info)
TRACED(wr_local_inv, (struct ibv_qp_ex * qp, uint32_t rkey), LOCAL_INV, rkey, 0,
       qp, rkey)
TRACED(wr_rdma_read, (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr),
       RDMA_READ, rkey, addr, qp, rkey, addr)
TRACED(wr_rdma_write, (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr),
       RDMA_WRITE, rkey, addr, qp, rkey, addr)
TRACED(wr_rdma_write_imm,
       (struct ibv_qp_ex * qp, uint32_t rkey, uint64_t addr, __be32 imm),
       RDMA_WRITE_WITH_IMM, rkey, addr, qp, rkey, addr, imm)
TRACED(wr_send, (struct ibv_qp_ex * qp), SEND, 0, 0, qp)
TRACED(wr_send_imm, (struct ibv_qp_ex * qp, __be32 imm), SEND_WITH_IMM, 0, 0,
       qp, imm)
TRACED(wr_send_inv, (struct ibv_qp_ex * qp, uint32_t rkey), SEND_WITH_INV, rkey,
       0, qp, rkey)
TRACED(wr_send_tso,
       (struct ibv_qp_ex * qp, void *header, uint16_t size, uint16_t mss), TSO,
       0, 0, qp, header, size, mss)

static void traced_wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah,
				  uint32_t qpn, uint32_t qkey)
{
	struct hook *h = find(qp);

	current(h)->remote = qpn;
	current(h)->rkey = qkey;
	h->qp.wr_set_ud_addr(qp, ah, qpn, qkey);
}

static struct hook *set_data(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr,
			     size_t bytes, size_t count, uint16_t flags)
{
	struct hook *h = find(qp);

	current(h)->addr = addr;
	current(h)->qpn = lkey;
	current(h)->length = (uint32_t)bytes;
	current(h)->num_sge = (uint8_t)count;
	current(h)->flags |= flags;
	return h;
}

static void traced_wr_set_inline_data(struct ibv_qp_ex *qp, void *addr,
				      size_t length)
{
	set_data(qp, 0, (uintptr_t)addr, length, 1, IBV_SEND_INLINE)
		->qp.wr_set_inline_data(qp, addr, length);
}

static void traced_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey,
			      uint64_t addr, uint32_t length)
{
	set_data(qp, lkey, addr, length, 1, 0)
		->qp.wr_set_sge(qp, lkey, addr, length);
}

#define TRACED_LIST(name, type, lkey, flags)                                   \
	static void traced_##name(struct ibv_qp_ex *qp, size_t count,          \
				  const struct type *list)                     \
	{                                                                      \
		size_t bytes = 0;                                              \
                                                                               \
		for (size_t i = 0; i < count; i++)                             \
			bytes += list[i].length;                               \
		set_data(qp, count ? (lkey) : 0,                               \
			 count ? (uint64_t)(uintptr_t)list[0].addr : 0, bytes, \
			 count, flags)                                         \
			->qp.name(qp, count, list);                            \
	}
TRACED_LIST(wr_set_inline_data_list, ibv_data_buf, 0, IBV_SEND_INLINE)
TRACED_LIST(wr_set_sge_list, ibv_sge, list[0].lkey, 0)

/* 上一批没有交出去，自己又从头来：provider 的锁还拿着，从此停在里面。*/
static void traced_wr_start(struct ibv_qp_ex *qp)
{
	struct hook *h = find(qp);
	struct ring *ring = ring_mine();

	if (h->by == ring->tid)
		event_warn(OBJECT_QP, &qp->qp_base,
			   because("pair-not-ended",
				   "ibv_wr_start\tibv_wr_complete"));
	h->qp.wr_start(qp);
	h->by = ring->tid;
	h->count = 0;
	ring_opens(ring, OPEN_WR, true);
}

static void ends_wr(struct hook *h)
{
	h->by = 0;
	h->count = 0;
	ring_opens(ring_mine(), OPEN_WR, false);
}

/* 这一批不交出去了：程序若还等它们的 completion，就永远等下去。*/
static void traced_wr_abort(struct ibv_qp_ex *qp)
{
	struct hook *h = find(qp);
	struct event e;

	if (h->count && event_begin(&e, "wr_abort")) {
		LINE_NUMBER(&e.line, "count", h->count);
		event_ends_of(&e, OBJECT_QP, qp);
	}
	ends_wr(h);
	h->qp.wr_abort(qp);
}

/* 第一个 SGE 有所有 SGE 的字节。*/
static void recall(struct ibv_send_wr *wr, struct ibv_sge *sge,
		   const struct record *post)
{
	*sge = (struct ibv_sge){ post->addr, post->length, post->qpn };
	wr->wr_id = post->wr_id;
	wr->sg_list = sge;
	wr->num_sge = post->num_sge ? 1 : 0;
	wr->opcode = (enum ibv_wr_opcode)post->opcode;
	wr->send_flags = post->flags;
	if (post->remote) {
		wr->wr.ud.remote_qpn = post->remote;
		wr->wr.ud.remote_qkey = post->rkey;
	} else if (is_atomic(post->opcode)) {
		wr->wr.atomic.remote_addr = post->remote_addr;
		wr->wr.atomic.rkey = post->rkey;
	} else {
		wr->wr.rdma.remote_addr = post->remote_addr;
		wr->wr.rdma.rkey = post->rkey;
	}
}

/* 到这里 WR 才真的交给网卡；失败则这一批一个也没有交出去。*/
static int traced_wr_complete(struct ibv_qp_ex *qp)
{
	struct hook *h = find(qp);
	unsigned int count = h->count;
	struct ibv_send_wr first = { 0 };
	struct ibv_sge sge;
	int rc;

	publish(h);
	ends_wr(h);
	rc = h->qp.wr_complete(qp);
	if (!rc || !count)
		return rc;
	recall(&first, &sge, &h->pending[0]);
	post_refused(&(struct refusal){ .call = "ibv_wr_complete",
					.object = qp,
					.qp = &qp->qp_base,
					.send = &first,
					.count = count,
					.rc = rc });
	return rc;
}

static void swap_wr(struct ibv_qp_ex *qp)
{
#define SWAP(member) qp->member = qp->member ? traced_##member : NULL
	SWAP(wr_atomic_cmp_swp);
	SWAP(wr_atomic_fetch_add);
	SWAP(wr_bind_mw);
	SWAP(wr_local_inv);
	SWAP(wr_rdma_read);
	SWAP(wr_rdma_write);
	SWAP(wr_rdma_write_imm);
	SWAP(wr_send);
	SWAP(wr_send_imm);
	SWAP(wr_send_inv);
	SWAP(wr_send_tso);
	SWAP(wr_set_ud_addr);
	SWAP(wr_set_inline_data);
	SWAP(wr_set_inline_data_list);
	SWAP(wr_set_sge);
	SWAP(wr_set_sge_list);
	SWAP(wr_start);
	SWAP(wr_abort);
	SWAP(wr_complete);
#undef SWAP
}

static struct ibv_qp_ex *as_qp_ex(struct ibv_qp *qp)
{
	REAL(ibv_qp_to_qp_ex, "IBVERBS_1.6", NULL);

	return real(qp);
}

/* 得到 NULL 而不看的，接着就崩溃。*/
EXPORTED struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex = as_qp_ex(qp);

	if (!ex && !recorder_inside && recorder_ready())
		event_warn(OBJECT_QP, qp, because("no-wr-functions"));
	return ex;
}

/* 结尾的 wr_atomic_write 旧版没有：只抄到它前面。*/
void hook_qp(struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex = recorder.control_only ? NULL : as_qp_ex(qp);
	struct hook *h;

	if (!ex || !ex->wr_start)
		return;
	h = add(ex);
	if (!h)
		return;
	memcpy(&h->qp, ex, offsetof(struct ibv_qp_ex, wr_atomic_write));
	atomic_store(&h->key, ex);
	swap_wr(ex);
}

/* ---- 造对象的扩展调用 ------------------------------------------------------ */

static struct ibv_qp_init_attr plain_attr(const struct ibv_qp_init_attr_ex *x)
{
	return (struct ibv_qp_init_attr){ .send_cq = x->send_cq,
					  .recv_cq = x->recv_cq,
					  .srq = x->srq,
					  .cap = x->cap,
					  .qp_type = x->qp_type,
					  .sq_sig_all = x->sq_sig_all };
}

static struct ibv_qp *traced_create_qp_ex(struct ibv_context *context,
					  struct ibv_qp_init_attr_ex *init)
{
	struct hooked *real = hooked_of(context);
	struct ibv_qp_init_attr asked = plain_attr(init), got;
	struct ibv_pd *pd =
		init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL;
	struct explanation why;
	struct ibv_qp *qp;
	struct event e;

	RECORD_MADE(&e, "create_qp", qp, real->create_qp_ex(context, init));
	why = explain_extended_qp(init->comp_mask, init->send_ops_flags,
				  init->qp_type, e.err);
	if (!why.id && e.err && pd)
		why = explain_create_qp_call(pd, &asked, e.err);
	EXPLAIN_ERR(&e, why,
		    "ibv_create_qp_ex(%s, type %d, %u + %u WRs, "
		    "inline %u)",
		    context->device->name, (int)init->qp_type,
		    asked.cap.max_send_wr, asked.cap.max_recv_wr,
		    asked.cap.max_inline_data);
	LINE_HEX(&e.line, "send_ops",
		 init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
			 ? init->send_ops_flags
			 : 0);
	got = plain_attr(init);
	if (qp)
		hook_qp(qp);
	record_qp(&e, qp, pd, &got, &asked.cap);
	return qp;
}

static struct ibv_cq_ex *traced_create_cq_ex(struct ibv_context *context,
					     struct ibv_cq_init_attr_ex *init)
{
	struct hooked *real = hooked_of(context);
	struct ibv_cq_ex *cq;
	struct event e;

	RECORD_MADE(&e, "create_cq", cq, real->create_cq_ex(context, init));
	EXPLAIN_ERR(&e,
		    e.err == EOPNOTSUPP
			    ? because("cq-ex-flags", "0x%x\t0x%jx",
				      init->comp_mask, init->wc_flags)
			    : explain_create_cq_call(context, (int)init->cqe,
						     (int)init->comp_vector,
						     e.err),
		    "ibv_create_cq_ex(%s, cqe %u, comp_vector %u)",
		    context->device->name, init->cqe, init->comp_vector);
	LINE_HEX(&e.line, "wc_flags", init->wc_flags);
	if (cq)
		hook_cq_ex(cq, init->wc_flags);
	record_cq(&e, cq ? ibv_cq_ex_to_cq(cq) : NULL, context, init->cqe);
	return cq;
}

static struct ibv_srq *traced_create_srq_ex(struct ibv_context *context,
					    struct ibv_srq_init_attr_ex *init)
{
	struct hooked *real = hooked_of(context);
	struct ibv_srq *srq;
	struct event e;

	RECORD_MADE(&e, "create_srq", srq, real->create_srq_ex(context, init));
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_create_srq_ex(%s, max_wr %u, max_sge %u)",
		    context->device->name, init->attr.max_wr,
		    init->attr.max_sge);
	record_srq(&e, srq,
		   init->comp_mask & IBV_SRQ_INIT_ATTR_PD ? init->pd : NULL,
		   context, &init->attr);
	return srq;
}

/* ---- 设备也许没有的 -------------------------------------------------------- */

/* 做成了的不必记：rxe 没有的，别的设备有。*/
static void end_refused(struct event *e, const struct ibv_context *context,
			const char *name)
{
	if (!e->err) {
		event_drop(e);
		return;
	}
	event_explain(e,
		      e->err == EOPNOTSUPP || e->err == ENOSYS
			      ? because("op-unsupported", "%s\t%s",
					context->device->name, name)
			      : UNKNOWN,
		      "%s()", name);
	writer_lock();
	event_end(e);
}

#define OPTIONAL(type, op, name, returned, context, PARAMS, ...)        \
	static type traced_##op PARAMS                                  \
	{                                                               \
		struct hooked *real = hooked_of(context);               \
		struct event e;                                         \
		type made;                                              \
		RECORD(&e, #op, made, real->op(__VA_ARGS__), returned); \
		end_refused(&e, context, "ibv_" name);                  \
		return made;                                            \
	}
OPTIONAL(struct ibv_dm *, alloc_dm, "alloc_dm", event_made, context,
	 (struct ibv_context * context, struct ibv_alloc_dm_attr *attr),
	 context, attr)
OPTIONAL(struct ibv_td *, alloc_td, "alloc_td", event_made, context,
	 (struct ibv_context * context, struct ibv_td_init_attr *attr), context,
	 attr)
OPTIONAL(struct ibv_pd *, alloc_parent_domain, "alloc_parent_domain",
	 event_made, context,
	 (struct ibv_context * context,
	  struct ibv_parent_domain_init_attr *attr),
	 context, attr)
OPTIONAL(struct ibv_xrcd *, open_xrcd, "open_xrcd", event_made, context,
	 (struct ibv_context * context, struct ibv_xrcd_init_attr *attr),
	 context, attr)
OPTIONAL(struct ibv_wq *, create_wq, "create_wq", event_made, context,
	 (struct ibv_context * context, struct ibv_wq_init_attr *attr), context,
	 attr)
OPTIONAL(struct ibv_counters *, create_counters, "create_counters", event_made,
	 context,
	 (struct ibv_context * context, struct ibv_counters_init_attr *attr),
	 context, attr)
OPTIONAL(struct ibv_mr *, alloc_null_mr, "alloc_null_mr", event_made,
	 pd->context, (struct ibv_pd * pd), pd)
OPTIONAL(struct ibv_flow *, ibv_create_flow, "create_flow", event_made,
	 qp->context, (struct ibv_qp * qp, struct ibv_flow_attr *attr), qp,
	 attr)
OPTIONAL(int, modify_cq, "modify_cq", event_returned, cq->context,
	 (struct ibv_cq * cq, struct ibv_modify_cq_attr *attr), cq, attr)
OPTIONAL(int, advise_mr, "advise_mr", event_returned, pd->context,
	 (struct ibv_pd * pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	  struct ibv_sge *list, uint32_t count),
	 pd, advice, flags, list, count)

#define HAS(vctx, op) \
	((vctx) &&    \
	 (vctx)->sz >= sizeof(*(vctx)) - offsetof(struct verbs_context, op))

void hook_context(struct ibv_context *context)
{
	struct verbs_context *vctx = verbs_get_ctx(context);
	struct hooked *real = hook_ops(context);

#define TAKE(op)                                 \
	if (real && HAS(vctx, op) && vctx->op) { \
		real->op = vctx->op;             \
		vctx->op = traced_##op;          \
	}
	EACH_EXTENDED(TAKE)
#undef TAKE
}

void unhook_context(struct ibv_context *context)
{
	struct verbs_context *vctx = verbs_get_ctx(context);
	struct hooked *real = hooked_of(context);

#define GIVE_BACK(op)                          \
	if (real && HAS(vctx, op) && vctx->op) \
		vctx->op = real->op;
	EACH_EXTENDED(GIVE_BACK)
#undef GIVE_BACK
	unhook_ops(context);
}

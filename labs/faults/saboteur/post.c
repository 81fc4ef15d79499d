// SPDX-License-Identifier: MIT
/*
 * post.c —— 快路径：context->ops 里的指针，与 QP 里的 wr_*()
 *
 * 它们不是符号。ibv_open_device 返回时，记录器（在我们后面）已经把指针换成了它的；我们
 * 再换一次，于是程序先到我们这里，记录器看到的是改过的。
 */
#include "hooks.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MOST_CONTEXTS 64
#define MOST_QPS      256
#define MOST_SGES     32

static struct hooked {
	struct ibv_context *_Atomic context;
	struct ibv_context_ops ops;
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *,
				       struct ibv_qp_init_attr_ex *);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *,
					  struct ibv_cq_init_attr_ex *);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *,
					 struct ibv_srq_init_attr_ex *);
} contexts[MOST_CONTEXTS];

static struct hooked *hooked(const struct ibv_context *context)
{
	for (size_t i = 0; i < MOST_CONTEXTS; i++)
		if (atomic_load(&contexts[i].context) == context)
			return &contexts[i];
	if (context)
		abort(); /* 没有经过 ibv_open_device */
	return NULL;
}

/* ---- post ----------------------------------------------------------------- */

/* 第一个 WR 与它的 SGE 换成改过的副本；后面的还是程序的那些。*/
#define CHANGED_POST(type, function, CALL, call, object)                       \
	static int function(struct object *to, struct ibv_##type *wr,          \
			    struct ibv_##type **bad)                           \
	{                                                                      \
		const struct ibv_context_ops *ops = &hooked(to->context)->ops; \
		struct ibv_sge sges[MOST_SGES];                                \
		struct args_of_##type args;                                    \
		enum deed deed;                                                \
		int rc;                                                        \
                                                                               \
		if (!wr || wr->num_sge > MOST_SGES ||                          \
		    !rule_hits(CALL, IBV_QPS_RESET))                           \
			return ops->call(to, wr, bad);                         \
		args.wr = *wr;                                                 \
		memset(sges, 0, sizeof(sges));                                 \
		if (wr->num_sge > 0)                                           \
			memcpy(sges, wr->sg_list,                              \
			       (size_t)wr->num_sge * sizeof(*sges));           \
		args.sge = sges[0];                                            \
		deed = rule_strike(&args);                                     \
		if (deed == SKIP)                                              \
			return 0;                                              \
		sges[0] = args.sge;                                            \
		args.wr.sg_list = sges;                                        \
		rc = ops->call(to, &args.wr, bad);                             \
		if (deed == TWICE && !rc)                                      \
			rc = ops->call(to, &args.wr, bad);                     \
		if (rc && bad && *bad == &args.wr)                             \
			*bad = wr;                                             \
		return rc;                                                     \
	}
#define args_of_send_wr send_args
#define args_of_recv_wr recv_args
CHANGED_POST(send_wr, changed_post_send, CALL_POST_SEND, post_send, ibv_qp)
CHANGED_POST(recv_wr, changed_post_recv, CALL_POST_RECV, post_recv, ibv_qp)
CHANGED_POST(recv_wr, changed_post_srq_recv, CALL_POST_SRQ_RECV, post_srq_recv,
	     ibv_srq)

/* ---- poll 与 arm ---------------------------------------------------------- */

/*
 * 忘了 poll：数的是每一次调用。多 poll 一次：先拿到的那些丢了，只有后拿到的交给程序，
 * 所以只数有东西的。
 */
static int changed_poll(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	const struct ibv_context_ops *ops = &hooked(cq->context)->ops;
	int n;

	if (rule_is(CALL_POLL, SKIP))
		return rule_apply(CALL_POLL, NULL) == SKIP
			       ? 0
			       : ops->poll_cq(cq, num, wc);
	n = ops->poll_cq(cq, num, wc);
	if (n > 0 && rule_apply(CALL_POLL, NULL) == TWICE)
		n = ops->poll_cq(cq, num, wc);
	return n;
}

static int changed_arm(struct ibv_cq *cq, int solicited)
{
	const struct ibv_context_ops *ops = &hooked(cq->context)->ops;
	struct arm_args args = { solicited };
	enum deed deed = rule_apply(CALL_ARM, &args);

	if (deed == SKIP)
		return 0;
	if (deed == TWICE)
		ops->req_notify_cq(cq, args.solicited);
	return ops->req_notify_cq(cq, args.solicited);
}

/* ---- 扩展 API：wr_start() … wr_set_sge() … wr_complete() -------------------- */

/*
 * 一个 WR 分几次说：wr_send() 等开始它，wr_set_sge() 再给 SGE。规则数的是前者；改的若
 * 是 SGE 或 UD 地址，就留到后者再动手。
 */
static struct hooked_qp {
	struct ibv_qp_ex *_Atomic key;
	struct ibv_qp_ex real; /* 到 wr_atomic_write 为止 */
	bool hit;	       /* 当前的 WR 就是规则说的那一个 */
	bool forget;	       /* 它被忘了：这一批都不交出去 */
} qps[MOST_QPS];

static struct hooked_qp *hooked_qp(const struct ibv_qp_ex *qp)
{
	for (size_t i = 0; i < MOST_QPS; i++)
		if (atomic_load(&qps[i].key) == qp)
			return &qps[i];
	if (qp)
		abort();
	return NULL;
}

static void strike_later(struct hooked_qp *h, struct send_args *args,
			 size_t from, size_t to)
{
	if (!h->hit || !rule_is_in(from, to))
		return;
	h->hit = false;
	h->forget = rule_strike(args) == SKIP;
}

static struct hooked_qp *next_wr(struct ibv_qp_ex *qp, struct send_args *args)
{
	struct hooked_qp *h = hooked_qp(qp);

	args->wr.wr_id = qp->wr_id;
	args->wr.send_flags = qp->wr_flags;
	h->hit = rule_hits(CALL_POST_SEND, IBV_QPS_RESET);
	strike_later(h, args, 0, offsetof(struct send_args, sge));
	qp->wr_id = args->wr.wr_id;
	qp->wr_flags = args->wr.send_flags;
	return h;
}

static void changed_wr_send(struct ibv_qp_ex *qp)
{
	struct send_args args = { 0 };

	next_wr(qp, &args)->real.wr_send(qp);
}

#define CHANGED_RDMA(name)                                                     \
	static void changed_##name(struct ibv_qp_ex *qp, uint32_t rkey,        \
				   uint64_t addr)                              \
	{                                                                      \
		struct send_args a = { .wr.wr.rdma = { .remote_addr = addr,    \
						       .rkey = rkey } };       \
		struct hooked_qp *h = next_wr(qp, &a);                         \
                                                                               \
		h->real.name(qp, a.wr.wr.rdma.rkey, a.wr.wr.rdma.remote_addr); \
	}
CHANGED_RDMA(wr_rdma_write)
CHANGED_RDMA(wr_rdma_read)

static void changed_wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey,
					uint64_t addr, uint64_t add)
{
	struct send_args a = {
		.wr.wr.atomic = { .remote_addr = addr, .rkey = rkey },
	};
	struct hooked_qp *h = next_wr(qp, &a);

	h->real.wr_atomic_fetch_add(qp, a.wr.wr.atomic.rkey,
				    a.wr.wr.atomic.remote_addr, add);
}

static void changed_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey,
			       uint64_t addr, uint32_t length)
{
	struct hooked_qp *h = hooked_qp(qp);
	struct send_args args = { .sge = { addr, length, lkey } };

	strike_later(h, &args, offsetof(struct send_args, sge), sizeof(args));
	h->real.wr_set_sge(qp, args.sge.lkey, args.sge.addr, args.sge.length);
}

static void changed_wr_start(struct ibv_qp_ex *qp)
{
	struct hooked_qp *h = hooked_qp(qp);

	h->hit = h->forget = false;
	h->real.wr_start(qp);
}

static int changed_wr_complete(struct ibv_qp_ex *qp)
{
	struct hooked_qp *h = hooked_qp(qp);

	if (!h->forget)
		return h->real.wr_complete(qp);
	h->real.wr_abort(qp);
	return 0;
}

static void hook_qp(struct ibv_qp *qp)
{
	NEXT(ibv_qp_to_qp_ex);
	struct ibv_qp_ex *ex = real(qp);
	struct hooked_qp *h = ex && ex->wr_start ? hooked_qp(NULL) : NULL;

	if (!h)
		return;
	memcpy(&h->real, ex, offsetof(struct ibv_qp_ex, wr_atomic_write));
	atomic_store(&h->key, ex);
#define SWAP(member) ex->member = ex->member ? changed_##member : NULL
	SWAP(wr_send);
	SWAP(wr_rdma_write);
	SWAP(wr_rdma_read);
	SWAP(wr_atomic_fetch_add);
	SWAP(wr_set_sge);
	SWAP(wr_start);
	SWAP(wr_complete);
#undef SWAP
}

/* ---- 扩展 API：create_*_ex() ----------------------------------------------- */

/* 它的开头与 struct ibv_qp_init_attr 一样，verbs.h 自己也这样转。*/
_Static_assert(offsetof(struct ibv_qp_init_attr_ex, sq_sig_all) ==
		       offsetof(struct ibv_qp_init_attr, sq_sig_all),
	       "ibv_qp_init_attr_ex begins like ibv_qp_init_attr");

static struct ibv_qp *changed_create_qp_ex(struct ibv_context *context,
					   struct ibv_qp_init_attr_ex *init)
{
	struct ibv_qp_init_attr_ex x = *init;
	struct ibv_qp *qp;

	rule_apply(CALL_CREATE_QP, &x);
	qp = hooked(context)->create_qp_ex(context, &x);
	init->cap = x.cap;
	if (qp)
		hook_qp(qp);
	return qp;
}

static struct ibv_cq_ex *changed_create_cq_ex(struct ibv_context *context,
					      struct ibv_cq_init_attr_ex *init)
{
	struct ibv_cq_init_attr_ex x = *init;
	struct cq_args args = { (int)x.cqe, (int)x.comp_vector, x.channel };

	rule_apply(CALL_CREATE_CQ, &args);
	x.cqe = (uint32_t)args.cqe;
	x.comp_vector = (uint32_t)args.comp_vector;
	x.channel = args.channel;
	return hooked(context)->create_cq_ex(context, &x);
}

static struct ibv_srq *changed_create_srq_ex(struct ibv_context *context,
					     struct ibv_srq_init_attr_ex *init)
{
	struct ibv_srq_init_attr_ex x = *init;
	struct ibv_srq *srq;

	rule_apply(CALL_CREATE_SRQ, &x.attr);
	srq = hooked(context)->create_srq_ex(context, &x);
	init->attr = x.attr;
	return srq;
}

/* ---- 装与卸 --------------------------------------------------------------- */

void hook_context(struct ibv_context *context)
{
	struct verbs_context *vctx = verbs_get_ctx(context);
	struct hooked *h = hooked(NULL);

	if (!h)
		abort();
	h->ops = context->ops;
#define SWAP(call, function) context->ops.call = function
	SWAP(post_send, changed_post_send);
	SWAP(post_recv, changed_post_recv);
	SWAP(post_srq_recv, changed_post_srq_recv);
	SWAP(poll_cq, changed_poll);
	SWAP(req_notify_cq, changed_arm);
#undef SWAP
#define TAKE(op)                                                              \
	do {                                                                  \
		if (vctx &&                                                   \
		    vctx->sz >= sizeof(*vctx) -                               \
					offsetof(struct verbs_context, op) && \
		    vctx->op) {                                               \
			h->op = vctx->op;                                     \
			vctx->op = changed_##op;                              \
		}                                                             \
	} while (0)
	TAKE(create_qp_ex);
	TAKE(create_cq_ex);
	TAKE(create_srq_ex);
#undef TAKE
	atomic_store(&h->context, context);
}

/* 记录器在关之前要找回它换上的指针。*/
void unhook_context(struct ibv_context *context)
{
	struct verbs_context *vctx = verbs_get_ctx(context);
	struct hooked *h;

	if (!rule_mine())
		return;
	h = hooked(context);
	context->ops = h->ops;
	if (h->create_qp_ex)
		vctx->create_qp_ex = h->create_qp_ex;
	if (h->create_cq_ex)
		vctx->create_cq_ex = h->create_cq_ex;
	if (h->create_srq_ex)
		vctx->create_srq_ex = h->create_srq_ex;
	atomic_store(&h->context, NULL);
}

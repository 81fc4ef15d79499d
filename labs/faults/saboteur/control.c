// SPDX-License-Identifier: MIT
/*
 * control.c —— 控制路径：建、改、拆
 *
 * 改的都是副本：程序自己的结构体保持原样，下一次调用用到它时又是对的。
 */
#include "hooks.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* libibverbs 自己也互相调用：只数程序的。*/
static __thread int inside;

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	NEXT(ibv_open_device);
	struct ibv_context *context = real(device);

	if (context && rule_mine())
		hook_context(context);
	return context;
}

EXPORTED int ibv_close_device(struct ibv_context *context)
{
	NEXT(ibv_close_device);

	unhook_context(context);
	return real(context);
}

/* ---- QP ------------------------------------------------------------------- */

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			   int mask)
{
	NEXT(ibv_modify_qp);
	struct modify_args args = { *attr, mask };
	enum ibv_qp_state to =
		mask & IBV_QP_STATE ? attr->qp_state : IBV_QPS_UNKNOWN;
	enum deed deed = DO;
	int rc;

	if (rule_hits(CALL_MODIFY_QP, to))
		deed = rule_strike(&args);
	if (deed == SKIP)
		return 0;
	rc = real(qp, &args.attr, args.mask);
	return deed == TWICE && !rc ? real(qp, &args.attr, args.mask) : rc;
}

/* 驱动会把实际的容量写回 cap。*/
EXPORTED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd,
				      struct ibv_qp_init_attr *init)
{
	NEXT(ibv_create_qp);
	struct ibv_qp_init_attr args = *init;
	struct ibv_qp *qp;

	rule_apply(CALL_CREATE_QP, &args);
	qp = real(pd, &args);
	init->cap = args.cap;
	return qp;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *qp)
{
	NEXT(ibv_destroy_qp);

	return rule_apply(CALL_DESTROY_QP, NULL) == SKIP ? 0 : real(qp);
}

/* ---- CQ、SRQ、AH ---------------------------------------------------------- */

EXPORTED struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
				      void *cq_context,
				      struct ibv_comp_channel *channel,
				      int comp_vector)
{
	NEXT(ibv_create_cq);
	struct cq_args args = { cqe, comp_vector, channel };

	rule_apply(CALL_CREATE_CQ, &args);
	return real(context, args.cqe, cq_context, args.channel,
		    args.comp_vector);
}

EXPORTED int ibv_destroy_cq(struct ibv_cq *cq)
{
	NEXT(ibv_destroy_cq);

	return rule_apply(CALL_DESTROY_CQ, NULL) == SKIP ? 0 : real(cq);
}

EXPORTED void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	NEXT(ibv_ack_cq_events);
	struct ack_args args = { nevents };
	enum deed deed = rule_apply(CALL_ACK, &args);

	if (deed != SKIP)
		real(cq, args.events);
	if (deed == TWICE)
		real(cq, args.events);
}

EXPORTED struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
					struct ibv_srq_init_attr *init)
{
	NEXT(ibv_create_srq);
	struct ibv_srq_init_attr args = *init;
	struct ibv_srq *srq;

	rule_apply(CALL_CREATE_SRQ, &args.attr);
	srq = real(pd, &args);
	init->attr = args.attr;
	return srq;
}

EXPORTED struct ibv_ah *ibv_create_ah(struct ibv_pd *pd,
				      struct ibv_ah_attr *attr)
{
	NEXT(ibv_create_ah);
	struct ibv_ah_attr args = *attr;

	rule_apply(CALL_CREATE_AH, &args);
	return real(pd, &args);
}

/* ---- MR ------------------------------------------------------------------- */

/*
 * 提早 dereg 的那一个：程序以后还要读它的 lkey，所以给它一份副本；它自己后来的 dereg 就
 * 什么也不做了，因为那正是被提前的一次。
 */
static struct ibv_mr gone;

static struct ibv_mr *deregistered(struct ibv_mr *mr)
{
	NEXT(ibv_dereg_mr);

	gone = *mr;
	real(mr);
	return &gone;
}

EXPORTED int ibv_dereg_mr(struct ibv_mr *mr)
{
	NEXT(ibv_dereg_mr);

	if (mr == &gone || rule_apply(CALL_DEREG_MR, NULL) == SKIP)
		return 0;
	return real(mr);
}

/* ibv_reg_mr 自己又调用 ibv_reg_mr_iova2：只数外面的那一次。*/
#define REG_MR(call, PARAMS, ...)                                              \
	EXPORTED struct ibv_mr *call PARAMS                                    \
	{                                                                      \
		NEXT(call);                                                    \
		struct mr_args args = { addr, length, (unsigned int)access };  \
		enum deed deed = inside ? DO : rule_apply(CALL_REG_MR, &args); \
		struct ibv_mr *mr;                                             \
                                                                               \
		inside++;                                                      \
		mr = real(__VA_ARGS__);                                        \
		inside--;                                                      \
		return mr && deed == EARLY ? deregistered(mr) : mr;            \
	}
REG_MR(ibv_reg_mr, (struct ibv_pd * pd, void *addr, size_t length, int access),
       pd, args.addr, args.length, (int)args.access)
REG_MR(ibv_reg_mr_iova,
       (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova,
	int access),
       pd, args.addr, args.length, iova, (int)args.access)
/* verbs.h 里的 ibv_reg_mr 在 access 不是常量时就是它，iova 与地址相同。*/
REG_MR(ibv_reg_mr_iova2,
       (struct ibv_pd * pd, void *addr, size_t length, uint64_t iova,
	unsigned int access),
       pd, args.addr, args.length,
       iova == (uintptr_t)addr ? (uintptr_t)args.addr : iova, args.access)

/* 新的 rdma-core 才有的两个入口，旧的头文件没有声明。后一个调用前一个。*/
struct ibv_mr_init_attr;
struct ibv_buf;
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf,
			      void *addr, size_t length, int access);

REG_MR(ibv_reg_buf_mr,
       (struct ibv_pd * pd, struct ibv_buf *buf, void *addr, size_t length,
	int access),
       pd, buf, args.addr, args.length, (int)args.access)

/*
 * 结构体的开头；后面还有什么，各版本不同，抄不了副本，只能改程序的那一份，再改回去。
 */
struct asked {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
};

EXPORTED struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd,
				      struct ibv_mr_init_attr *attr)
{
	NEXT(ibv_reg_mr_ex);
	struct asked *asked = (void *)attr, before = *asked;
	struct mr_args args = { asked->addr, asked->length,
				(unsigned int)asked->access };
	enum deed deed = inside ? DO : rule_apply(CALL_REG_MR, &args);
	struct ibv_mr *mr;

	asked->addr = args.addr;
	asked->length = args.length;
	asked->access = (int)args.access;
	inside++;
	mr = real(pd, attr);
	inside--;
	*asked = before;
	return mr && deed == EARLY ? deregistered(mr) : mr;
}

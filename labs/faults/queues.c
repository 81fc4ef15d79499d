// SPDX-License-Identifier: MIT
/*
 * queues.c —— 建队列、拆队列、往队列里放东西时的错误
 */
#include "faults.h"

#include <errno.h>
#include <string.h>

/* ---- CQ ------------------------------------------------------------------- */

static void try_cq(struct rig *rig, int cqe, int vector)
{
	struct ibv_cq *cq =
		ibv_create_cq(rig->a.context, cqe, NULL, NULL, vector);

	saw_error(rig, "ibv_create_cq", cq ? 0 : errno);
	if (!cq)
		rig->why = explain_create_cq_call(rig->a.context, cqe, vector,
						  errno);
}

FAULT(cq_empty, try_cq(rig, 0, 0))
FAULT(cq_too_large, try_cq(rig, 1 << 20, 0))
FAULT(cq_vector, try_cq(rig, 16, rig->a.context->num_comp_vectors))

/* ---- QP ------------------------------------------------------------------- */

static void try_qp(struct rig *rig, const struct ibv_qp_init_attr *wanted)
{
	struct ibv_qp_init_attr init = *wanted;
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(rig->a.pd, &init);
	saw_error(rig, "ibv_create_qp", qp ? 0 : errno);
	if (!qp)
		rig->why = explain_create_qp_call(rig->a.pd, wanted, errno);
}

static struct ibv_qp_init_attr usual_qp(struct rig *rig)
{
	return (struct ibv_qp_init_attr){
		.send_cq = rig->a.send_cq,
		.recv_cq = rig->a.recv_cq,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
}

#define WRONG_QP(function, change)                            \
	static void function(struct rig *rig)                 \
	{                                                     \
		struct ibv_qp_init_attr init = usual_qp(rig); \
                                                              \
		change;                                       \
		try_qp(rig, &init);                           \
	}
WRONG_QP(qp_too_deep, init.cap.max_send_wr = 2u << 20)
WRONG_QP(qp_too_many_sges, init.cap.max_recv_sge = 64)
WRONG_QP(qp_inline_too_large, init.cap.max_inline_data = 1024)
WRONG_QP(qp_type_forgotten, init.qp_type = (enum ibv_qp_type)0)
WRONG_QP(qp_type_raw, init.qp_type = IBV_QPT_RAW_PACKET)

/* ---- 拆的次序 ------------------------------------------------------------- */

#define WRONG_ORDER(function, destroy, object)           \
	static void function(struct rig *rig)            \
	{                                                \
		int err = destroy(rig->a.object);        \
                                                         \
		saw_error(rig, #destroy, err);           \
		if (err)                                 \
			rig->why = explain_destroy(err); \
	}
WRONG_ORDER(destroy_cq_first, ibv_destroy_cq, send_cq)
WRONG_ORDER(dealloc_pd_first, ibv_dealloc_pd, pd)

/* ---- post ----------------------------------------------------------------- */

/* 状态不够就去 send：INIT 时，或 RTR 时（它能收不能发）。*/
FAULT(send_too_early, prepare_send(rig, IBV_WR_SEND, 64); try_post(rig))

static void try_recv(struct rig *rig, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad = NULL;
	int err = ibv_post_recv(rig->b.qp, wr, &bad);

	saw_error(rig, "ibv_post_recv", err);
	if (err)
		rig->why = explain_post_recv(rig->b.qp, bad ? bad : wr, err);
}

static void recv_in_reset(struct rig *rig)
{
	struct ibv_recv_wr wr = { .wr_id = 1 };

	try_recv(rig, &wr);
}

static void recv_ring_full(struct rig *rig)
{
	struct ibv_recv_wr wr = { .wr_id = 1 };

	for (int i = 0; i < 1000 && !rig->why.id; i++) {
		try_recv(rig, &wr);
		/* 关掉解释时 why 一直是空的：看见失败也要停。*/
		if (!strstr(rig->saw, ": 0"))
			break;
	}
}

/* SQD 里的 send 只进不出，几下就满。真网卡上，忘了 poll 的结果与此相同。*/
static void send_ring_full(struct rig *rig)
{
	do_step(&rig->a, step_state(IBV_QPS_SQD));
	prepare_send(rig, IBV_WR_SEND, 8);
	for (int i = 0; i < 1000 && !try_post(rig); i++)
		;
}

static void too_many_sges(struct rig *rig)
{
	struct ibv_sge sges[8];

	prepare_send(rig, IBV_WR_SEND, 8);
	for (int i = 0; i < 8; i++)
		sges[i] = rig->send_sge;
	rig->send.sg_list = sges;
	rig->send.num_sge = 8;
	try_post(rig);
}

WRONG_SEND(inline_too_long, IBV_WR_SEND, 4096,
	   rig->send.send_flags |= IBV_SEND_INLINE)
WRONG_SEND(atomic_misaligned, IBV_WR_ATOMIC_FETCH_AND_ADD, 8,
	   rig->send.wr.atomic.remote_addr += 4)
WRONG_SEND(atomic_short, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, (void)0)

const struct fault queue_faults[] = {
	ROW("cq-empty", "a CQ of 0 entries", "ibv_create_cq: EINVAL",
	    "cq-empty", OPEN, cq_empty),
	ROW("cq-too-large", "a CQ of a million entries",
	    "ibv_create_cq: EINVAL", "cq-too-large", OPEN, cq_too_large),
	ROW("cq-vector", "comp_vector is the count, which is one too many",
	    "ibv_create_cq: EINVAL", "cq-vector", OPEN, cq_vector),
	ROW("qp-too-deep", "two million send requests", "ibv_create_qp: EINVAL",
	    "qp-caps", OPEN, qp_too_deep),
	ROW("qp-too-many-sges", "64 SGEs for each receive",
	    "ibv_create_qp: EINVAL", "qp-caps", OPEN, qp_too_many_sges),
	ROW("qp-inline-too-large", "max_inline_data 1024",
	    "ibv_create_qp: EINVAL", "qp-caps", OPEN, qp_inline_too_large),
	ROW("qp-type-forgotten", "qp_type is left 0", "ibv_create_qp: EINVAL",
	    "qp-type", OPEN, qp_type_forgotten),
	ROW("qp-type-unsupported", "a RAW_PACKET QP on rxe",
	    "ibv_create_qp: EOPNOTSUPP", "qp-type", OPEN, qp_type_raw),
	ROW("destroy-cq-in-use", "the CQ is destroyed before its QP",
	    "ibv_destroy_cq: EBUSY", "still-used", RESET, destroy_cq_first),
	ROW("dealloc-pd-in-use", "the PD is given back before its MR",
	    "ibv_dealloc_pd: EBUSY", "still-used", RESET, dealloc_pd_first),
	ROW("post-send-in-init", "a send before RTS", "ibv_post_send: EINVAL",
	    "send-too-early", INIT, send_too_early),
	ROW("post-send-in-rtr", "a send in RTR, which only receives",
	    "ibv_post_send: EINVAL", "send-too-early", RTR, send_too_early),
	ROW("post-recv-in-reset", "a receive before INIT",
	    "ibv_post_recv: EINVAL", "recv-too-early", RESET, recv_in_reset),
	ROW("recv-queue-full", "more receives than max_recv_wr",
	    "ibv_post_recv: ENOMEM", "queue-full", INIT, recv_ring_full),
	ROW("send-queue-full", "sends are posted faster than they are polled",
	    "ibv_post_send: ENOMEM", "queue-full", CONNECTED, send_ring_full),
	ROW("post-too-many-sges", "8 SGEs on a QP made for 2",
	    "ibv_post_send: EINVAL", "too-many-sges", CONNECTED, too_many_sges),
	ROW("post-inline-too-long", "4096 bytes inline",
	    "ibv_post_send: EINVAL", "inline-too-long", CONNECTED,
	    inline_too_long),
	ROW("atomic-misaligned",
	    "an atomic on an address that is no multiple of 8",
	    "ibv_post_send: EINVAL", "atomic-misaligned", CONNECTED,
	    atomic_misaligned),
	ROW("atomic-short", "an atomic with room for 4 bytes",
	    "ibv_post_send: EINVAL", "atomic-short", CONNECTED, atomic_short),
	{ 0 },
};

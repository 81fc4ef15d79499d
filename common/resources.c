// SPDX-License-Identifier: MIT
/*
 * resources.c —— 第 2 阶段：PD、MR、CQ、QP，以及把它们拆掉
 *
 * 依赖关系决定了建造顺序，拆除则严格相反：
 *
 *	context ── PD ─┬─ MR（内存）
 *	        │      └─ QP ──> CQ
 *	        └─ channel ──> CQ
 *
 * PD（Protection Domain）是“权限的边界”：QP 只能访问同一个 PD 里的 MR。
 * MR（Memory Region）把一段虚拟内存钉住（pin）并告诉网卡它的物理页，换回 lkey
 * （本地用）和 rkey（给对端用）。CQ 收集“做完了”的通知。QP 是一对队列：
 * SQ 放要发的，RQ 放要收的。
 */
#include "base/failure.h"
#include "base/report.h"
#include "explain/explain.h"
#include "rdma_common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_ALIGN 64 /* 一条 cache line：收发两个 slot 不共享同一行 */
#define PAGE_ALIGN 4096

static const char *device_name(const struct rdma_resources *res)
{
	return ibv_get_device_name(res->context->device);
}

char *recv_slot(const struct rdma_resources *res, uint32_t slot)
{
	return res->buf + slot * res->slot_size;
}

char *send_slot(const struct rdma_resources *res, uint32_t slot)
{
	return recv_slot(res, res->recv_slots + slot);
}

static int create_pd(struct rdma_resources *res)
{
	res->pd = ibv_alloc_pd(res->context);
	if (!res->pd)
		return call_failed(errno, "ibv_alloc_pd(%s)", device_name(res));
	return 0;
}

static int check_sizes(const struct rdma_resources *res,
		       const struct rdma_config *config)
{
	uint32_t most = res->port_attr.max_msg_sz;

	if (most > MAX_MSG_SIZE)
		most = MAX_MSG_SIZE;
	if (config->msg_size == 0 || config->msg_size > most) {
		report_error("choose a --size that the port can carry",
			     "message size %u is not in 1 ... %u (max_msg_sz "
			     "of %s port %u)",
			     config->msg_size, most, device_name(res),
			     res->ib_port);
		return -EMSGSIZE;
	}
	return 0;
}

// region create-mr
static int create_mr(struct rdma_resources *res,
		     const struct rdma_config *config)
{
	/*
	 * LOCAL_WRITE：网卡要往这里写收到的数据，没有它 RECV 会失败（真网卡报 LOC_PROT，
	 * rxe 报 LOC_QP_OP）。
	 * REMOTE_*：允许对端凭 rkey 直接读写；REMOTE_WRITE 必须同时有 LOCAL_WRITE。
	 */
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_WRITE;

	res->msg_size = config->msg_size;
	res->slot_size = ((size_t)config->msg_size + SLOT_ALIGN - 1) &
			 ~(size_t)(SLOT_ALIGN - 1);
	res->recv_slots = config->recv_slots ? config->recv_slots : 1;
	res->send_slots = config->send_slots ? config->send_slots : 1;
	/*
	 * 收、发各占一半，绝不共用：RECV 一旦 post，那块内存就归网卡，随时可能被
	 * 写入；若同时拿它当发送缓冲，发出去的就可能是刚收到的内容。
	 */
	res->buf_size = res->slot_size * (res->recv_slots + res->send_slots);
	res->buf = aligned_alloc(PAGE_ALIGN, (res->buf_size + PAGE_ALIGN - 1) &
						     ~(size_t)(PAGE_ALIGN - 1));
	if (!res->buf) {
		report_error("choose a smaller --size",
			     "no memory for a buffer of %zu bytes",
			     res->buf_size);
		return -ENOMEM;
	}
	memset(res->buf, 0, res->buf_size);
	res->mr = ibv_reg_mr(res->pd, res->buf, res->buf_size, access);
	if (!res->mr)
		return verb_failed(errno,
				   explain_reg_mr_call(res->pd, res->buf,
						       res->buf_size, access,
						       errno),
				   "ibv_reg_mr(%s, %zu bytes)",
				   device_name(res), res->buf_size);
	return 0;
}
// endregion create-mr

// region create-cq
static int create_cq(struct rdma_resources *res,
		     const struct rdma_config *config)
{
	/*
	 * CQ 必须装得下所有可能同时未取走的 completion，否则 CQ overrun：
	 * rxe 会丢掉 CQE 并报 async event，真网卡会让 QP 直接进 ERR。
	 */
	int cqe = (int)(res->recv_slots + res->send_slots);

	if (config->events) {
		res->channel = ibv_create_comp_channel(res->context);
		if (!res->channel)
			return call_failed(errno, "ibv_create_comp_channel(%s)",
					   device_name(res));
	}
	res->cq = ibv_create_cq(res->context, cqe, NULL, res->channel, 0);
	if (!res->cq)
		return verb_failed(
			errno,
			explain_create_cq_call(res->context, cqe, 0, errno),
			"ibv_create_cq(%s, cqe %d)", device_name(res), cqe);
	return 0;
}
// endregion create-cq

// region create-qp
static int create_qp(struct rdma_resources *res,
		     const struct rdma_config *config)
{
	struct ibv_qp_init_attr init = {
		.send_cq = res->cq,
		.recv_cq = res->cq,
		.cap = {
			.max_send_wr = res->send_slots,
			.max_recv_wr = res->recv_slots,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			/* WQE 里留多少字节给 inline；给多了每个 WQE 都变大。*/
			.max_inline_data = config->max_inline,
		},
		/* RC：可靠、有序、面向连接，一个 QP 只跟一个对端说话。*/
		.qp_type = IBV_QPT_RC,
		/* 0：只有带 IBV_SEND_SIGNALED 的 SEND 才产生 completion。*/
		.sq_sig_all = 0,
	};

	res->qp = ibv_create_qp(res->pd, &init);
	if (!res->qp)
		return verb_failed(
			errno, explain_create_qp_call(res->pd, &init, errno),
			"ibv_create_qp(%s, RC, %u send, %u recv)",
			device_name(res), res->send_slots, res->recv_slots);
	/* init.cap 被改写成实际给的值，往往比要的多；以它为准。*/
	res->max_inline = init.cap.max_inline_data;
	return 0;
}
// endregion create-qp

// region create-objects
int rdma_create_objects(struct rdma_resources *res,
			const struct rdma_config *config)
{
	int rc = check_sizes(res, config);

	if (!rc)
		rc = create_pd(res);
	if (!rc)
		rc = create_mr(res, config);
	if (!rc)
		rc = create_cq(res, config);
	if (!rc)
		rc = create_qp(res, config);
	/* 中途失败就把已经建好的拆掉：进程不退出的话，它们会一直占着网卡。*/
	if (rc)
		rdma_destroy_objects(res);
	return rc;
}
// endregion create-objects

static void keep_first(int *first, int rc)
{
	if (*first == 0)
		*first = rc;
}

// region destroy
/* ibv_destroy_* 直接返回错误码；EBUSY 说明还有别的对象在用它。*/
static int check_destroyed(int err, const char *call)
{
	return err ? verb_failed(err, explain_destroy(err), "%s", call) : 0;
}

int rdma_destroy_objects(struct rdma_resources *res)
{
	int rc = 0;

	if (res->qp)
		keep_first(&rc, check_destroyed(ibv_destroy_qp(res->qp),
						"ibv_destroy_qp()"));
	/*
	 * 每个收到的 CQ event 都必须 ack 过，否则 ibv_destroy_cq 会一直等下去。
	 */
	if (res->cq && res->event_debt)
		ibv_ack_cq_events(res->cq, res->event_debt);
	if (res->cq)
		keep_first(&rc, check_destroyed(ibv_destroy_cq(res->cq),
						"ibv_destroy_cq()"));
	if (res->channel)
		keep_first(&rc, check_destroyed(
					ibv_destroy_comp_channel(res->channel),
					"ibv_destroy_comp_channel()"));
	if (res->mr)
		keep_first(&rc, check_destroyed(ibv_dereg_mr(res->mr),
						"ibv_dereg_mr()"));
	/* 内存要等 dereg 之后才能 free：之前网卡仍可能往里写。*/
	free(res->buf);
	if (res->pd)
		keep_first(&rc, check_destroyed(ibv_dealloc_pd(res->pd),
						"ibv_dealloc_pd()"));
	res->qp = NULL;
	res->cq = NULL;
	res->channel = NULL;
	res->mr = NULL;
	res->buf = NULL;
	res->pd = NULL;
	res->event_debt = 0;
	res->armed = false;
	return rc;
}
// endregion destroy

// region serving-qp
int rdma_create_pd(struct rdma_resources *owner)
{
	return create_pd(owner);
}

int rdma_create_serving_qp(struct rdma_resources *res,
			   const struct rdma_resources *owner)
{
	const struct rdma_config config = { .gid_index = GID_INDEX_AUTO };
	int rc;

	/*
	 * rkey 只在它所属的 PD 里有效：要让多个 QP 都能被人读同一块 MR，它们就得
	 * 建在同一个 PD 里。每个连接各注册一遍也行，但每注册一遍都要把所有的页再
	 * pin 一次。
	 */
	*res = (struct rdma_resources){
		.context = owner->context,
		.device_attr = owner->device_attr,
		.port_attr = owner->port_attr,
		.ib_port = owner->ib_port,
		.gid_index = owner->gid_index,
		.gid = owner->gid,
		.pd = owner->pd,
		/* 自己不收也不发；但 CQ 和两个队列的容量都不能是 0。*/
		.recv_slots = 1,
		.send_slots = 1,
	};
	rc = create_cq(res, &config);
	if (!rc)
		rc = create_qp(res, &config);
	if (rc)
		rdma_destroy_serving_qp(res);
	return rc;
}

int rdma_destroy_serving_qp(struct rdma_resources *res)
{
	/* PD 与 context 是借来的：先放下它们，就只拆自己的 QP 和 CQ。*/
	res->pd = NULL;
	res->context = NULL;
	return rdma_destroy_objects(res);
}
// endregion serving-qp

int init_rdma_resources(struct rdma_resources *res,
			const struct rdma_config *config)
{
	int rc;

	memset(res, 0, sizeof(*res));
	rc = rdma_open_device(res, config);
	if (rc)
		return rc;
	rc = rdma_create_objects(res, config);
	if (rc)
		rdma_close_device(res);
	return rc;
}

int destroy_rdma_resources(struct rdma_resources *res)
{
	int rc = rdma_destroy_objects(res);

	keep_first(&rc, rdma_close_device(res));
	return rc;
}

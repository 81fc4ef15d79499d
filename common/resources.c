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

static size_t round_up(size_t size, size_t align)
{
	return (size + align - 1) / align * align;
}

int create_pd(struct rdma_resources *res)
{
	res->pd = ibv_alloc_pd(res->context);
	if (!res->pd)
		return call_failed(errno, "ibv_alloc_pd(%s)", device_name(res));
	return 0;
}

// region create-mr
static int create_mr(struct rdma_resources *res,
		     const struct rdma_config *config)
{
	/*
	 * LOCAL_WRITE：网卡要往这里写收到的数据，没有它 RECV 会失败（物理网卡报 LOC_PROT，
	 * rxe 报 LOC_QP_OP）。
	 * REMOTE_*：允许对端凭 rkey 直接读写；REMOTE_WRITE 必须同时有 LOCAL_WRITE。
	 */
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_WRITE;

	/*
	 * 收、发各占一半，绝不共用：RECV 一旦 post，那块内存就归网卡，随时可能被
	 * 写入；若同时拿它当发送缓冲，发出去的就可能是刚收到的内容。
	 */
	res->msg_size = config->msg_size;
	res->slot_size = round_up(config->msg_size, SLOT_ALIGN);
	res->buf_size = res->slot_size * (res->recv_slots + res->send_slots);
	res->buf =
		aligned_alloc(PAGE_ALIGN, round_up(res->buf_size, PAGE_ALIGN));
	if (!res->buf)
		return no_memory_for_buffer(res->buf_size);
	memset(res->buf, 0, res->buf_size);
	res->mr = ibv_reg_mr(res->pd, res->buf, res->buf_size, access);
	if (!res->mr)
		return reg_mr_failed(res->pd, res->buf, res->buf_size, access,
				     errno);
	return 0;
}
// endregion create-mr

// region create-cq
int create_cq(struct rdma_resources *res, bool events)
{
	/*
	 * CQ 必须装得下所有可能同时未取走的 completion，否则 CQ overrun：
	 * rxe 会丢掉 CQE 并报 async event，物理网卡会让 QP 直接进 ERR。
	 */
	int cqe = (int)(res->recv_slots + res->send_slots);

	if (events) {
		res->channel = ibv_create_comp_channel(res->context);
		if (!res->channel)
			return call_failed(errno, "ibv_create_comp_channel(%s)",
					   device_name(res));
	}
	res->cq = ibv_create_cq(res->context, cqe, NULL, res->channel, 0);
	return res->cq ? 0 : create_cq_failed(res->context, cqe, errno);
}
// endregion create-cq

// region create-qp
int create_qp(struct rdma_resources *res, uint32_t max_inline)
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
			.max_inline_data = max_inline,
		},
		/* RC：可靠、有序、面向连接，一个 QP 只跟一个对端说话。*/
		.qp_type = IBV_QPT_RC,
		/* 0：只有带 IBV_SEND_SIGNALED 的 SEND 才产生 completion。*/
		.sq_sig_all = 0,
	};

	res->posted =
		calloc(res->recv_slots + res->send_slots, sizeof(*res->posted));
	if (!res->posted)
		return call_failed(ENOMEM, "calloc(requests)");
	res->qp = ibv_create_qp(res->pd, &init);
	if (!res->qp)
		return create_qp_failed(res->pd, &init, errno);
	/* init.cap 被改写成实际给的值，往往比要的多；以它为准。*/
	res->max_inline = init.cap.max_inline_data;
	return 0;
}
// endregion create-qp

// region create-objects
int create_objects_but_qp(struct rdma_resources *res,
			  const struct rdma_config *config)
{
	const uint32_t most = res->port_attr.max_msg_sz;
	int rc;

	if (config->msg_size < 1 || config->msg_size > most)
		return size_refused(device_name(res), res->ib_port,
				    config->msg_size, most);
	res->recv_slots = config->recv_slots ? config->recv_slots : 1;
	res->send_slots = config->send_slots ? config->send_slots : 1;
	rc = create_pd(res);
	if (!rc)
		rc = create_mr(res, config);
	return rc ? rc : create_cq(res, config->events);
}

int create_objects(struct rdma_resources *res, const struct rdma_config *config)
{
	int rc = create_objects_but_qp(res, config);

	if (!rc)
		rc = create_qp(res, config->max_inline);
	/* 中途失败就把已经建好的拆掉：进程不退出的话，它们会一直占着网卡。*/
	if (rc)
		destroy_objects(res);
	return rc;
}
// endregion create-objects

// region destroy
/* ibv_destroy_* 直接返回错误码；EBUSY 说明还有别的对象在用它。失败了也接着拆。*/
#define DESTROY(rc, verb, object)                                             \
	do {                                                                  \
		int failed =                                                  \
			!(object) ? 0 : check_destroyed(#verb, verb(object)); \
		(rc) = (rc) ? (rc) : failed;                                  \
		(object) = NULL;                                              \
	} while (0)

int destroy_objects(struct rdma_resources *res)
{
	int rc = 0;

	DESTROY(rc, ibv_destroy_qp, res->qp);
	/* 每个收到的 CQ event 都必须 ack 过，否则 ibv_destroy_cq 会一直等下去。*/
	if (res->cq && res->event_debt)
		ibv_ack_cq_events(res->cq, res->event_debt);
	DESTROY(rc, ibv_destroy_cq, res->cq);
	DESTROY(rc, ibv_destroy_comp_channel, res->channel);
	DESTROY(rc, ibv_dereg_mr, res->mr);
	/* 内存要等 dereg 之后才能 free：之前网卡仍可能往里写。*/
	free(res->buf);
	DESTROY(rc, ibv_dealloc_pd, res->pd);
	free(res->posted);
	res->buf = NULL;
	res->posted = NULL;
	res->event_debt = 0;
	res->armed = false;
	res->have_early = false;
	return rc;
}
// endregion destroy

int init_rdma_resources(struct rdma_resources *res,
			const struct rdma_config *config)
{
	int rc = open_device(res, config);

	if (!rc)
		rc = create_objects(res, config);
	if (rc)
		close_device(res);
	return rc;
}

int destroy_rdma_resources(struct rdma_resources *res)
{
	int rc = destroy_objects(res);
	int closed = close_device(res);

	memset(res, 0, sizeof(*res)); /* 和建之前一样，可以再建一次 */
	return rc ? rc : closed;
}

// SPDX-License-Identifier: MIT
/*
 * many_peers.c —— 第 10 阶段：许多 RC 连接，一个 SRQ、一个 CQ、一个线程
 *
 * 一千个对端各 post 16 个 receive，就是一万六千块内存，而此刻开口的也许只有三个。SRQ
 * （Shared Receive Queue）让所有 QP 从同一个队列里取：内存按“同时有多少条消息”来算，
 * 不再按“有多少个对端”来算。代价是 receive 不再属于谁：一个贪心的对端可以把它取空，别
 * 人便收到 RNR NAK。SRQ 不是流量控制，谁能占多少，要程序自己数。
 */
#include "rdma_common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define WCS	 32  /* 一次取多少 */
#define PROBE_MS 200 /* LAST_WQE_REACHED 若会来，立刻就来 */

int create_slots(struct rdma_resources *res)
{
	size_t slots = res->recv_slots + res->send_slots;

	res->slot_size = (res->msg_size + 63) & -(size_t)64;
	res->buf_size = (res->slot_size * slots + 4095) & -(size_t)4096;
	res->buf = aligned_alloc(4096, res->buf_size);
	if (!res->buf)
		return no_memory_for_buffer(res->buf_size);
	memset(res->buf, 0, res->buf_size);
	/* 不给远程权限：这里躺着别人的消息，任何一个对端都不该够得着。*/
	return expose_memory(res, res->buf, res->buf_size, 0, &res->mr);
}

// region srq
int renew_srq(struct shared_queues *q)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = q->res.recv_slots, .max_sge = 1 },
	};
	int err = q->srq ? ibv_destroy_srq(q->srq) : 0;

	if (err)
		return check_destroyed("ibv_destroy_srq", err);
	q->srq = ibv_create_srq(q->res.pd, &init);
	return q->srq ? 0 : create_srq_failed(q->res.pd, &init.attr, errno);
}

int post_shared_receive(struct shared_queues *q, uint32_t slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)recv_slot(&q->res, slot),
			       .length = q->res.msg_size,
			       .lkey = q->res.mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = WR_ID_RECV(slot),
					.sg_list = &sge,
					.num_sge = 1 };
	/* 不提 QP：谁的消息先到，谁取走最早 post 的那一个。*/
	int err = ibv_post_srq_recv(q->srq, &wr, &bad);

	return err ? call_failed(err, "ibv_post_srq_recv(slot %u)", slot) : 0;
}

int arm_srq_limit(struct shared_queues *q, uint32_t low)
{
	struct ibv_srq_attr attr = { .srq_limit = low };
	/*
	 * 只响一次：剩下的少于 low 时来一个 SRQ_LIMIT_REACHED，limit 随即归零，要重新设。
	 * 设时已经不足的，下一条消息取走一个才响；已经空了，就没有下一条，永远不响。所以
	 * 先补，后设，而且不能只靠它。
	 */
	int err = ibv_modify_srq(q->srq, &attr, IBV_SRQ_LIMIT);

	return err ? call_failed(err, "ibv_modify_srq(limit %u)", low) : 0;
}
// endregion srq

static int compare_qpn(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return left < right ? -1 : left > right;
}

int create_peer_qp(struct shared_queues *q, struct rdma_resources *peer,
		   uint32_t sends, void *owner)
{
	struct ibv_qp_init_attr init = {
		.qp_context = owner,
		.send_cq = q->res.cq,
		.recv_cq = q->res.cq,
		/* 从这里取 receive；max_recv_wr 于是无效，ibv_post_recv 也不许用了。*/
		.srq = q->srq,
		.cap = { .max_send_wr = sends, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	*peer = q->res;
	peer->mr = NULL;
	peer->buf = NULL;
	peer->qp = ibv_create_qp(q->res.pd, &init);
	if (!peer->qp)
		return create_qp_failed(q->res.pd, &init, errno);
	if (tsearch(&peer->qp->qp_num, &q->by_qpn, compare_qpn))
		return 0;
	destroy_peer_qp(q, peer);
	return call_failed(ENOMEM, "tsearch(QP)");
}

int destroy_peer_qp(struct shared_queues *q, struct rdma_resources *peer)
{
	int err = 0;

	if (peer->qp) {
		tdelete(&peer->qp->qp_num, &q->by_qpn, compare_qpn);
		err = ibv_destroy_qp(peer->qp);
	}
	memset(peer, 0, sizeof(*peer));
	return check_destroyed("ibv_destroy_qp", err);
}

// region dispatch
static void *owner_of(const struct shared_queues *q, const struct ibv_wc *wc)
{
	/* wr_id 只说是哪个 slot，不说是谁的消息；qp_num 才说，status 不好时也有效。*/
	char *const *found = tfind(&wc->qp_num, &q->by_qpn, compare_qpn);
	const size_t offset = offsetof(struct ibv_qp, qp_num);

	return found ? ((struct ibv_qp *)(*found - offset))->qp_context : NULL;
}

int dispatch_completions(struct shared_queues *q, deliver_function *deliver,
			 void *context)
{
	struct ibv_wc wc[WCS];
	/* 一个 event 不是一个 completion：一千个 CQE 可能只有一个 event。*/
	int n, rc = take_cq_event(&q->res);

	/*
	 * 先 arm，后取空。倒过来的话，“取空”与 arm 之间到的那个 CQE 不会有 event，它就
	 * 躺在 CQ 里，直到别人的消息碰巧把我们叫醒。
	 */
	if (!rc)
		rc = arm_cq(&q->res);
	while (!rc && (n = ibv_poll_cq(q->res.cq, WCS, wc)) != 0) {
		for (int i = 0; i < n; i++)
			deliver(context, owner_of(q, &wc[i]), &wc[i]);
		if (n < 0)
			rc = call_failed(EIO, "ibv_poll_cq() = %d", n);
	}
	return rc;
}
// endregion dispatch

int take_async_event(struct rdma_resources *res, struct ibv_async_event *event)
{
	/* 与 completion 不同，这里说的是对象本身：QP、CQ、SRQ、port 出了什么事。*/
	if (ibv_get_async_event(res->context, event))
		return errno == EAGAIN
			       ? 0
			       : call_failed(errno, "ibv_get_async_event()");
	/* ibv_destroy_qp、_cq、_srq 会一直等到自己的 event 都被 ack，欠一个就停在那里。*/
	ibv_ack_async_event(event);
	return 1;
}

/*
 * QP 进了 ERR，规范说设备会来一个 LAST_WQE_REACHED：它不再从 SRQ 取了。Linux 6.4 及
 * 以前的 rxe 从来不说，等它就是等到永远。所以拿一个无用的 QP 试一次。
 */
static int ask_last_wqe(struct shared_queues *q)
{
	struct rdma_resources probe;
	struct ibv_async_event event;
	struct pollfd wait = { q->res.context->async_fd, POLLIN, 0 };
	int undo, rc = create_peer_qp(q, &probe, 1, NULL);

	if (!rc)
		rc = modify_qp_to_init(&probe);
	if (!rc)
		rc = modify_qp_to_error(&probe);
	while (!rc && !q->tells_last_wqe && poll(&wait, 1, PROBE_MS) == 1)
		q->tells_last_wqe =
			take_async_event(&q->res, &event) == 1 &&
			event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
	undo = destroy_peer_qp(q, &probe);
	return rc ? rc : undo;
}

// region open-shared
int open_shared_queues(struct shared_queues *q,
		       const struct rdma_config *config)
{
	struct rdma_resources *res = &q->res;
	int rc = open_device(res, config);

	res->msg_size = config->msg_size;
	res->recv_slots = config->recv_slots;
	if (!rc)
		rc = create_pd(res);
	/*
	 * 每个 slot 此刻只在一处：SRQ 或某个 SQ、CQ、我们手里。所以有多少个 slot，CQ 就
	 * 多大，谁怎么灌都不会 overrun。
	 */
	if (!rc)
		rc = create_cq(res, true);
	if (!rc)
		rc = renew_srq(q);
	if (!rc)
		rc = create_slots(res);
	/* epoll 说“有”之后，一直取到 EAGAIN 为止。*/
	if (!rc && (fcntl(res->channel->fd, F_SETFL, O_NONBLOCK) ||
		    fcntl(res->context->async_fd, F_SETFL, O_NONBLOCK)))
		rc = call_failed(errno, "fcntl(O_NONBLOCK)");
	if (!rc)
		rc = arm_cq(res);
	if (!rc)
		rc = ask_last_wqe(q);
	if (rc)
		close_shared_queues(q);
	return rc;
}

int close_shared_queues(struct shared_queues *q)
{
	/* QP 都拆了才能拆 SRQ（EBUSY），SRQ 拆了才能 dereg：它的 receive 指着那块内存。*/
	int rc = check_destroyed("ibv_destroy_srq",
				 q->srq ? ibv_destroy_srq(q->srq) : 0);
	int undo = destroy_rdma_resources(&q->res);

	memset(q, 0, sizeof(*q));
	return rc ? rc : undo;
}
// endregion open-shared

// SPDX-License-Identifier: MIT
/*
 * needle_engines.c —— 存储节点为每个 engine 做的事：一个 QP，一份目录，然后袖手旁观
 *
 * 线程、名额与来去都在 peers.c。
 */
#include "needle_engines.h"

#include "base/report.h"

#define LONG_MS (3600 * 1000) /* 醒来看一眼，接着等 */

/*
 * rkey 只在它所属的 PD 里有效：要让多个 QP 都能被人读同一块 MR，它们就得建在同一个 PD
 * 里。每个连接各注册一遍也行，但每注册一遍都要把所有的页再 pin 一次。
 */
static int make_qp(struct rdma_resources *res,
		   const struct rdma_resources *owner)
{
	int rc;

	*res = *owner;
	/* 自己不收也不发；但 CQ 和两个队列的容量都不能是 0。*/
	res->recv_slots = res->send_slots = 1;
	rc = rdma_create_cq(res, false);
	return rc ? rc : rdma_create_qp(res, 0);
}

/* PD 与 context 是借来的：先放下它们，就只拆自己的 QP 和 CQ。*/
static void destroy_qp(struct peer *peer)
{
	struct rdma_resources *res = &peer->res;

	res->pd = NULL;
	res->context = NULL;
	rdma_destroy_objects(res);
}

// region serve-engine
/* 第 3、4 阶段，再加一份目录。此后节点不再 post 任何东西，CQ 永远是空的。*/
static int hand_shake(struct peer *peer, int64_t deadline)
{
	const struct needle_service *service = peer->service->context;
	struct rdma_resources *res = &peer->res;
	int rc = make_qp(res, service->owner);

	if (rc)
		return rc;
	/*
	 * 对端能同时在途多少个 READ，以我们的 max_dest_rd_atomic 为限：每个都要占住
	 * 一份“重传时还能再答一遍”的状态。给到网卡的上限，让 engine 自己选。
	 */
	res->max_reads = UINT8_MAX;
	rc = modify_qp_to_init(res);
	if (!rc)
		rc = exchange_cm_con_data(res, peer->sock, deadline);
	if (rc)
		return rc;
	show_both_sides(cm_con_data_of(res), res->remote);
	rc = peer_take_place(peer);
	if (!rc)
		rc = modify_qp_to_rtr(res);
	if (!rc)
		rc = modify_qp_to_rts(res);
	rc = sock_sync_step(peer->sock, SYNC_READY, rc, deadline);
	if (!rc)
		rc = needle_catalog_send(service->catalog, peer->sock,
					 deadline);
	return rc;
}
// endregion serve-engine

static void stand_by(struct peer *peer)
{
	const struct needle_service *service = peer->service->context;

	report_fact("engine %u (%s): QP 0x%06x, told of %zu needles",
		    peer->number, peer->name, peer->res.qp->qp_num,
		    service->catalog->count);
	while (!peer_wait(peer, LONG_MS))
		;
}

int needle_serve(const struct needle_service *service, int listen_sock)
{
	const struct peer_service engines = {
		.who = "engine",
		.more = "raise --max-engines",
		.most = service->most,
		.handshake_ms = service->handshake_ms,
		.meet = hand_shake,
		.serve = stand_by,
		.part = destroy_qp,
		.context = (void *)service,
	};

	return serve_peers(&engines, listen_sock);
}

// SPDX-License-Identifier: MIT
/*
 * cm_connect.c —— 第 11 阶段：让 librdmacm 来建立连接
 *
 * 第 3、4 阶段的事，它替你做：用 IP 地址找到设备和 GID，用自己的报文（MAD，走 QP 1，仍是
 * UDP 4791）交换 QPN 与 PSN，把 QP 推到 RTS。程序不再等 socket，而是等事件：
 *
 *	client                                 server
 *	rdma_resolve_addr  → ADDR_RESOLVED     rdma_bind_addr、rdma_listen
 *	rdma_resolve_route → ROUTE_RESOLVED
 *	rdma_create_qp     （QP 到了 INIT）
 *	rdma_connect       ── REQ ──────────>  CONNECT_REQUEST
 *	                                       rdma_create_qp、rdma_accept
 *	ESTABLISHED        <───────── REP ──   （RTR、RTS）
 *	（RTR、RTS）       ── RTU ──────────>  ESTABLISHED
 */
#include "base/deadline.h"
#include "rdma_common.h"

#include <errno.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

enum {
	RESOLVE_MS = 2000, /* 没有人应答 ARP，就等这么久 */
	RETRY_6 = 6,	   /* 与第 3 阶段相同 */
	RNR_RETRY_EVER = 7, /* CM 把两边的值交叉着用：这是给对端的 */
};

// region resolve
static int resolve(struct cm_connection *cm, struct sockaddr *to,
		   int64_t deadline)
{
	struct cm_event event;
	int rc;

	address_name(to, cm->peer, sizeof(cm->peer));
	if (rdma_create_id(cm->channel, &cm->id, NULL, RDMA_PS_TCP))
		return cm_failed(cm, "create_id");
	/* 查路由表：从哪个 netdev 出去，就用它上面的 RDMA 设备；再用 ARP 问 MAC。*/
	if (rdma_resolve_addr(cm->id, NULL, to, RESOLVE_MS))
		return cm_failed(cm, "resolve_addr");
	rc = await_cm_event(cm, cm->id, RDMA_CM_EVENT_ADDR_RESOLVED, deadline,
			    &event);
	if (rc)
		return rc;
	/* RoCE 上没有 subnet manager 可问，路径由网卡自己算出。*/
	if (rdma_resolve_route(cm->id, RESOLVE_MS))
		return cm_failed(cm, "resolve_route");
	return await_cm_event(cm, cm->id, RDMA_CM_EVENT_ROUTE_RESOLVED,
			      deadline, &event);
}
// endregion resolve

int resolve_server(struct cm_connection *cm, struct rdma_resources *res,
		   const char *server, uint16_t port, int64_t deadline)
{
	struct addrinfo *list;
	int rc = open_cm_channel(cm);

	if (!rc)
		rc = tcp_look_up(server, port, &list);
	if (rc)
		return rc;
	for (struct addrinfo *to = list; to; to = to->ai_next) {
		cm->more = to->ai_next;
		if (cm->id)
			rdma_destroy_id(cm->id);
		cm->id = NULL;
		rc = resolve(cm, to->ai_addr, deadline);
		if (!rc || rc == -EINTR || rc == -ETIMEDOUT)
			break;
	}
	cm->more = false;
	freeaddrinfo(list);
	return rc ? rc : learn_device_of_id(cm, res);
}

// region create-qp
int create_objects_on_id(struct cm_connection *cm, struct rdma_resources *res,
			 const struct rdma_config *config)
{
	const char *device = ibv_get_device_name(res->context->device);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	int rc;

	/* 设备由地址决定；用户点了另一个名，就不连。*/
	if (config->device_name && strcmp(config->device_name, device))
		return device_refused(cm->peer, device, config->device_name);
	rc = create_objects_but_qp(res, config);
	if (rc)
		return rc;
	res->posted =
		calloc(res->recv_slots + res->send_slots, sizeof(*res->posted));
	if (!res->posted)
		return call_failed(ENOMEM, "calloc(requests)");
	init.send_cq = init.recv_cq = res->cq;
	init.cap = (struct ibv_qp_cap){ res->send_slots, res->recv_slots, 1, 1,
					config->max_inline };
	/* 与 ibv_create_qp 不同：QP 属于 id，而且已经到了 INIT，可以 post receive。*/
	if (rdma_create_qp(cm->id, res->pd, &init))
		return cm_failed(cm, "create_qp");
	res->qp = cm->id->qp;
	res->max_inline = init.cap.max_inline_data;
	return 0;
}
// endregion create-qp

// region learn-peer
/* CM 给了 QP 什么，可以问出来。照第 4 阶段那样填好，后面的阶段看不出区别。*/
static int learn_peer(struct rdma_resources *res)
{
	struct ibv_qp_attr now;
	int rc = query_qp(res, &now);

	res->psn = now.sq_psn;
	res->gid_index = now.ah_attr.grh.sgid_index;
	res->remote.qp_num = now.dest_qp_num;
	res->remote.psn = now.rq_psn;
	res->remote.active_mtu = (uint8_t)now.path_mtu;
	memcpy(res->remote.gid, now.ah_attr.grh.dgid.raw, 16);
	return rc;
}
// endregion learn-peer

// region connect
static struct rdma_conn_param parameters(const struct private_data *data)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = sizeof(*data),
		/* READ 的个数，两个方向，网卡的上限。0 会让 READ 永远卡住。*/
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.retry_count = RETRY_6,
		.rnr_retry_count = RNR_RETRY_EVER,
	};
}

int accept_request(struct cm_connection *cm, struct rdma_resources *res,
		   const char extra[CM_EXTRA_SIZE], int64_t deadline)
{
	struct private_data mine = private_data_of(cm_con_data_of(res), extra);
	struct rdma_conn_param param = parameters(&mine);
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR };
	struct cm_event event;
	int rc, mask;

	/* client 的第一个 PSN 现在就问：之后它随时会发，QP 里的 rq_psn 就往前走了。*/
	if (rdma_init_qp_attr(cm->id, &rtr, &mask))
		return cm_failed(cm, "init_qp_attr");
	/* QP 在这里面走完 RTR、RTS，REP 才发出去：client 一收到就可能发数据。*/
	if (rdma_accept(cm->id, &param))
		return cm_failed(cm, "accept");
	rc = learn_peer(res);
	res->remote.psn = rtr.rq_psn;
	return rc ? rc
		  : await_cm_event(cm, cm->id, RDMA_CM_EVENT_ESTABLISHED,
				   deadline, &event);
}

int request_connection(struct cm_connection *cm, struct rdma_resources *res,
		       const char extra[CM_EXTRA_SIZE], int64_t deadline)
{
	struct private_data mine = private_data_of(cm_con_data_of(res), extra);
	struct rdma_conn_param param = parameters(&mine);
	struct cm_event event;
	int rc;

	/* REQ 带着这个 QP 的 QPN；REP 来了，librdmacm 让它走 RTR、RTS，再回 RTU。*/
	if (rdma_connect(cm->id, &param))
		return cm_failed(cm, "connect");
	rc = await_cm_event(cm, cm->id, RDMA_CM_EVENT_ESTABLISHED, deadline,
			    &event);
	if (!rc)
		rc = take_private_data(event.data, &res->remote, cm->extra);
	return rc ? rc : learn_peer(res);
}
// endregion connect

// region disconnect
int disconnect_cm(struct cm_connection *cm, bool first, int64_t deadline)
{
	struct cm_event event;
	int rc;

	if (first && rdma_disconnect(cm->id))
		return cm_failed(cm, "disconnect");
	/* 先断的等到对端的答复（DREP）；后断的等到对端的请求（DREQ）。*/
	rc = await_cm_event(cm, cm->id, RDMA_CM_EVENT_DISCONNECTED, deadline,
			    &event);
	/* 收到 DISCONNECTED 的 QP 还在 RTS；调用之后才进 ERR。*/
	if (!first && rdma_disconnect(cm->id))
		return cm_failed(cm, "disconnect");
	return rc;
}

int close_connection(struct cm_connection *cm, struct rdma_resources *res)
{
	int rc;

	/* QP 由 librdmacm 拆；PD、CQ、MR 是第 2 阶段的；context 不归我们关。*/
	if (res->qp)
		rdma_destroy_qp(cm->id);
	res->qp = NULL;
	rc = destroy_objects(res);
	if (cm->id)
		rdma_destroy_id(cm->id);
	if (cm->listener)
		rdma_destroy_id(cm->listener);
	if (cm->channel)
		rdma_destroy_event_channel(cm->channel);
	memset(cm, 0, sizeof(*cm));
	memset(res, 0, sizeof(*res));
	return rc;
}
// endregion disconnect

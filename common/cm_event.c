// SPDX-License-Identifier: MIT
/*
 * cm_event.c —— 第 11 阶段：librdmacm 的事件；server 用它们等 client
 *
 * 连接的每一步都是“调用，再等事件”：调用返回 0 只说明“开始办了”，办成没有，看事件。事件从
 * 一个 channel（文件描述符）里取。三条规矩：有期限，取到就 ack，核对它属于哪个 id。
 *
 * 这是另一种事件：QP 出错、端口断开之类的 async event 从 context->async_fd 来，两边各等各的。
 */
#include "base/deadline.h"
#include "rdma_common.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#define NO_LISTENER 8		/* REJECTED 的 status，IBTA 12.6.7.2 */
#define RETRY_NS    300000000LL /* 再试一次要这么久 */

int cm_failed(const struct cm_connection *cm, const char *call)
{
	/* 名字还有别的地址可试，就先不报告。*/
	return cm->more ? -errno : cm_call_failed(call, errno, cm->peer);
}

int open_cm_channel(struct cm_connection *cm)
{
	if (!cm->channel)
		cm->channel = rdma_create_event_channel();
	if (!cm->channel)
		return cm_failed(cm, "create_event_channel");
	/* 默认是阻塞的：没有事件时，rdma_get_cm_event 会一直等下去。*/
	return fcntl(cm->channel->fd, F_SETFL, O_NONBLOCK)
		       ? call_failed(errno, "fcntl(O_NONBLOCK)")
		       : 0;
}

// region take-event
static int take_event(struct cm_connection *cm, unsigned int wanted,
		      int64_t deadline, struct cm_event *out)
{
	struct rdma_cm_event *event;
	int rc;

	/* 没有事件就得到 EAGAIN，去 poll；期限到了就不等了。*/
	while (rdma_get_cm_event(cm->channel, &event)) {
		if (errno != EAGAIN && errno != EINTR)
			return cm_failed(cm, "get_cm_event");
		rc = wait_fd(cm->channel->fd, POLLIN, deadline);
		if (rc)
			return wait_failed(rc, "waiting for %s",
					   cm_event_name(wanted));
	}
	/* 复制下来：event 连同 private data，ack 之后就没有了。*/
	*out = (struct cm_event){ .type = event->event,
				  .status = event->status,
				  .id = event->id,
				  .listen_id = event->listen_id };
	if (event->param.conn.private_data)
		memcpy(out->data, event->param.conn.private_data,
		       event->param.conn.private_data_len);
	/* 马上 ack：少一次，rdma_destroy_id 就永远等下去。*/
	rdma_ack_cm_event(event);
	return 0;
}
// endregion take-event

// region await-event
int await_cm_event(struct cm_connection *cm, struct rdma_cm_id *id,
		   unsigned int wanted, int64_t deadline, struct cm_event *out)
{
	struct sync_msg reason;
	int rc;

	do {
		rc = take_event(cm, wanted, deadline, out);
		if (rc)
			return rc;
		/* 别的 id 的，或者只是通知（网卡换了地址、TIMEWAIT 过了）：接着等。*/
	} while ((out->listen_id ? out->listen_id : out->id) != id ||
		 out->type == RDMA_CM_EVENT_ADDR_CHANGE ||
		 out->type == RDMA_CM_EVENT_TIMEWAIT_EXIT);
	if (out->type == wanted)
		return 0;
	/* server 可能晚一步启动：期限之内，还可以再试。*/
	if (cm->more ||
	    (out->type == RDMA_CM_EVENT_REJECTED &&
	     out->status == NO_LISTENER && now_ns() + RETRY_NS < deadline))
		return -EAGAIN;
	memcpy(&reason, out->data, sizeof(reason));
	if (out->type == RDMA_CM_EVENT_REJECTED &&
	    reason.magic == sync_msg_of(SYNC_READY, 0).magic)
		return check_sync(&reason, SYNC_READY); /* reject_request() */
	return cm_event_failed(out->type, out->status, cm->peer);
}
// endregion await-event

/* ---- server 等待 client：CONNECT_REQUEST 也是事件 ------------------------- */

/* 第 1 阶段的结果，由地址决定。id->verbs 是 librdmacm 打开的，也由它关。*/
int learn_device_of_id(struct cm_connection *cm, struct rdma_resources *res)
{
	int err = ibv_query_device(cm->id->verbs, &res->device_attr);

	res->context = cm->id->verbs;
	res->ib_port = cm->id->port_num;
	res->gid = cm->id->route.addr.addr.ibaddr.sgid;
	address_name(rdma_get_peer_addr(cm->id), cm->peer, sizeof(cm->peer));
	if (err)
		return call_failed(err, "ibv_query_device(%s)", cm->peer);
	err = ibv_query_port(res->context, res->ib_port, &res->port_attr);
	return err ? call_failed(err, "ibv_query_port(%s)", cm->peer) : 0;
}

// region listen
int listen_for_requests(struct cm_connection *cm, uint16_t port)
{
	/* IPv6 的“任何地址”也收 IPv4 的；不指定地址，就在每块 RDMA 设备上听。*/
	struct sockaddr_in6 any = { .sin6_family = AF_INET6,
				    .sin6_port = htons(port) };
	int rc = open_cm_channel(cm);

	address_name((struct sockaddr *)&any, cm->peer, sizeof(cm->peer));
	if (rc)
		return rc;
	if (rdma_create_id(cm->channel, &cm->listener, NULL, RDMA_PS_TCP))
		return cm_failed(cm, "create_id");
	if (rdma_bind_addr(cm->listener, (struct sockaddr *)&any))
		return cm_failed(cm, "bind_addr");
	return rdma_listen(cm->listener, 16) ? cm_failed(cm, "listen") : 0;
}
// endregion listen

int reject_request(struct cm_connection *cm, int why)
{
	/* client 从 REJECTED 的 private data 里读到原因。*/
	const struct sync_msg reason = sync_msg_of(SYNC_READY, why);

	rdma_reject(cm->id, &reason, sizeof(reason));
	return why;
}

// region request
int await_cm_request(struct cm_connection *cm, struct rdma_resources *res,
		     int64_t deadline)
{
	struct cm_event event;
	int rc;

	for (;;) {
		rc = await_cm_event(cm, cm->listener,
				    RDMA_CM_EVENT_CONNECT_REQUEST, deadline,
				    &event);
		if (rc)
			return rc;
		cm->id = event.id; /* 新的 id：有设备，还没有 QP */
		rc = learn_device_of_id(cm, res);
		if (!rc)
			rc = take_private_data(event.data, &res->remote,
					       cm->extra);
		if (rc != -EPROTO)
			break;
		reject_request(cm, rc); /* 走错门的：告诉它，接着等 */
		rdma_destroy_id(cm->id);
		cm->id = NULL;
	}
	/* 不再听：排着队的和后来的，都由内核拒绝，而不是空等。*/
	rdma_destroy_id(cm->listener);
	cm->listener = NULL;
	return rc;
}
// endregion request

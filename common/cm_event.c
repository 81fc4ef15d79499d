// SPDX-License-Identifier: MIT
/*
 * cm_event.c —— 第 11 阶段：librdmacm 的事件，和连接的结束
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
	/* 抄下来：原件连同 private data，ack 之后就没有了。*/
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

/* ---- 结束：拒绝、断开、拆掉 ------------------------------------------------ */

int reject_request(struct cm_connection *cm, int why)
{
	/* client 从 REJECTED 的 private data 里读到原因。*/
	const struct sync_msg reason = sync_msg_of(SYNC_READY, why);

	rdma_reject(cm->id, &reason, sizeof(reason));
	return why;
}

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

// SPDX-License-Identifier: MIT
/*
 * message.c —— 一条消息：投递（post）、等待、计数
 *
 * UCX 的收发都是异步的：ucp_tag_send_nbx 只是把请求交给 UCX，返回值有三种——NULL
 * （当场做完了）、错误码、或一个 request 指针（还在做，做完会调 callback）。callback
 * 里只记下结果、叫醒等它的人；真正的逻辑都在等待之后，这样读起来是直的。
 *
 * request 未完成之前，buffer 归 UCX：它随时可能读写。所以收发用到的东西都放在 struct
 * ucx_endpoint 里（在堆上），直到 close_endpoint() 等所有 request 都完成，才释放。
 */
#include "message.h"

#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <stdio.h>

#define BYTES_PER_MS 8192 /* 再慢的网络也该有每秒 8 MiB */

/* ---- 完成 --------------------------------------------------------------- */

/* 在 ucp_worker_progress() 里被调用：此时不能再调 progress，也不该做重活。*/
static void ended(struct ucx_op *op, ucs_status_t status, size_t length)
{
	op->status = status;
	op->length = length;
	op->pending = false;
	op->request = NULL;
	if (op->task)
		task_wake(op->task);
}

static void on_sent(void *request, ucs_status_t status, void *op)
{
	ucp_request_free(request);
	ended(op, status, 0);
}

static void on_received(void *request, ucs_status_t status,
			const ucp_tag_recv_info_t *info, void *op)
{
	ucp_request_free(request);
	ended(op, status, status == UCS_OK ? info->length : 0);
}

static void on_stream(void *request, ucs_status_t status, size_t length,
		      void *op)
{
	ucp_request_free(request);
	ended(op, status, length);
}

/* 每次投递都要说：做完了替谁记着（叫谁写在 cb 里）；数据总在主机内存里。*/
#define OP_PARAM(op, more)                                    \
	.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |          \
			UCP_OP_ATTR_FIELD_USER_DATA | (more), \
	.user_data = (op), .memory_type = UCS_MEMORY_TYPE_HOST

/* 一次投递的结果：当场完成、失败、或进行中（callback 可能已经被调过了）。*/
static int begun(struct ucx_op *op, ucs_status_ptr_t request, size_t length)
{
	if (UCS_PTR_IS_PTR(request)) {
		if (op->pending)
			op->request = request;
		return 0;
	}
	ended(op, UCS_PTR_RAW_STATUS(request), length);
	return ucx_errno(op->status);
}

static void begin(struct ucx_endpoint *ep, struct ucx_op *op)
{
	*op = (struct ucx_op){ .pending = true, .task = ep->task };
}

/* ---- 等待 --------------------------------------------------------------- */

int64_t ucx_deadline_for(const struct ucx_endpoint *ep, uint64_t size)
{
	return deadline_in_ms(ep->limits.timeout_ms +
			      (int64_t)(size / BYTES_PER_MS));
}

bool ucx_peer_closes(const struct ucx_endpoint *ep)
{
	return ep->have_tags && !ep->control.pending &&
	       ep->control.status == UCS_OK &&
	       ep->ctrl_in.close_after_n_recv == ep->finished_recv_count;
}

/*
 * 控制消息来了吗？它说“你收满 n 条就关”。n 比已收的多：还有消息在路上，接着等；
 * 少：对端数错了，或在说谎。-EPROTO 时已报告。
 */
static int check_control(const struct ucx_endpoint *ep)
{
	const struct ucx_ctrl_msg *msg = &ep->ctrl_in;

	if (!ep->have_tags || ep->control.pending)
		return 0;
	if (ep->control.status == UCS_OK &&
	    ep->control.length == sizeof(*msg) &&
	    msg->opcode == UCX_CTRL_CLOSE) {
		if (msg->close_after_n_recv > ep->finished_recv_count)
			return 0;
		if (ucx_peer_closes(ep))
			return -ESHUTDOWN;
	}
	return fail(-EPROTO, "the peer breaks the protocol of UCX-Py",
		    "%s: a control message of %zu bytes, opcode %ju, says "
		    "close after %ju messages; %ju have come",
		    ep->peer, ep->control.length, msg->opcode,
		    msg->close_after_n_recv, ep->finished_recv_count);
}

int ucx_pause(struct ucx_endpoint *ep, int64_t deadline)
{
	/* server：让循环去照顾别的 client。client：自己推动 UCX。*/
	return ep->task ? task_wait(ep->task, deadline)
			: ucx_progress(ep->worker, deadline);
}

static int await(struct ucx_endpoint *ep, struct ucx_op *op, int64_t deadline)
{
	while (op->pending) {
		/*
		 * 次序有讲究：对端先发来“我要关了”，再断开。先看前者，就知道它是
		 * 有序离开的；先看后者，就会当成故障。
		 */
		int rc = op == &ep->receiving ? check_control(ep) : 0;

		if (!rc && stop_requested())
			rc = -EINTR;
		if (!rc && ep->lost != UCS_OK)
			rc = ucx_errno(ep->lost);
		if (!rc)
			rc = ucx_pause(ep, deadline);
		if (rc)
			return rc;
	}
	return ucx_errno(op->status);
}

int ucx_report(const struct ucx_endpoint *ep, int rc, const char *what)
{
	if (rc == -EINTR && stop_is_expected())
		return rc;
	if (rc == -EINTR)
		report_error(NULL, "%s: %s: stopped by a signal", ep->peer,
			     what);
	else if (rc == -ETIMEDOUT)
		report_error("is the peer running, and not stopped? --timeout "
			     "SECS waits longer",
			     "%s: %s: nothing came before the deadline",
			     ep->peer, what);
	else if (rc == -ESHUTDOWN)
		report_error("see the peer's own messages",
			     "%s: %s: the peer has closed the connection",
			     ep->peer, what);
	else if (rc == -EMSGSIZE)
		report_error("both sides must alternate send_obj and recv_obj",
			     "%s: %s: a longer message came", ep->peer, what);
	else if (ep->lost != UCS_OK)
		ucx_failed(ep->lost, NULL, "%s: %s: the peer is gone", ep->peer,
			   what);
	else
		ucx_failed(UCS_ERR_IO_ERROR, NULL, "%s: %s", ep->peer, what);
	return rc;
}

/* ---- 数据消息 ----------------------------------------------------------- */

static void debug_message(const struct ucx_endpoint *ep, const char *what,
			  uint64_t number, uint64_t tag, size_t size,
			  const char *type)
{
	if (ep->worker->debug)
		ucx_debug(ep->worker,
			  "[%s #%03ju] ep: %p, tag: 0x%jx, nbytes: %zu, "
			  "type: %s",
			  what, number, (void *)ep->ep, tag, size, type);
}

static int tag_send(struct ucx_endpoint *ep, const void *data, size_t size,
		    uint64_t tag)
{
	const ucp_request_param_t param = {
		OP_PARAM(&ep->sending, UCP_OP_ATTR_FIELD_MEMORY_TYPE),
		.cb.send = on_sent
	};

	begin(ep, &ep->sending);
	return begun(&ep->sending,
		     ucp_tag_send_nbx(ep->ep, data, size, tag, &param), 0);
}

int ucx_post_send(struct ucx_endpoint *ep, const void *data, size_t size,
		  const char *type)
{
	int rc;

	debug_message(ep, "Send", ep->send_count, ep->msg_tag_send, size, type);
	ep->send_count++;
	rc = tag_send(ep, data, size, ep->msg_tag_send);
	return rc ? ucx_failed(ep->sending.status, NULL,
			       "%s: ucp_tag_send_nbx(%zu bytes)", ep->peer,
			       size)
		  : 0;
}

static int tag_recv(struct ucx_endpoint *ep, struct ucx_op *op, void *data,
		    size_t size, uint64_t tag)
{
	/*
	 * 消息若已在 unexpected queue 里，接收当场就完成，按理不必调 callback，长度
	 * 从 recv_info 里读；但 UCX 1.15 及以前不填它（openucx/ucx#9425）。
	 * NO_IMM_CMPL：当场完成也照样调 callback，长度从那里得到。
	 */
	const ucp_request_param_t param = {
		OP_PARAM(op, UCP_OP_ATTR_FIELD_MEMORY_TYPE |
				     UCP_OP_ATTR_FLAG_NO_IMM_CMPL),
		.cb.recv = on_received
	};

	begin(ep, op);
	/*
	 * 接收是向 worker 投递的，不是向 endpoint：谁发来的都行，只要 tag 对。
	 * mask 全 1 表示 64 位都要相同。
	 */
	return begun(op,
		     ucp_tag_recv_nbx(ep->worker->worker, data, size, tag,
				      UINT64_MAX, &param),
		     0);
}

int ucx_post_recv(struct ucx_endpoint *ep, void *data, size_t size,
		  const char *type)
{
	debug_message(ep, "Recv", ep->recv_count, ep->msg_tag_recv, size, type);
	ep->recv_count++;
	/* 失败（比如消息太长）留给 ucx_received()：那里才知道在等什么。*/
	tag_recv(ep, &ep->receiving, data, size, ep->msg_tag_recv);
	return 0;
}

int ucx_sent(struct ucx_endpoint *ep, int64_t deadline, const char *what)
{
	int rc = await(ep, &ep->sending, deadline);

	return rc ? ucx_report(ep, rc, what) : 0;
}

int ucx_received(struct ucx_endpoint *ep, size_t size, int64_t deadline,
		 const char *what)
{
	int rc = await(ep, &ep->receiving, deadline);

	if (rc == -ESHUTDOWN || rc == -ECONNRESET || rc == -EPROTO)
		return rc;
	if (rc)
		return ucx_report(ep, rc, what);
	ep->finished_recv_count++;
	if (ep->receiving.length == size)
		return 0;
	return fail(-EPROTO, "both sides must alternate send_obj and recv_obj",
		    "%s: %s: a message of %zu bytes came instead of %zu",
		    ep->peer, what, ep->receiving.length, size);
}

/* ---- 控制消息 ----------------------------------------------------------- */

int ucx_post_ctrl_recv(struct ucx_endpoint *ep)
{
	int rc = tag_recv(ep, &ep->control, &ep->ctrl_in, sizeof(ep->ctrl_in),
			  ep->ctrl_tag_recv);

	return rc ? ucx_report(ep, rc, "receiving a control message") : 0;
}

int ucx_post_ctrl_send(struct ucx_endpoint *ep)
{
	ucx_debug(ep->worker,
		  "[Send shutdown] ep: %p, tag: 0x%jx, close_after_n_recv: %ju",
		  (void *)ep->ep, ep->ctrl_tag_send,
		  ep->ctrl_out.close_after_n_recv);
	return tag_send(ep, &ep->ctrl_out, sizeof(ep->ctrl_out),
			ep->ctrl_tag_send);
}

/* ---- stream ------------------------------------------------------------- */

int ucx_stream_send(struct ucx_endpoint *ep, const void *data, size_t size,
		    int64_t deadline, const char *what)
{
	const ucp_request_param_t param = { OP_PARAM(&ep->sending, 0),
					    .cb.send = on_sent };
	int rc;

	begin(ep, &ep->sending);
	rc = begun(&ep->sending,
		   ucp_stream_send_nbx(ep->ep, data, size, &param), 0);
	if (!rc)
		rc = await(ep, &ep->sending, deadline);
	return rc ? ucx_report(ep, rc, what) : 0;
}

static int stream_part(struct ucx_endpoint *ep, void *data, size_t size,
		       int64_t deadline)
{
	size_t length = 0;
	const ucp_request_param_t param = { OP_PARAM(&ep->receiving, 0),
					    .cb.recv_stream = on_stream };
	ucs_status_ptr_t request;
	int rc;

	begin(ep, &ep->receiving);
	request = ucp_stream_recv_nbx(ep->ep, data, size, &length, &param);
	rc = begun(&ep->receiving, request, length);
	return rc ? rc : await(ep, &ep->receiving, deadline);
}

/* 和 TCP 一样是字节流：一次可能只来一半，要凑满。还能说出“来了几个字节”。*/
int ucx_stream_recv(struct ucx_endpoint *ep, void *data, size_t size,
		    size_t *got, int64_t deadline, const char *what)
{
	*got = 0;
	while (*got < size) {
		int rc = stream_part(ep, (char *)data + *got, size - *got,
				     deadline);

		if (rc)
			return ucx_report(ep, rc, what);
		*got += ep->receiving.length;
	}
	return 0;
}

/* ---- flush -------------------------------------------------------------- */

int ucx_flush(struct ucx_endpoint *ep, int64_t deadline)
{
	const ucp_request_param_t param = { OP_PARAM(&ep->sending, 0),
					    .cb.send = on_sent };
	int rc;

	begin(ep, &ep->sending);
	rc = begun(&ep->sending, ucp_ep_flush_nbx(ep->ep, &param), 0);
	return rc ? rc : await(ep, &ep->sending, deadline);
}

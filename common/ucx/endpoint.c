// SPDX-License-Identifier: MIT
/*
 * endpoint.c —— 一次 UCX 会话：listen、accept、connect、create_endpoint、
 * send_obj、recv_obj、close
 *
 * 与 client/sock_echo.c 并排读：函数一一对应。socket 的一端就是一个 fd，内核替它
 * 记着对端、次序和边界；UCX 的一端是 ucp_ep（怎样到达对端）加上两对 tag（哪些消息
 * 是我的），这些都要自己来。
 *
 *	listener（server）                     连接方（client）
 *	  ── peer info 24 字节（stream）──────>
 *	  <────── peer info 24 字节（stream）──
 *	  <──── 8 字节：对象长度（msg tag）────
 *	  <──── 对象本身（msg tag）────────────
 *	  ── 8 字节：长度 ────────────────────>
 *	  ── 对象 ────────────────────────────>
 *	  <──── 16 字节：关闭（ctrl tag）──────
 */
#include "endpoint.h"

#include "base/deadline.h"
#include "base/report.h"
#include "base/sock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/sys/sock.h>

#define RETRY_MS 100
#define LEAVE_MS 1000 /* 关闭时等对端先走，最多这么久 */
#define PURGE_MS 5000 /* 强制关闭后，UCX 交还 buffer 的期限 */

/* ---- listen ------------------------------------------------------------- */

// region listen
int create_listener(struct ucx_worker *w, uint16_t port,
		    ucp_listener_conn_callback_t on_request, void *arg,
		    ucp_listener_h *listener)
{
	const struct sockaddr_in any = { .sin_family = AF_INET,
					 .sin_port = htons(port) };
	const ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { (const struct sockaddr *)&any, sizeof(any) },
		.conn_handler = { .cb = on_request, .arg = arg },
	};
	ucs_status_t status = ucp_listener_create(w->worker, &params, listener);

	/*
	 * 没有 accept() 可以睡在上面：client 来了，UCX 在 progress 里调
	 * on_request，给一个 conn_request；拿它造 endpoint，才算接受。
	 */
	if (status == UCS_OK)
		return 0;
	return ucx_failed(status,
			  status == UCS_ERR_BUSY
				  ? "another process listens there: choose "
				    "another --port, or find it with ss -ltnp"
				  : NULL,
			  "ucp_listener_create(TCP port %u)", port);
}
// endregion listen

/* ---- ucp_ep ------------------------------------------------------------- */

/* 只在 ucp_worker_progress() 里被调用；这里只记下来，等待的一方自己会看到。*/
static void on_error(void *arg, ucp_ep_h ucp_ep, ucs_status_t status)
{
	struct ucx_endpoint *ep = arg;

	(void)ucp_ep;
	ep->lost = status;
	if (ep->task)
		task_wake(ep->task);
}

static ucs_status_t open_ep(struct ucx_endpoint *ep, ucp_ep_params_t *params)
{
	/*
	 * 没有 MODE_PEER，对端进程一死，UCX 就会让我们的进程也退出；有了它，UCX 会
	 * 监视连接（keepalive），出事时调 on_error，只坏这一个 endpoint。
	 */
	params->field_mask |= UCP_EP_PARAM_FIELD_FLAGS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER;
	params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
	params->err_handler.cb = on_error;
	params->err_handler.arg = ep;
	return ucp_ep_create(ep->worker->worker, params, &ep->ep);
}

static struct ucx_endpoint *new_endpoint(struct ucx_worker *w,
					 const struct ucx_limits *limits,
					 struct task *task)
{
	struct ucx_endpoint *ep = calloc(1, sizeof(*ep));

	if (!ep) {
		report_error(NULL, "no memory for an endpoint");
		return NULL;
	}
	ep->worker = w;
	ep->limits = *limits;
	ep->task = task;
	return ep;
}

static void name_peer(struct ucx_endpoint *ep, ucp_conn_request_h request)
{
	ucp_conn_request_attr_t attr = {
		.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR,
	};

	if (ucp_conn_request_query(request, &attr) != UCS_OK ||
	    !ucs_sockaddr_str((struct sockaddr *)&attr.client_address, ep->peer,
			      sizeof(ep->peer)))
		snprintf(ep->peer, sizeof(ep->peer), "a client");
}

int accept_endpoint(struct ucx_worker *w, ucp_conn_request_h request,
		    const struct ucx_limits *limits, struct task *task,
		    struct ucx_endpoint **out)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
		.flags = UCP_EP_PARAMS_FLAGS_NO_LOOPBACK,
		.conn_request = request,
	};
	struct ucx_endpoint *ep = new_endpoint(w, limits, task);
	ucs_status_t status;

	if (!ep)
		return -ENOMEM;
	ep->listener = true;
	name_peer(ep, request);
	status = open_ep(ep, &params);
	if (status != UCS_OK) {
		int rc = ucx_failed(status, NULL,
				    "ucp_ep_create(connection request of %s)",
				    ep->peer);

		free(ep);
		return rc;
	}
	*out = ep;
	return 0;
}

/* ---- connect ------------------------------------------------------------ */

static bool empty_endpoint(struct ucx_endpoint *ep);

/*
 * 一次尝试。ucp_ep_create 立即返回，连接在后台建立；flush 完成才说明连上了。
 * 返回 0，或 -errno（此时不报告，由调用者决定重试与否；*why 是 UCX 的说法）。
 */
static int connect_once(struct ucx_endpoint *ep, const struct addrinfo *to,
			int64_t deadline, ucs_status_t *why)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.sockaddr = { to->ai_addr, to->ai_addrlen },
	};
	ucs_status_t status = open_ep(ep, &params);
	int rc;

	if (status == UCS_OK) {
		rc = ucx_flush(ep, deadline);
		if (rc == -ETIMEDOUT || rc == -EINTR)
			return rc;
		status = ep->lost != UCS_OK ? ep->lost : ep->sending.status;
	}
	*why = status;
	return ucx_errno(status);
}

static int connect_failed(int rc, ucs_status_t why, const char *server,
			  uint16_t port)
{
	if (rc == -EINTR)
		report_error(NULL, "connecting to %s: stopped by a signal",
			     server);
	else if (rc == -ETIMEDOUT)
		report_error("ping the address; a firewall may drop the TCP "
			     "port, or UCX_NET_DEVICES not reach it",
			     "ucp_ep_create(%s, TCP port %u): no answer before "
			     "the deadline",
			     server, port);
	else
		ucx_failed(why,
			   "start the server first; compare address and port, "
			   "and UCX_TLS on both sides",
			   "ucp_ep_create(%s, TCP port %u)", server, port);
	return rc;
}

/* 名字可能有好几个地址，server 可能还没启动：逐个试，试到期限。*/
static int try_until(struct ucx_endpoint **ep, const struct addrinfo *list,
		     int64_t deadline, ucs_status_t *why)
{
	const struct ucx_endpoint blank = **ep;
	const struct addrinfo *to = list;
	int last = -ETIMEDOUT; /* 最后一次有结果的尝试：它说得出原因 */
	int rc;

	for (;;) {
		rc = connect_once(*ep, to, deadline, why);
		if (rc == -ETIMEDOUT)
			return last;
		if (!rc || rc == -EINTR)
			return rc;
		last = rc;
		/* 失败的 ucp_ep 不能再用：关掉，从头再来一个。*/
		if (!empty_endpoint(*ep)) {
			*ep = NULL;
			return rc;
		}
		**ep = blank;
		to = to->ai_next;
		if (to)
			continue;
		to = list;
		if (deadline_passed(deadline))
			return rc;
		if (deadline_sleep_ms(RETRY_MS, deadline))
			return -EINTR;
	}
}

int connect_endpoint(struct ucx_worker *w, const char *server, uint16_t port,
		     const struct ucx_limits *limits, int64_t deadline,
		     struct ucx_endpoint **out)
{
	struct ucx_endpoint *ep = new_endpoint(w, limits, NULL);
	ucs_status_t why = UCS_OK;
	struct addrinfo *list;
	int rc;

	if (!ep)
		return -ENOMEM;
	snprintf(ep->peer, sizeof(ep->peer), "%s:%u", server, port);
	rc = tcp_look_up(server, port, &list);
	if (!rc) {
		rc = try_until(&ep, list, deadline, &why);
		freeaddrinfo(list);
		if (rc)
			connect_failed(rc, why, server, port);
	}
	if (rc)
		close_endpoint(ep, rc);
	else
		*out = ep;
	return rc;
}

/* ---- create_endpoint ---------------------------------------------------- */

static int receive_peer_info(struct ucx_endpoint *ep, int64_t deadline)
{
	size_t got;
	int rc = ucx_stream_recv(ep, &ep->info_in, sizeof(ep->info_in), &got,
				 deadline, "waiting for its peer info");

	return rc ? rc : ucx_check_peer_info(&ep->info_in, ep->peer);
}

static int send_peer_info(struct ucx_endpoint *ep, int64_t deadline)
{
	return ucx_stream_send(ep, &ep->info_out, sizeof(ep->info_out),
			       deadline, "sending my peer info");
}

/*
 * 为什么要规定先后？stream 上两边同时先发也行得通，但 UCX-Py 是这样定的：listener
 * 先发后收，连接方先收后发。不守次序，对端就会收到它还没在等的东西。
 */
static int exchange_peer_info(struct ucx_endpoint *ep)
{
	int64_t deadline = deadline_in_ms(ep->limits.info_ms);
	int rc;

	if (ep->listener) {
		rc = send_peer_info(ep, deadline);
		return rc ? rc : receive_peer_info(ep, deadline);
	}
	rc = receive_peer_info(ep, deadline);
	return rc ? rc : send_peer_info(ep, deadline);
}

/* 对端一拿到 tag 就可以发，比我们备好接收还早：这样的消息要留着，不是垃圾。*/
static void expect_messages(struct ucx_endpoint *ep)
{
	ep->tags.msg_tag = ep->info_out.msg_tag;
	ep->tags.ctrl_tag = ep->info_out.ctrl_tag;
	ucx_add_tags(ep->worker, &ep->tags);
}

// region create-endpoint
int create_endpoint(struct ucx_endpoint *ep)
{
	int rc;

	/* 1  造两个独一无二的 tag：我要用它们收消息。*/
	rc = ucx_generate_tags(ep->ep, &ep->info_out);
	if (!rc)
		expect_messages(ep);

	/* 2  与对端交换：各自告诉对方“给我发消息时用这个 tag”。*/
	if (!rc)
		rc = exchange_peer_info(ep);
	if (rc)
		return rc;

	/* 3  有了它们，endpoint 才算造好：发用对端的，收用自己的。*/
	ep->msg_tag_send = ep->info_in.msg_tag;
	ep->msg_tag_recv = ep->info_out.msg_tag;
	ep->ctrl_tag_send = ep->info_in.ctrl_tag;
	ep->ctrl_tag_recv = ep->info_out.ctrl_tag;
	ep->have_tags = true;
	ucx_debug(ep->worker,
		  "%s: %p, msg-tag-send: 0x%jx, msg-tag-recv: 0x%jx, "
		  "ctrl-tag-send: 0x%jx, ctrl-tag-recv: 0x%jx",
		  ep->listener ? "_listener_handler() server"
			       : "create_endpoint() client",
		  (void *)ep->ep, ep->msg_tag_send, ep->msg_tag_recv,
		  ep->ctrl_tag_send, ep->ctrl_tag_recv);
	/* 对端随时可以说“我要关了”：从现在起就为这句话留一个接收。*/
	return ucx_post_ctrl_recv(ep);
}
// endregion create-endpoint

/* ---- objects ------------------------------------------------------------ */

static int send_message(struct ucx_endpoint *ep, const void *data,
			uint64_t size, const char *type, const char *what)
{
	int rc = ucx_post_send(ep, data, size, type);

	return rc ? rc : ucx_sent(ep, ucx_deadline_for(ep, size), what);
}

// region send-obj
int send_obj(struct ucx_endpoint *ep, const void *data, uint64_t size)
{
	int rc;

	/*
	 * 一条消息有边界，但接收方要先备好足够大的 buffer，所以先发长度。两条消息
	 * 用同一个 tag，tag 相同的消息按发送的次序匹配，所以不会颠倒。
	 */
	ep->length_out = size;
	rc = send_message(ep, &ep->length_out, sizeof(ep->length_out),
			  "uint64_t", "sending a length");
	return rc ? rc
		  : send_message(ep, data, size, "char[]", "sending an object");
}
// endregion send-obj

static int recv_length(struct ucx_endpoint *ep)
{
	const bool idle = ep->finished_recv_count == ep->send_count;
	const int wait_ms = idle ? ep->limits.idle_ms : ep->limits.timeout_ms;
	int rc = ucx_post_recv(ep, &ep->length_in, sizeof(ep->length_in),
			       "uint64_t");

	if (!rc)
		rc = ucx_received(ep, sizeof(ep->length_in),
				  deadline_in_ms(wait_ms),
				  "waiting for an object");
	/* 每个对象都答复过了，此刻它没有欠我们什么。*/
	if (idle && rc == -ECONNRESET) {
		report_warning("see the peer's own messages",
			       "%s: it is gone without a control message, "
			       "after %ju messages",
			       ep->peer, ep->finished_recv_count);
		return -ESHUTDOWN;
	}
	if (rc == -ECONNRESET || (!idle && rc == -ESHUTDOWN)) {
		ucx_report(ep, rc, "waiting for an object");
		return -ECONNRESET;
	}
	return rc;
}

static int recv_payload(struct ucx_endpoint *ep, uint64_t size)
{
	int rc = ucx_post_recv(ep, ep->object.data, size, "char[]");

	if (!rc)
		rc = ucx_received(ep, size, ucx_deadline_for(ep, size),
				  "waiting for the bytes of an object");
	if (rc != -ESHUTDOWN && rc != -ECONNRESET)
		return rc;
	/* 长度来了，内容没来：哪怕它说了“再见”，也是半途而废。*/
	ucx_report(ep, rc, "waiting for the bytes of an object");
	return -ECONNRESET;
}

int recv_obj(struct ucx_endpoint *ep, void **data, uint64_t *size)
{
	int rc = recv_length(ep);

	if (!rc)
		rc = room_for(&ep->object, ep->length_in, ep->limits.max_object,
			      ep->peer);
	if (!rc)
		rc = recv_payload(ep, ep->length_in);
	if (rc)
		return rc;
	*data = ep->object.data;
	*size = ep->length_in;
	return 0;
}

/* ---- close -------------------------------------------------------------- */

/* 关闭时的等待不理会 Ctrl-C：它本来就短，而且正是 Ctrl-C 要我们收拾干净。*/
static void settle_until(struct ucx_endpoint *ep, int64_t deadline)
{
	if (ucx_pause(ep, deadline) == -EINTR)
		deadline_sleep_ms(1, deadline);
}

/*
 * 告诉对端“你收满 n 条就可以关了”，再等它先走：数据和断开走的不是同一条连接，我们
 * 若发完就断，对端可能先看到断开，以为出了故障。
 */
static void say_goodbye(struct ucx_endpoint *ep)
{
	int64_t deadline = deadline_in_ms(LEAVE_MS);

	ep->ctrl_out = (struct ucx_ctrl_msg){
		.opcode = UCX_CTRL_CLOSE,
		.close_after_n_recv = ep->send_count,
	};
	/* 对端可能已经走了：那就不必说，发不出去也不是错误。*/
	if (ucx_post_ctrl_send(ep))
		return;
	while (ep->lost == UCS_OK && !deadline_passed(deadline))
		settle_until(ep, deadline);
}

static void cancel(struct ucx_endpoint *ep, struct ucx_op *op)
{
	if (op->pending && op->request)
		ucp_request_cancel(ep->worker->worker, op->request);
}

static bool has_pending(const struct ucx_endpoint *ep)
{
	return ep->sending.pending || ep->receiving.pending ||
	       ep->control.pending;
}

/*
 * 强制关闭：不等对端，UCX 立即拆掉连接，把没做完的 request 都以 CANCELED 结束。在
 * 它们全部结束之前，buffer 还是 UCX 的；释放早了，它就会写进别人的内存。
 */
static void close_ucp_ep(struct ucx_endpoint *ep)
{
	const ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	int64_t deadline = deadline_in_ms(PURGE_MS);
	ucs_status_ptr_t request = ucp_ep_close_nbx(ep->ep, &param);

	while (UCS_PTR_IS_PTR(request) &&
	       ucp_request_check_status(request) == UCS_INPROGRESS &&
	       !deadline_passed(deadline))
		settle_until(ep, deadline_in_ms(10));
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
	while (has_pending(ep) && !deadline_passed(deadline))
		settle_until(ep, deadline_in_ms(10));
}

/* 返回 false：UCX 还拿着它的内存，不能再动，也不能 free。*/
static bool empty_endpoint(struct ucx_endpoint *ep)
{
	cancel(ep, &ep->receiving);
	cancel(ep, &ep->control);
	ucx_remove_tags(&ep->tags);
	if (ep->ep)
		close_ucp_ep(ep);
	if (has_pending(ep)) {
		/* 宁可漏掉这块内存，也不能让 UCX 写进已经释放的地方。*/
		report_error("this is a bug of UCX: restart when memory gets "
			     "short",
			     "%s: UCX did not give back a buffer within %d s",
			     ep->peer, PURGE_MS / 1000);
		return false;
	}
	room_free(&ep->object);
	return true;
}

void close_endpoint(struct ucx_endpoint *ep, int rc)
{
	const bool well = !rc || rc == -EINTR || rc == -ESHUTDOWN;

	if (!ep)
		return;
	if (ep->have_tags && ep->lost == UCS_OK && !ep->sending.pending) {
		if (ucx_peer_closes(ep))
			ucx_debug(ep->worker,
				  "[Recv shutdown] ep: %p, tag: 0x%jx",
				  (void *)ep->ep, ep->ctrl_tag_recv);
		else if (well)
			say_goodbye(ep);
	}
	if (empty_endpoint(ep))
		free(ep);
}

/* ---- transport ---------------------------------------------------------- */

/* UCX 1.13 没有查询它的函数，只有一段给人看的文字：“lane[0]: 0:tcp/lo.0 … am …”。*/
const char *endpoint_transport(const struct ucx_endpoint *ep, char *out,
			       size_t size)
{
	char *text = NULL, *line, *rest;
	size_t length;
	FILE *stream = open_memstream(&text, &length);

	snprintf(out, size, "unknown");
	if (!stream)
		return out;
	ucp_ep_print_info(ep->ep, stream);
	if (fclose(stream))
		return out;
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		int begin = 0, end = 0;

		if (sscanf(line, "# lane[%*d]: %*d:%n%*[^. ]%n", &begin, &end) <
			    0 ||
		    !end || !strstr(line, " am"))
			continue;
		snprintf(out, size, "%.*s", end - begin, line + begin);
		break;
	}
	free(text);
	return out;
}

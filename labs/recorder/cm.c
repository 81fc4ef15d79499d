// SPDX-License-Identifier: MIT
/*
 * cm.c —— librdmacm：连接怎样建立、事件有没有 ack
 *
 * 它里面的 ibv_modify_qp、ibv_create_qp 早已记下；这里补上的是为什么没有连上：被拒绝、没有
 * 人 accept、private data 太长、事件没有 ack 而 rdma_destroy_id 永远不返回。
 *
 * 先调真的，再记：它们自己也调用 libibverbs，那些照样要记，不能挡在外面。
 */
#include "event.h"
#include "format.h"
#include "objects.h"
#include "ring.h"
#include "writer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

/*
 * 不要求人装 librdmacm-dev：它的 ABI（.so.1）从未变过，这里只看每个结构体的开头。
 */
struct rdma_event_channel;
struct rdma_cm_id {
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	void *context;
	struct ibv_qp *qp;
	struct sockaddr_storage mine, peers;
};
struct rdma_cm_event {
	struct rdma_cm_id *id, *listen_id;
	unsigned int event;
	int status;
};
struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int rdma_listen(struct rdma_cm_id *id, int backlog);
int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
		      struct sockaddr *dst, int timeout_ms);
int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *init);
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len);
int rdma_disconnect(struct rdma_cm_id *id);
int rdma_destroy_id(struct rdma_cm_id *id);
int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event);
int rdma_ack_cm_event(struct rdma_cm_event *event);

/* ---- 认得的 id ------------------------------------------------------------- */

#define MOST_IDS 256

struct cm_id {
	const void *id; /* NULL: free */
	uint32_t number;
	bool connected, accepted;
	unsigned int unacked;
};

static struct cm_id ids[MOST_IDS];

/* 认不下更多的，就都算同一个陌生的：只少说几句。*/
static struct cm_id *know_id(const void *id)
{
	static uint32_t last;
	struct cm_id *free = NULL;

	for (size_t i = 0; i < MOST_IDS; i++) {
		if (ids[i].id == id)
			return &ids[i];
		if (!ids[i].id && !free)
			free = &ids[i];
	}
	if (free && id)
		*free = (struct cm_id){ .id = id, .number = ++last };
	return id ? free : NULL;
}

static struct cm_id *add_id(struct line *line, const void *id)
{
	struct cm_id *known = know_id(id);

	if (known)
		LINE_NUMBER(line, "cm_id", known->number);
	return known;
}

/* 内核或 librdmacm 让再等等，不是失败。*/
static int real_error(int rc, int err)
{
	return !rc || err == EINPROGRESS || err == EAGAIN || err == EINTR ? 0
									  : err;
}

/* ---- 调用 ----------------------------------------------------------------- */

struct cm_call {
	struct event event;
	uint64_t stamp;
	const char *outer;
	bool on;
};

static void call_begin(struct cm_call *call, const char *name)
{
	call->on = !recorder_inside && recorder_ready();
	call->stamp = ring_stamp();
	if (call->on)
		call->outer = event_enters(name);
}

static void call_leaves(const struct cm_call *call)
{
	if (call->on)
		event_leaves(call->outer);
}

/* 真的已经返回 @rc。True：event 已经开始，要写完它。*/
static bool call_returned(struct cm_call *call, const char *name, int rc)
{
	int err = rc ? errno : 0;

	call_leaves(call);
	if (!call->on || !event_begin(&call->event, name))
		return false;
	event_returned(&call->event, real_error(rc, err));
	call->event.stamp = call->stamp;
	call->event.saved_errno = err ? err : call->event.saved_errno;
	return true;
}

static void call_end(struct cm_call *call, const struct rdma_cm_id *id)
{
	writer_lock();
	add_id(&call->event.line, id);
	event_end(&call->event);
}

static void add_address(struct line *line, const struct sockaddr *addr)
{
	char text[INET6_ADDRSTRLEN] = "";
	const struct sockaddr_in *v4 = (const void *)addr;
	const struct sockaddr_in6 *v6 = (const void *)addr;

	if (!addr)
		return;
	if (addr->sa_family == AF_INET)
		inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
	else if (addr->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
	else
		return;
	LINE_TEXT(line, "address", text);
	LINE_NUMBER(line, "port", ntohs(v4->sin_port));
}

#define EXPLAIN_CALL(call, name, again, len, foreign)                    \
	EXPLAIN_ERR(&(call)->event,                                      \
		    explain_cm_call(name, (call)->event.err, again, len, \
				    foreign),                            \
		    "rdma_%s()", name)

/* 除了地址（没有的是 NULL），没有别的可说的调用。*/
#define PLAIN(name, params, address, ...)                     \
	EXPORTED int rdma_##name params                       \
	{                                                     \
		REAL(rdma_##name, "RDMACM_1.0", -1);          \
		struct cm_call call;                          \
		int rc;                                       \
		call_begin(&call, "rdma_" #name);             \
		rc = real(__VA_ARGS__);                       \
		if (!call_returned(&call, "rdma_" #name, rc)) \
			return rc;                            \
		add_address(&call.event.line, address);       \
		EXPLAIN_CALL(&call, #name, false, 0, false);  \
		call_end(&call, id);                          \
		return rc;                                    \
	}
PLAIN(bind_addr, (struct rdma_cm_id * id, struct sockaddr *addr), addr, id,
      addr)
PLAIN(resolve_addr,
      (struct rdma_cm_id * id, struct sockaddr *src, struct sockaddr *dst,
       int timeout_ms),
      dst, id, src, dst, timeout_ms)
PLAIN(listen, (struct rdma_cm_id * id, int backlog), NULL, id, backlog)
PLAIN(resolve_route, (struct rdma_cm_id * id, int timeout_ms), NULL, id,
      timeout_ms)
PLAIN(disconnect, (struct rdma_cm_id * id), NULL, id)
PLAIN(reject, (struct rdma_cm_id * id, const void *data, uint8_t len), NULL, id,
      data, len)

EXPORTED int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			    struct ibv_qp_init_attr *init)
{
	REAL(rdma_create_qp, "RDMACM_1.0", -1);
	struct cm_call call;
	int rc;

	call_begin(&call, "rdma_create_qp");
	rc = real(id, pd, init);
	if (!rc) {
		call_leaves(&call); /* ibv_create_qp 已经记下 */
		return 0;
	}
	if (!call_returned(&call, "rdma_create_qp", rc))
		return rc;
	EXPLAIN_CALL(&call, "create_qp", false, 0,
		     pd && pd->context != id->verbs);
	call_end(&call, id);
	return rc;
}

/* ---- connect 与 accept ---------------------------------------------------- */

static void add_param(struct line *line, const struct rdma_conn_param *param)
{
	if (!param)
		return;
	LINE_NUMBER(line, "private_data_len", param->private_data_len);
	LINE_NUMBER(line, "responder_resources", param->responder_resources);
	LINE_NUMBER(line, "initiator_depth", param->initiator_depth);
}

/* 这个 id 早先成功过没有；这一次成功了就记下。*/
static bool done_before(const void *id, bool accepts, bool succeeded)
{
	struct cm_id *known;
	bool *done, before = false;

	writer_lock();
	known = know_id(id);
	if (known) {
		done = accepts ? &known->accepted : &known->connected;
		before = *done;
		*done = before || succeeded;
	}
	writer_unlock();
	return before;
}

static void warn_without_qp(const struct rdma_cm_id *id,
			    const struct rdma_conn_param *param)
{
	struct explanation why;
	struct line line;

	if (id->qp || (param && param->qp_num))
		return;
	why = explain_cm_without_qp();
	line_start(&line, "warning");
	line_add_why(&line, &why);
	writer_lock();
	writer_add_now(&line);
	writer_unlock();
}

#define CONNECTION(name, accepts)                                       \
	EXPORTED int rdma_##name(struct rdma_cm_id *id,                 \
				 struct rdma_conn_param *param)         \
	{                                                               \
		REAL(rdma_##name, "RDMACM_1.0", -1);                    \
		unsigned int len = param ? param->private_data_len : 0; \
		struct cm_call call;                                    \
		bool again;                                             \
		int rc;                                                 \
		call_begin(&call, "rdma_" #name);                       \
		if (call.on && (accepts))                               \
			warn_without_qp(id, param);                     \
		rc = real(id, param);                                   \
		if (!call_returned(&call, "rdma_" #name, rc))           \
			return rc;                                      \
		again = done_before(id, accepts, !rc);                  \
		EXPLAIN_CALL(&call, #name, again, len, false);          \
		add_param(&call.event.line, param);                     \
		call_end(&call, id);                                    \
		return rc;                                              \
	}
CONNECTION(connect, false)
CONNECTION(accept, true)

/* ---- 事件 ----------------------------------------------------------------- */

/* CONNECT_REQUEST 的 ack 记在听的那个 id 上。*/
static const void *owner_of(const struct rdma_cm_event *event)
{
	return event->listen_id ? event->listen_id : event->id;
}

static void record_event(struct cm_call *call,
			 const struct rdma_cm_event *event)
{
	struct explanation why = explain_cm_event(event->event, event->status);
	const char *name = cm_event_name(event->event);
	struct cm_id *known;

	LINE_TEXT(&call->event.line, "op", name);
	LINE_NUMBER(&call->event.line, "cm_status", event->status);
	if (why.id)
		event_explain(&call->event, why,
			      "rdma_get_cm_event(): %s, status %d", name,
			      event->status);
	writer_lock();
	known = know_id(owner_of(event));
	if (known)
		known->unacked++;
	add_id(&call->event.line, event->id);
	event_end(&call->event);
}

EXPORTED int rdma_get_cm_event(struct rdma_event_channel *channel,
			       struct rdma_cm_event **event)
{
	REAL(rdma_get_cm_event, "RDMACM_1.0", -1);
	struct cm_call call;
	int rc;

	call_begin(&call, "rdma_get_cm_event");
	rc = real(channel, event);
	if (!call_returned(&call, "rdma_event", rc))
		return rc;
	if (rc) {
		event_drop(&call.event);
		return rc;
	}
	record_event(&call, *event);
	return rc;
}

EXPORTED int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	REAL(rdma_ack_cm_event, "RDMACM_1.0", -1);
	struct cm_id *known;

	if (event && !recorder_inside && recorder_ready()) {
		writer_lock();
		known = know_id(owner_of(event));
		if (known && known->unacked)
			known->unacked--;
		writer_unlock();
	}
	return real(event);
}

/* 别的线程也许正要 ack，所以只是警告；真的没有返回，报告才算它是原因。*/
static void warn_unacked(const void *id)
{
	struct explanation why;
	const struct cm_id *known;
	struct line line;

	writer_lock();
	known = know_id(id);
	if (known && known->unacked) {
		why = explain_cm_unacked(known->unacked);
		line_start(&line, "warning");
		LINE_NUMBER(&line, "cm_id", known->number);
		line_add_why(&line, &why);
		writer_add_now(&line);
	}
	writer_unlock();
}

EXPORTED int rdma_destroy_id(struct rdma_cm_id *id)
{
	REAL(rdma_destroy_id, "RDMACM_1.0", -1);
	struct cm_call call;
	struct cm_id *known;
	int rc;

	call_begin(&call, "rdma_destroy_id");
	if (call.on)
		warn_unacked(id);
	rc = real(id);
	if (!call_returned(&call, "rdma_destroy_id", rc))
		return rc;
	EXPLAIN_CALL(&call, "destroy_id", false, 0, false);
	writer_lock();
	known = add_id(&call.event.line, id);
	if (known)
		*known = (struct cm_id){ 0 };
	event_end(&call.event);
	return rc;
}

// SPDX-License-Identifier: MIT
/*
 * cm.c —— librdmacm：连接怎样建立、事件有没有 ack
 *
 * 它里面的 ibv_modify_qp、ibv_create_qp 早已记下；这里补上的是为什么没有连上：被拒绝、没有
 * 人 accept、private data 太长、事件没有 ack 而 rdma_destroy_id 永远不返回。
 */
#include "event.h"
#include "hooks.h"
#include "objects.h"
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

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *init);
int rdma_destroy_id(struct rdma_cm_id *id);
int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event);
int rdma_ack_cm_event(struct rdma_cm_event *event);

/* 内核或 librdmacm 让再等等，不是失败。*/
static int real_error(int rc)
{
	return !rc || errno == EINPROGRESS || errno == EAGAIN || errno == EINTR
		       ? 0
		       : errno;
}

/* 它们自己也调用 libibverbs，那些照样要记，不能挡在外面。*/
#define RECORD_CM(event, name, rc, call)               \
	do {                                           \
		if (!event_begin(event, name))         \
			return call;                   \
		recorder_inside--;                     \
		rc = call;                             \
		recorder_inside++;                     \
		event_returned(event, real_error(rc)); \
	} while (0)

static void end(struct event *e, const struct rdma_cm_id *id)
{
	writer_lock();
	object_add(OBJECT_CM_ID, id, NULL);
	writer_unlock();
	event_ends_of(e, OBJECT_CM_ID, id);
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

#define EXPLAIN_CALL(e, name, again, len, foreign)                           \
	EXPLAIN_ERR(e, explain_cm_call(name, (e)->err, again, len, foreign), \
		    "rdma_%s()", name)

/* 除了地址（没有的是 NULL），没有别的可说的调用。*/
#define PLAIN(name, params, address, ...)                            \
	int rdma_##name params;                                      \
	EXPORTED int rdma_##name params                              \
	{                                                            \
		REAL(rdma_##name, "RDMACM_1.0", -1);                 \
		struct event e;                                      \
		int rc;                                              \
		RECORD_CM(&e, "rdma_" #name, rc, real(__VA_ARGS__)); \
		add_address(&e.line, address);                       \
		EXPLAIN_CALL(&e, #name, false, 0, false);            \
		end(&e, id);                                         \
		return rc;                                           \
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
	struct event e;
	int rc;

	RECORD_CM(&e, "rdma_create_qp", rc, real(id, pd, init));
	if (!rc) { /* ibv_create_qp 已经记下 */
		event_drop(&e);
		return 0;
	}
	EXPLAIN_CALL(&e, "create_qp", false, 0, pd && pd->context != id->verbs);
	end(&e, id);
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

/* 这个 id 早先连过（或接受过）没有；这一次成功了就记下。*/
static bool done_before(const void *id, bool succeeded)
{
	struct object *object;
	bool before = false;

	writer_lock();
	object = object_add(OBJECT_CM_ID, id, NULL);
	if (object) {
		before = object->connected;
		object->connected = before || succeeded;
	}
	writer_unlock();
	return before;
}

static void warn_without_qp(const struct rdma_cm_id *id,
			    const struct rdma_conn_param *param)
{
	struct explanation why;
	struct line line;

	if (id->qp || (param && param->qp_num) || recorder_inside ||
	    !recorder_ready())
		return;
	why = explain_cm_without_qp();
	line_start(&line, "warning");
	line_add_why(&line, &why);
	writer_put(&line);
}

#define CONNECTION(name, accepts)                                       \
	int rdma_##name(struct rdma_cm_id *, struct rdma_conn_param *); \
	EXPORTED int rdma_##name(struct rdma_cm_id *id,                 \
				 struct rdma_conn_param *param)         \
	{                                                               \
		REAL(rdma_##name, "RDMACM_1.0", -1);                    \
		unsigned int len = param ? param->private_data_len : 0; \
		struct event e;                                         \
		bool again;                                             \
		int rc;                                                 \
		if (accepts)                                            \
			warn_without_qp(id, param);                     \
		RECORD_CM(&e, "rdma_" #name, rc, real(id, param));      \
		again = done_before(id, !rc);                           \
		EXPLAIN_CALL(&e, #name, again, len, false);             \
		add_param(&e.line, param);                              \
		end(&e, id);                                            \
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

EXPORTED int rdma_get_cm_event(struct rdma_event_channel *channel,
			       struct rdma_cm_event **event)
{
	REAL(rdma_get_cm_event, "RDMACM_1.0", -1);
	struct explanation why;
	struct object *owner;
	const char *name;
	struct event e;
	int rc;

	RECORD_CM(&e, "rdma_get_cm_event", rc, real(channel, event));
	if (rc) {
		event_drop(&e);
		return rc;
	}
	name = cm_event_name((*event)->event);
	line_start(&e.line, "rdma_event");
	LINE_TEXT(&e.line, "op", name);
	LINE_NUMBER(&e.line, "cm_status", (*event)->status);
	why = explain_cm_event((*event)->event, (*event)->status);
	if (why.id)
		event_explain(&e, why, "rdma_get_cm_event(): %s, status %d",
			      name, (*event)->status);
	writer_lock();
	owner = object_add(OBJECT_CM_ID, owner_of(*event), NULL);
	if (owner)
		owner->events_got++;
	writer_unlock();
	end(&e, (*event)->id);
	return 0;
}

EXPORTED int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	REAL(rdma_ack_cm_event, "RDMACM_1.0", -1);
	struct object *owner;

	if (event && !recorder_inside && recorder_ready()) {
		writer_lock();
		owner = object_find(OBJECT_CM_ID, owner_of(event));
		if (owner && owner->events_acked < owner->events_got)
			owner->events_acked++;
		writer_unlock();
	}
	return real(event);
}

EXPORTED int rdma_destroy_id(struct rdma_cm_id *id)
{
	REAL(rdma_destroy_id, "RDMACM_1.0", -1);
	struct event e;
	int rc;

	if (!recorder_inside)
		warn_unacked(OBJECT_CM_ID, id);
	RECORD_CM(&e, "rdma_destroy_id", rc, real(id));
	EXPLAIN_CALL(&e, "destroy_id", false, 0, false);
	end(&e, id);
	writer_lock();
	object_free(object_detach(OBJECT_CM_ID, id));
	writer_unlock();
	return rc;
}

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
#include "ring.h"
#include "writer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
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

struct rdma_addrinfo {
	int flags, family, qp_type, port_space;
	unsigned int src_len, dst_len;
	struct sockaddr *src, *dst;
};
#define RAI_PASSIVE 1

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

/* 返回 private data 有多长。*/
static unsigned int add_param(struct line *line,
			      const struct rdma_conn_param *param)
{
	if (!param)
		return 0;
	LINE_NUMBER(line, "private_data_len", param->private_data_len);
	LINE_NUMBER(line, "responder_resources", param->responder_resources);
	LINE_NUMBER(line, "initiator_depth", param->initiator_depth);
	return param->private_data_len;
}

static void warn_without_qp(const struct rdma_cm_id *id,
			    const struct rdma_conn_param *param)
{
	if (!id->qp && !(param && param->qp_num))
		event_warn(OBJECT_CM_ID, NULL, explain_cm_without_qp());
}

/* 没有设备的 id：librdmacm 不检查就去读 id->verbs，崩溃在里面。*/
static void warn_unresolved(const struct rdma_cm_id *id, const char *call)
{
	if (id && !id->verbs)
		event_warn(OBJECT_CM_ID, id,
			   explain_cm_call(call, EINVAL, false, 0, false));
}

/* 除了 @say，没有别的可说的调用。*/
#define PLAIN(name, params, of, say, ...)                            \
	int rdma_##name params;                                      \
	EXPORTED int rdma_##name params                              \
	{                                                            \
		REAL(rdma_##name, "RDMACM_1.0", -1);                 \
		unsigned int len = 0;                                \
		struct event e;                                      \
		int rc;                                              \
		RECORD_CM(&e, "rdma_" #name, rc, real(__VA_ARGS__)); \
		say;                                                 \
		EXPLAIN_CALL(&e, #name, false, len, false);          \
		end(&e, of);                                         \
		return rc;                                           \
	}
PLAIN(create_id,
      (struct rdma_event_channel * channel, struct rdma_cm_id **id,
       void *context, int space),
      rc ? NULL : *id, LINE_HEX(&e.line, "events", (uintptr_t)channel), channel,
      id, context, space)
PLAIN(create_ep,
      (struct rdma_cm_id * *id, struct rdma_addrinfo *info, struct ibv_pd *pd,
       struct ibv_qp_init_attr *init),
      rc ? NULL : *id,
      add_address(&e.line, info->flags &RAI_PASSIVE ? info->src : info->dst),
      id, info, pd, init)
PLAIN(migrate_id, (struct rdma_cm_id * id, struct rdma_event_channel *channel),
      id, LINE_HEX(&e.line, "events", (uintptr_t)channel),
      (warn_unacked(OBJECT_CM_ID, id), id), channel)
PLAIN(join_multicast,
      (struct rdma_cm_id * id, struct sockaddr *addr, void *context), id,
      add_address(&e.line, addr), id, addr, context)
PLAIN(bind_addr, (struct rdma_cm_id * id, struct sockaddr *addr), id,
      add_address(&e.line, addr), id, addr)
PLAIN(resolve_addr,
      (struct rdma_cm_id * id, struct sockaddr *src, struct sockaddr *dst,
       int timeout_ms),
      id, add_address(&e.line, dst), id, src, dst, timeout_ms)
PLAIN(listen, (struct rdma_cm_id * id, int backlog), id, , id, backlog)
PLAIN(resolve_route, (struct rdma_cm_id * id, int timeout_ms), id, ,
      (warn_unresolved(id, "resolve_route"), id), timeout_ms)
PLAIN(disconnect, (struct rdma_cm_id * id), id, , id)
PLAIN(reject, (struct rdma_cm_id * id, const void *data, uint8_t size), id, ,
      id, data, size)
PLAIN(connect, (struct rdma_cm_id * id, struct rdma_conn_param *param), id,
      len = add_param(&e.line, param), id, param)
PLAIN(accept, (struct rdma_cm_id * id, struct rdma_conn_param *param), id,
      (warn_without_qp(id, param), len = add_param(&e.line, param)),
      (warn_unresolved(id, "accept"), id), param)

EXPORTED int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			    struct ibv_qp_init_attr *init)
{
	REAL(rdma_create_qp, "RDMACM_1.0", -1);
	struct event e;
	int rc;

	RECORD_CM(&e, "rdma_create_qp", rc,
		  real((pd ? (void)0 : warn_unresolved(id, "create_qp"), id),
		       pd, init));
	if (!rc) { /* ibv_create_qp 已经记下 */
		event_drop(&e);
		return 0;
	}
	EXPLAIN_CALL(&e, "create_qp", id->qp, 0,
		     pd && pd->context != id->verbs);
	end(&e, id);
	return rc;
}

/* 没有收到请求就返回的；收到的，是它里面的 rdma_get_cm_event 记下的。*/
int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id);
EXPORTED int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	REAL(rdma_get_request, "RDMACM_1.0", -1);
	int rc = real(listen, id);
	struct event e;

	if (!real_error(rc) || !event_begin(&e, "rdma_get_request"))
		return rc;
	event_returned(&e, errno);
	EXPLAIN_CALL(&e, "get_request", false, 0, false);
	end(&e, listen);
	return rc;
}

int rdma_getaddrinfo(const char *node, const char *service,
		     const struct rdma_addrinfo *hints,
		     struct rdma_addrinfo **res);
EXPORTED int rdma_getaddrinfo(const char *node, const char *service,
			      const struct rdma_addrinfo *hints,
			      struct rdma_addrinfo **res)
{
	REAL(rdma_getaddrinfo, "RDMACM_1.0", -1);
	int rc = real(node, service, hints, res);
	struct event e;

	if (!rc || !event_begin(&e, "rdma_getaddrinfo"))
		return rc;
	event_explain(&e,
		      because("cm-name", "%s",
			      rc == -1 ? strerror(errno) : gai_strerror(rc)),
		      "rdma_getaddrinfo(%s, %s)", node ? node : "",
		      service ? service : "");
	writer_lock();
	event_end(&e);
	return rc;
}

/* ---- 事件 ----------------------------------------------------------------- */

/* CONNECT_REQUEST 的 ack 记在听的那个 id 上。*/
static const void *owner_of(const struct rdma_cm_event *event)
{
	return event->listen_id ? event->listen_id : event->id;
}

/* 停在这里时，要说得出在等哪个 channel。*/
EXPORTED int rdma_get_cm_event(struct rdma_event_channel *channel,
			       struct rdma_cm_event **event)
{
	REAL(rdma_get_cm_event, "RDMACM_1.0", -1);
	struct explanation why;
	struct object *owner;
	const char *name;
	struct event e;
	int rc;

	if (recorder_inside || !recorder_ready())
		return real(channel, event);
	ring_sleeps(ring_mine(), channel);
	RECORD_CM(&e, "rdma_get_cm_event", rc, real(channel, event));
	ring_sleeps(ring_mine(), NULL);
	if (rc && !e.err) {
		event_drop(&e);
		warn_woken("rdma_get_cm_event");
		return rc;
	}
	line_start(&e.line, "rdma_event");
	LINE_HEX(&e.line, "events", (uintptr_t)channel);
	EXPLAIN_CALL(&e, "get_cm_event", false, 0, false);
	if (rc) {
		end(&e, NULL);
		return rc;
	}
	name = cm_event_name((*event)->event);
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

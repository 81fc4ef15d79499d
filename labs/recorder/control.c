// SPDX-License-Identifier: MIT
/*
 * control.c —— 控制路径：device、PD、CQ、SRQ、AH、事件（MR 在 mr.c）
 *
 * 每个函数都与 libibverbs 里的同名同版本（qptrace.map），先调真的，再记一行。
 * errno、返回值、参数原样交还：程序看不出中间有人。
 */
#include "base/verbs_names.h"
#include "event.h"
#include "format.h"
#include "hooks.h"
#include "objects.h"
#include "ring.h"
#include "writer.h"

#include <errno.h>

#undef ibv_get_device_list

static const char *device_of(const struct ibv_context *context)
{
	return context && context->device ? context->device->name : "?";
}

/* Takes the lock. */
static void add_object(struct event *e, enum object_kind kind,
		       const void *pointer, struct ibv_context *context)
{
	writer_lock();
	object_add(kind, pointer, context);
	line_add_object(&e->line, kind, pointer);
}

/* ---- device --------------------------------------------------------------- */

EXPORTED struct ibv_device **ibv_get_device_list(int *num_devices)
{
	REAL(ibv_get_device_list, "IBVERBS_1.1", NULL);
	struct ibv_device **list;
	struct event e;
	int count = 0;

	if (!event_begin(&e, "get_device_list"))
		return real(num_devices);
	list = real(&count);
	event_made(&e, list);
	if (num_devices)
		*num_devices = count;
	LINE_NUMBER(&e.line, "count", count);
	EXPLAIN_ERR(&e, explain_device_list(e.err), "ibv_get_device_list()");
	if (!e.err && !count)
		event_explain(&e, explain_device_list(0),
			      "ibv_get_device_list() finds no device");
	writer_lock();
	event_end(&e);
	return list;
}

/* 程序多半就此打住；用不着这个 port 的，也就没有什么。*/
static void warn_of_port(struct ibv_context *context, uint8_t port)
{
	struct explanation why = explain_port(context, port);
	struct line line;

	line_start(&line, "warning");
	LINE_TEXT(&line, "dev", device_of(context));
	LINE_NUMBER(&line, "port", port);
	line_add_why(&line, &why);
	writer_put(&line);
}

static void record_ports(struct ibv_context *context, uint32_t id)
{
	static const char *const states[] = { "NOP",   "DOWN",	 "INIT",
					      "ARMED", "ACTIVE", "DEFER" };
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct line line;

	if (ibv_query_device(context, &device))
		return;
	for (uint8_t i = 1; i <= device.phys_port_cnt; i++) {
		if (ibv_query_port(context, i, &port))
			continue;
		line_start(&line, "port");
		LINE_NUMBER(&line, "device", id);
		LINE_TEXT(&line, "dev", device_of(context));
		LINE_NUMBER(&line, "port", i);
		LINE_TEXT(&line, "state",
			  (unsigned int)port.state < 6 ? states[port.state]
						       : "UNKNOWN");
		LINE_TEXT(&line, "link",
			  port.link_layer == IBV_LINK_LAYER_ETHERNET
				  ? "Ethernet"
				  : "InfiniBand");
		LINE_NUMBER(&line, "active_mtu", 128u << port.active_mtu);
		LINE_NUMBER(&line, "lid", port.lid);
		writer_put(&line);
		if (port.state != IBV_PORT_ACTIVE)
			warn_of_port(context, i);
	}
}

static void record_device(struct event *e, struct ibv_context *context,
			  const char *name)
{
	uint32_t id = 0;

	writer_lock();
	if (context) {
		object_add(OBJECT_CONTEXT, context, context);
		id = object_id(OBJECT_CONTEXT, context);
		hook_context(context);
	}
	LINE_NUMBER(&e->line, "device", id);
	LINE_TEXT(&e->line, "dev", name);
	if (context)
		LINE_TEXT(&e->line, "node", context->device->dev_name);
	recorder_inside++;
	event_end(e);
	if (context)
		record_ports(context, id);
	recorder_inside--;
	errno = e->saved_errno;
}

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	REAL(ibv_open_device, "IBVERBS_1.1", NULL);
	struct ibv_context *context;
	struct event e;

	RECORD_MADE(&e, "open_device", context, real(device));
	EXPLAIN_ERR(&e, explain_open_device(e.err), "ibv_open_device(%s)",
		    device->name);
	record_device(&e, context, device->name);
	return context;
}

EXPORTED struct ibv_context *ibv_import_device(int cmd_fd)
{
	REAL(ibv_import_device, "IBVERBS_1.10", NULL);
	struct ibv_context *context;
	struct event e;

	RECORD_MADE(&e, "import_device", context, real(cmd_fd));
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_import_device(fd %d)", cmd_fd);
	record_device(&e, context, device_of(context));
	return context;
}

/*
 * 没有经过 ibv_open_device 的 context（provider 自己的 *dv_open_device）：在第一次
 * 用到时补上。
 */
static void notice(struct ibv_context *context)
{
	struct event e;
	bool known;

	if (!event_begin(&e, "open_device"))
		return;
	writer_lock();
	known = object_find(OBJECT_CONTEXT, context) != NULL;
	writer_unlock();
	if (known) {
		event_drop(&e);
		return;
	}
	record_device(&e, context, device_of(context));
}

EXPORTED int ibv_close_device(struct ibv_context *context)
{
	REAL(ibv_close_device, "IBVERBS_1.1", -1);
	struct event e;
	struct object *object;
	int rc;

	if (!event_begin(&e, "close_device"))
		return real(context);
	LINE_TEXT(&e.line, "dev", device_of(context));
	writer_lock();
	line_add_object(&e.line, OBJECT_CONTEXT, context);
	object = object_detach(OBJECT_CONTEXT, context);
	unhook_context(context);
	writer_unlock();
	rc = real(context);
	event_returned(&e, rc ? errno : 0);
	writer_lock();
	if (rc) {
		object_attach(object);
		hook_context(context);
	} else {
		object_free(object);
	}
	event_end(&e);
	return rc;
}

/* ---- 拆 ------------------------------------------------------------------- */

static struct object *forget(struct event *e, enum object_kind kind,
			     const void *pointer)
{
	struct object *object;

	writer_lock();
	line_add_object(&e->line, kind, pointer);
	object = object_detach(kind, pointer);
	if (object && kind == OBJECT_QP)
		LINE_NUMBER(&e->line, "qpn", object->qpn);
	writer_unlock();
	return object;
}

static void forgotten(struct event *e, struct object *object, const char *call)
{
	EXPLAIN_ERR(e, explain_destroy(e->err), "%s()", call);
	writer_lock();
	if (e->err)
		object_attach(object);
	else
		object_free(object);
	event_end(e);
}

/*
 * ibv_destroy_cq 等到取走的事件都 ack 了才返回：数目不对，就永远不返回。此刻别的线程也许正要
 * ack，所以只是警告；它真的没有返回，报告才算是原因。
 */
static void count_acks(const struct ibv_cq *cq)
{
	const struct object *object;
	struct explanation why;
	struct line line;

	writer_lock();
	object = object_find(OBJECT_CQ, cq);
	if (object && object->events_got != object->events_acked) {
		why = explain_unacked(object->events_got, object->events_acked);
		line_start(&line, "warning");
		line_add_object(&line, OBJECT_CQ, cq);
		line_add_why(&line, &why);
		writer_add_now(&line);
	}
	writer_unlock();
}

/*
 * 这些都返回错误码本身；@before 在真的调用之前看一眼，成功时 @done 收拾快路径上的指针；
 * (void)：用不着。
 */
#define DESTROY(call, version, kind, type, before, done)      \
	EXPORTED int ibv_##call(struct type *pointer)         \
	{                                                     \
		REAL(ibv_##call, "IBVERBS_" version, ENOSYS); \
		struct object *object;                        \
		struct event e;                               \
		int err;                                      \
		if (!event_begin(&e, #call))                  \
			return real(pointer);                 \
		before(pointer);                              \
		object = forget(&e, OBJECT_##kind, pointer);  \
		err = real(pointer);                          \
		event_returned(&e, err);                      \
		if (!err)                                     \
			done(pointer);                        \
		forgotten(&e, object, "ibv_" #call);          \
		return err;                                   \
	}
DESTROY(dealloc_pd, "1.1", PD, ibv_pd, (void), (void))
DESTROY(dereg_mr, "1.1", MR, ibv_mr, (void), (void))
DESTROY(destroy_comp_channel, "1.0", CHANNEL, ibv_comp_channel, (void), (void))
DESTROY(destroy_cq, "1.1", CQ, ibv_cq, count_acks, unhook)
DESTROY(destroy_srq, "1.1", SRQ, ibv_srq, (void), (void))
DESTROY(destroy_ah, "1.1", AH, ibv_ah, (void), (void))
DESTROY(destroy_qp, "1.1", QP, ibv_qp, (void), unhook)

/* ---- PD ------------------------------------------------------------------- */

EXPORTED struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	REAL(ibv_alloc_pd, "IBVERBS_1.1", NULL);
	struct ibv_pd *pd;
	struct event e;

	notice(context);
	RECORD_MADE(&e, "alloc_pd", pd, real(context));
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_alloc_pd(%s)", device_of(context));
	add_object(&e, OBJECT_PD, pd, context);
	line_add_object(&e.line, OBJECT_CONTEXT, context);
	event_end(&e);
	return pd;
}

/* ---- channel 与 CQ -------------------------------------------------------- */

EXPORTED struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *context)
{
	REAL(ibv_create_comp_channel, "IBVERBS_1.0", NULL);
	struct ibv_comp_channel *channel;
	struct event e;

	RECORD_MADE(&e, "create_comp_channel", channel, real(context));
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_create_comp_channel(%s)",
		    device_of(context));
	add_object(&e, OBJECT_CHANNEL, channel, context);
	if (channel)
		LINE_NUMBER(&e.line, "fd", channel->fd);
	event_end(&e);
	return channel;
}

EXPORTED struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
				      void *cq_context,
				      struct ibv_comp_channel *channel,
				      int comp_vector)
{
	REAL(ibv_create_cq, "IBVERBS_1.1", NULL);
	struct ibv_cq *cq;
	struct event e;

	notice(context);
	RECORD_MADE(&e, "create_cq", cq,
		    real(context, cqe, cq_context, channel, comp_vector));
	EXPLAIN_ERR(&e,
		    explain_create_cq_call(context, cqe, comp_vector, e.err),
		    "ibv_create_cq(%s, cqe %d, comp_vector %d)",
		    device_of(context), cqe, comp_vector);
	record_cq(&e, cq, context, cqe);
	return cq;
}

EXPORTED int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	REAL(ibv_resize_cq, "IBVERBS_1.1", ENOSYS);
	struct event e;
	int err;

	RECORD_ERR(&e, "resize_cq", err, real(cq, cqe));
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_resize_cq(%d)", cqe);
	writer_lock();
	line_add_object(&e.line, OBJECT_CQ, cq);
	LINE_NUMBER(&e.line, "cqe_asked", cqe);
	LINE_NUMBER(&e.line, "cqe", cq->cqe);
	event_end(&e);
	return err;
}

/* 取了多少、ack 了多少，ibv_destroy_cq 时要相等。快路径：多半不用锁就找得到。*/
static void count_events(const struct ibv_cq *cq, unsigned int got,
			 unsigned int acked)
{
	struct object *object = object_find(OBJECT_CQ, cq);
	struct ring *ring = ring_mine();

	if (!object) {
		writer_lock();
		object = object_find(OBJECT_CQ, cq);
		writer_unlock();
	}
	if (object)
		atomic_fetch_add_explicit(got ? &object->events_got
					      : &object->events_acked,
					  got + acked, memory_order_relaxed);
	ring_add(ring, got ? RECORD_CQ_EVENT : RECORD_ACK, cq, ring_stamp())
		->length = acked;
	ring_publish(ring);
}

static bool counts_events(void)
{
	return !recorder_inside && !recorder.control_only && recorder_ready();
}

/*
 * 程序多半就睡在这里。记下在哪个 channel 上睡，卡住时才说得出“有一个线程在等事件，
 * 而 CQ 没有 arm”。事件本身走环：每个 completion 一次，也算快路径。
 */
EXPORTED int ibv_get_cq_event(struct ibv_comp_channel *channel,
			      struct ibv_cq **cq, void **cq_context)
{
	REAL(ibv_get_cq_event, "IBVERBS_1.1", -1);
	int rc;

	if (!counts_events())
		return real(channel, cq, cq_context);
	ring_sleeps(ring_mine(), channel);
	rc = real(channel, cq, cq_context);
	ring_sleeps(ring_mine(), NULL);
	if (!rc)
		count_events(*cq, 1, 0);
	return rc;
}

EXPORTED void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	REAL(ibv_ack_cq_events, "IBVERBS_1.1", );

	if (counts_events())
		count_events(cq, 0, nevents);
	real(cq, nevents);
}

/* ---- SRQ ------------------------------------------------------------------ */

EXPORTED struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
					struct ibv_srq_init_attr *init)
{
	REAL(ibv_create_srq, "IBVERBS_1.1", NULL);
	struct ibv_srq *srq;
	struct event e;

	RECORD_MADE(&e, "create_srq", srq, real(pd, init));
	EXPLAIN_ERR(&e,
		    explain_create_srq(pd->context, init->attr.max_wr,
				       init->attr.max_sge, e.err),
		    "ibv_create_srq(max_wr %u, max_sge %u)", init->attr.max_wr,
		    init->attr.max_sge);
	record_srq(&e, srq, pd->context, &init->attr);
	return srq;
}

EXPORTED int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
			    int mask)
{
	REAL(ibv_modify_srq, "IBVERBS_1.1", ENOSYS);
	struct event e;
	int err;

	RECORD_ERR(&e, "modify_srq", err, real(srq, attr, mask));
	EXPLAIN_ERR(&e, UNKNOWN,
		    "ibv_modify_srq(max_wr %u, limit %u, mask 0x%x)",
		    attr->max_wr, attr->srq_limit, (unsigned int)mask);
	writer_lock();
	line_add_object(&e.line, OBJECT_SRQ, srq);
	if (mask & IBV_SRQ_MAX_WR)
		LINE_NUMBER(&e.line, "max_wr", attr->max_wr);
	if (mask & IBV_SRQ_LIMIT)
		LINE_NUMBER(&e.line, "limit", attr->srq_limit);
	event_end(&e);
	return err;
}

/* ---- AH 与 multicast ------------------------------------------------------ */

EXPORTED struct ibv_ah *ibv_create_ah(struct ibv_pd *pd,
				      struct ibv_ah_attr *attr)
{
	REAL(ibv_create_ah, "IBVERBS_1.1", NULL);
	char gid[46];
	struct ibv_ah *ah;
	struct event e;

	RECORD_MADE(&e, "create_ah", ah, real(pd, attr));
	gid_text(gid, attr->grh.dgid.raw);
	LINE_NUMBER(&e.line, "is_global", attr->is_global);
	LINE_NUMBER(&e.line, "sgid_index", attr->grh.sgid_index);
	LINE_TEXT(&e.line, "dgid", gid);
	LINE_NUMBER(&e.line, "port", attr->port_num);
	EXPLAIN_ERR(&e, explain_create_ah(pd, attr, e.err),
		    "ibv_create_ah(port %u, is_global %u, GID index "
		    "%u, to %s)",
		    attr->port_num, attr->is_global, attr->grh.sgid_index, gid);
	add_object(&e, OBJECT_AH, ah, pd->context);
	event_end(&e);
	return ah;
}

/* ---- 异步事件 ------------------------------------------------------------- */

static void add_element(struct line *line, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		line_add_object(line, OBJECT_CQ, event->element.cq);
		return;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		line_add_object(line, OBJECT_SRQ, event->element.srq);
		return;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		line_add_object(line, OBJECT_QP, event->element.qp);
		LINE_NUMBER(line, "qpn", event->element.qp->qp_num);
		return;
	default:
		LINE_NUMBER(line, "port", event->element.port_num);
	}
}

/* 其余的（换了地址、SQ 排空……）是消息，不是失败：只写进记录。*/
static bool is_bad_news(enum ibv_event_type type)
{
	return type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_QP_FATAL ||
	       type == IBV_EVENT_QP_REQ_ERR ||
	       type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_PORT_ERR ||
	       type == IBV_EVENT_DEVICE_FATAL;
}

EXPORTED int ibv_get_async_event(struct ibv_context *context,
				 struct ibv_async_event *event)
{
	REAL(ibv_get_async_event, "IBVERBS_1.1", -1);
	int rc = real(context, event);
	struct event e;

	if (rc || !event_begin(&e, "async_event"))
		return rc;
	LINE_TEXT(&e.line, "type", async_event_name(event->event_type));
	LINE_TEXT(&e.line, "dev", device_of(context));
	e.why = explain_async_event(event->event_type);
	if (is_bad_news(event->event_type))
		event_explain(&e, e.why, "asynchronous event %s of %s",
			      async_event_name(event->event_type),
			      device_of(context));
	writer_lock();
	add_element(&e.line, event);
	event_end(&e);
	return 0;
}

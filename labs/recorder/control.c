// SPDX-License-Identifier: MIT
/*
 * control.c —— 控制路径：device、PD、CQ、SRQ、AH、事件（MR 在 mr.c）
 *
 * 每个函数都与 libibverbs 里的同名同版本（qptrace.map），先调真的，再记一行。
 * errno、返回值、参数原样交还：程序看不出中间有人。
 */
#include "base/verbs_names.h"
#include "event.h"
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

/* It was made: the last of its event. */
static void made(struct event *e, enum object_kind kind, const void *pointer,
		 struct ibv_context *context)
{
	writer_lock();
	object_add(kind, pointer, context);
	writer_unlock();
	event_ends_of(e, kind, pointer);
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
	if (e.err || !count)
		event_explain(&e, explain_device_list(e.err),
			      "ibv_get_device_list()%s",
			      e.err ? "" : " finds no device");
	writer_lock();
	event_end(&e);
	return list;
}

/* 没有连上的 port：程序多半就此打住；用不着它的，也就没有什么，所以是警告。*/
static void record_port(struct ibv_context *context, uint8_t number)
{
	static const char *const states[] = { "NOP",   "DOWN",	 "INIT",
					      "ARMED", "ACTIVE", "DEFER" };
	struct ibv_port_attr port;
	struct line line;

	if (ibv_query_port(context, number, &port))
		return;
	line_start(&line, "port");
	LINE_TEXT(&line, "dev", device_of(context));
	LINE_NUMBER(&line, "port", number);
	LINE_TEXT(&line, "state", states[port.state % 6]);
	LINE_NUMBER(&line, "active_mtu", 128u << port.active_mtu);
	writer_put(&line);
	if (port.state != IBV_PORT_ACTIVE)
		event_warn(OBJECT_CONTEXT, context,
			   explain_port(context, number));
}

static void record_device(struct event *e, struct ibv_context *context,
			  const char *name)
{
	struct ibv_device_attr attr;

	writer_lock();
	if (context) {
		object_add(OBJECT_CONTEXT, context, context);
		hook_context(context);
	}
	line_add_object(&e->line, OBJECT_CONTEXT, context);
	LINE_TEXT(&e->line, "dev", name);
	if (context)
		LINE_TEXT(&e->line, "node", context->device->dev_name);
	recorder_inside++;
	event_end(e);
	if (context && !ibv_query_device(context, &attr))
		for (uint8_t i = 1; i <= attr.phys_port_cnt; i++)
			record_port(context, i);
	recorder_inside--;
	errno = e->saved_errno;
}

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	MADE(struct ibv_context *, context, open_device, "1.1", device);
	EXPLAIN_ERR(&e, explain_open_device(e.err), "ibv_open_device(%s)",
		    device->name);
	record_device(&e, context, device->name);
	return context;
}

/*
 * 没有经过 ibv_open_device 的 context（ibv_import_device，provider 自己的 *dv_open_device）：
 * 在第一次用到时补上。
 */
static void notice(struct ibv_context *context)
{
	struct event e;
	bool known;

	writer_lock();
	known = object_find(OBJECT_CONTEXT, context) != NULL;
	writer_unlock();
	if (!known && event_begin(&e, "open_device"))
		record_device(&e, context, device_of(context));
}

EXPORTED int ibv_fork_init(void)
{
	REAL(ibv_fork_init, "IBVERBS_1.1", ENOSYS);
	struct event e;
	int err;

	RECORD_ERR(&e, "fork_init", err, real());
	EXPLAIN_ERR(&e, e.err == EINVAL ? because("fork-init-late") : UNKNOWN,
		    "ibv_fork_init()");
	event_ends_of(&e, OBJECT_CONTEXT, NULL);
	return err;
}

/* ---- 拆 ------------------------------------------------------------------- */

static struct object *forget(struct event *e, enum object_kind kind,
			     const void *pointer)
{
	struct object *object;

	warn_unacked(kind, pointer);
	writer_lock();
	line_add_object(&e->line, kind, pointer);
	object = object_detach(kind, pointer);
	if (object && kind == OBJECT_QP)
		LINE_NUMBER(&e->line, "qpn", object->qpn);
	writer_unlock();
	return object;
}

/* 真的拆了的，快路径上的指针也收拾掉。*/
static void forgotten(struct event *e, struct object *object, const char *call)
{
	EXPLAIN_ERR(e, explain_destroy(e->err), "%s()", call);
	writer_lock();
	if (e->err) {
		object_attach(object);
	} else {
		if (object)
			unhook(object->pointer);
		object_free(object);
	}
	event_end(e);
}

/* 这些都返回错误码本身。*/
#define DESTROY(call, version, kind, type)                    \
	EXPORTED int ibv_##call(struct type *pointer)         \
	{                                                     \
		REAL(ibv_##call, "IBVERBS_" version, ENOSYS); \
		struct object *object;                        \
		struct event e;                               \
		int err;                                      \
		if (!event_begin(&e, #call))                  \
			return real(pointer);                 \
		object = forget(&e, OBJECT_##kind, pointer);  \
		err = real(pointer);                          \
		event_returned(&e, err);                      \
		forgotten(&e, object, "ibv_" #call);          \
		return err;                                   \
	}
DESTROY(dealloc_pd, "1.1", PD, ibv_pd)
DESTROY(dereg_mr, "1.1", MR, ibv_mr)
DESTROY(destroy_comp_channel, "1.0", CHANNEL, ibv_comp_channel)
DESTROY(destroy_cq, "1.1", CQ, ibv_cq)
DESTROY(destroy_srq, "1.1", SRQ, ibv_srq)
DESTROY(destroy_ah, "1.1", AH, ibv_ah)
DESTROY(destroy_qp, "1.1", QP, ibv_qp)

EXPORTED int ibv_close_device(struct ibv_context *context)
{
	REAL(ibv_close_device, "IBVERBS_1.1", -1);
	struct object *object;
	struct event e;
	int rc;

	if (!event_begin(&e, "close_device"))
		return real(context);
	LINE_TEXT(&e.line, "dev", device_of(context));
	object = forget(&e, OBJECT_CONTEXT, context);
	unhook_context(context);
	rc = real(context);
	event_returned(&e, rc ? errno : 0);
	if (rc) {
		writer_lock();
		hook_context(context);
		writer_unlock();
	}
	forgotten(&e, object, "ibv_close_device");
	return rc;
}

/* ---- PD ------------------------------------------------------------------- */

EXPORTED struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	notice(context);
	MADE(struct ibv_pd *, pd, alloc_pd, "1.1", context);
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_alloc_pd(%s)", device_of(context));
	writer_lock();
	line_add_object(&e.line, OBJECT_CONTEXT, context);
	writer_unlock();
	made(&e, OBJECT_PD, pd, context);
	return pd;
}

/* ---- channel 与 CQ -------------------------------------------------------- */

EXPORTED struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *context)
{
	MADE(struct ibv_comp_channel *, channel, create_comp_channel, "1.0",
	     context);
	EXPLAIN_ERR(&e, UNKNOWN, "ibv_create_comp_channel(%s)",
		    device_of(context));
	if (channel)
		LINE_NUMBER(&e.line, "fd", channel->fd);
	made(&e, OBJECT_CHANNEL, channel, context);
	return channel;
}

EXPORTED struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
				      void *cq_context,
				      struct ibv_comp_channel *channel,
				      int comp_vector)
{
	notice(context);
	MADE(struct ibv_cq *, cq, create_cq, "1.1", context, cqe, cq_context,
	     channel, comp_vector);
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
	LINE_NUMBER(&e.line, "cqe_asked", cqe);
	LINE_NUMBER(&e.line, "cqe", cq->cqe);
	event_ends_of(&e, OBJECT_CQ, cq);
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
	else
		warn_woken("ibv_get_cq_event");
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
	MADE(struct ibv_srq *, srq, create_srq, "1.1", pd, init);
	EXPLAIN_ERR(&e,
		    explain_create_srq(pd->context, init->attr.max_wr,
				       init->attr.max_sge, e.err),
		    "ibv_create_srq(max_wr %u, max_sge %u)", init->attr.max_wr,
		    init->attr.max_sge);
	record_srq(&e, srq, pd, pd->context, &init->attr);
	return srq;
}

EXPORTED int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
			    int mask)
{
	REAL(ibv_modify_srq, "IBVERBS_1.1", ENOSYS);
	struct event e;
	int err;

	RECORD_ERR(&e, "modify_srq", err, real(srq, attr, mask));
	EXPLAIN_ERR(&e, explain_modify_srq(srq, attr, mask, e.err),
		    "ibv_modify_srq(max_wr %u, srq_limit %u, mask 0x%x)",
		    attr->max_wr, attr->srq_limit, (unsigned int)mask);
	event_ends_of(&e, OBJECT_SRQ, srq);
	return err;
}

/* ---- AH ------------------------------------------------------------------- */

EXPORTED struct ibv_ah *ibv_create_ah(struct ibv_pd *pd,
				      struct ibv_ah_attr *attr)
{
	MADE(struct ibv_ah *, ah, create_ah, "1.1", pd, attr);
	char gid[GID_TEXT_SIZE];

	gid_text(gid, attr->grh.dgid.raw);
	LINE_NUMBER(&e.line, "is_global", attr->is_global);
	LINE_NUMBER(&e.line, "sgid_index", attr->grh.sgid_index);
	LINE_TEXT(&e.line, "dgid", gid);
	LINE_NUMBER(&e.line, "port", attr->port_num);
	EXPLAIN_ERR(&e, explain_create_ah(pd, attr, e.err),
		    "ibv_create_ah(port %u, is_global %u, GID index "
		    "%u, to %s)",
		    attr->port_num, attr->is_global, attr->grh.sgid_index, gid);
	writer_lock();
	line_add_object(&e.line, OBJECT_PD, pd);
	writer_unlock();
	made(&e, OBJECT_AH, ah, pd->context);
	return ah;
}

/* ---- 异步事件 ------------------------------------------------------------- */

/* 有的（换了地址、SQ 排空……）是消息，不是坏消息：只写进记录。*/
#define EVENT(type, of, bad) [IBV_EVENT_##type] = { #type, OBJECT_##of, bad }
#define OBJECT_PORT	     OBJECT_KINDS
static const struct {
	const char *name;
	enum object_kind of;
	bool bad;
} events[] = {
	EVENT(CQ_ERR, CQ, true),
	EVENT(QP_FATAL, QP, true),
	EVENT(QP_REQ_ERR, QP, true),
	EVENT(QP_ACCESS_ERR, QP, true),
	EVENT(COMM_EST, QP, false),
	EVENT(SQ_DRAINED, QP, false),
	EVENT(PATH_MIG, QP, false),
	EVENT(PATH_MIG_ERR, QP, false),
	EVENT(DEVICE_FATAL, PORT, true),
	EVENT(PORT_ACTIVE, PORT, false),
	EVENT(PORT_ERR, PORT, true),
	EVENT(LID_CHANGE, PORT, false),
	EVENT(PKEY_CHANGE, PORT, false),
	EVENT(SM_CHANGE, PORT, false),
	EVENT(SRQ_ERR, SRQ, false),
	EVENT(SRQ_LIMIT_REACHED, SRQ, false),
	EVENT(QP_LAST_WQE_REACHED, QP, false),
	EVENT(CLIENT_REREGISTER, PORT, false),
	EVENT(GID_CHANGE, PORT, false),
	EVENT(WQ_FATAL, PORT, false),
};

/* 拆 CQ、QP、SRQ 的调用，也等它们的异步事件都 ack 了才返回。*/
static void count_async(const struct ibv_async_event *event, bool got)
{
	unsigned int type = event->event_type;
	struct object *object = NULL;

	writer_lock();
	if (type < sizeof(events) / sizeof(events[0]))
		object = object_find(events[type].of, event->element.qp);
	if (object)
		atomic_fetch_add(
			got ? &object->events_got : &object->events_acked, 1);
	writer_unlock();
}

EXPORTED int ibv_get_async_event(struct ibv_context *context,
				 struct ibv_async_event *event)
{
	REAL(ibv_get_async_event, "IBVERBS_1.1", -1);
	const char *name = "UNKNOWN";
	enum object_kind of = OBJECT_PORT;
	unsigned int type;
	struct event e;
	int rc;

	RECORD_ERR(&e, "get_async_event", rc, real(context, event));
	if (rc) {
		event_drop(&e);
		return rc;
	}
	line_start(&e.line, "async_event");
	e.stamp = e.end;
	e.end = 0;
	type = event->event_type;
	e.why = explain_async_event(event->event_type);
	if (type < sizeof(events) / sizeof(events[0])) {
		name = events[type].name;
		of = events[type].of;
		if (events[type].bad)
			event_explain(&e, e.why, "asynchronous event %s of %s",
				      name, device_of(context));
	}
	LINE_TEXT(&e.line, "type", name);
	LINE_TEXT(&e.line, "dev", device_of(context));
	if (of == OBJECT_PORT)
		LINE_NUMBER(&e.line, "port", event->element.port_num);
	if (of == OBJECT_QP)
		LINE_NUMBER(&e.line, "qpn", event->element.qp->qp_num);
	writer_lock();
	if (of != OBJECT_PORT) /* 是哪一种，指针都在同一处 */
		line_add_object(&e.line, of, event->element.qp);
	event_end(&e);
	count_async(event, true);
	return 0;
}

EXPORTED void ibv_ack_async_event(struct ibv_async_event *event)
{
	REAL(ibv_ack_async_event, "IBVERBS_1.1", );

	if (!recorder_inside && recorder_ready())
		count_async(event, false);
	real(event);
}

// SPDX-License-Identifier: MIT
/*
 * made.c —— 造出来的 QP、CQ、SRQ 各是一行：普通的调用与扩展的调用写得一样
 */
#include "event.h"
#include "explain/qp_table.h"
#include "file.h"
#include "hooks.h"
#include "objects.h"
#include "writer.h"

#include <errno.h>

void record_qp(struct event *e, struct ibv_qp *qp, const struct ibv_pd *pd,
	       const struct ibv_qp_init_attr *got,
	       const struct ibv_qp_cap *asked)
{
	struct line *line = &e->line;
	struct object *object;

	writer_lock();
	object = object_add(OBJECT_QP, qp, qp ? qp->context : NULL);
	if (object) {
		object->qpn = qp->qp_num;
		file_knows(false, qp->qp_num);
		line_add_object(line, OBJECT_QP, qp);
		LINE_NUMBER(line, "qpn", qp->qp_num);
		LINE_TEXT(line, "dev", qp->context->device->name);
	}
	LINE_TEXT(line, "type", qp_type_name(got->qp_type));
	line_add_object(line, OBJECT_PD, pd);
	line_add_object_as(line, "send_cq", OBJECT_CQ, got->send_cq);
	line_add_object_as(line, "recv_cq", OBJECT_CQ, got->recv_cq);
	if (got->srq)
		line_add_object(line, OBJECT_SRQ, got->srq);
	LINE_NUMBER(line, "sq_sig_all", got->sq_sig_all);
	LINE_NUMBER(line, "send_wr_asked", asked->max_send_wr);
	LINE_NUMBER(line, "recv_wr_asked", asked->max_recv_wr);
	LINE_NUMBER(line, "send_wr", got->cap.max_send_wr);
	LINE_NUMBER(line, "recv_wr", got->cap.max_recv_wr);
	LINE_NUMBER(line, "send_sge", got->cap.max_send_sge);
	LINE_NUMBER(line, "recv_sge", got->cap.max_recv_sge);
	LINE_NUMBER(line, "inline", got->cap.max_inline_data);
	event_end(e);
}

void record_cq(struct event *e, struct ibv_cq *cq, struct ibv_context *context,
	       int64_t asked)
{
	writer_lock();
	object_add(OBJECT_CQ, cq, context);
	line_add_object(&e->line, OBJECT_CQ, cq);
	line_add_object(&e->line, OBJECT_CONTEXT, context);
	LINE_NUMBER(&e->line, "cqe_asked", asked);
	if (cq) {
		LINE_NUMBER(&e->line, "cqe", cq->cqe);
		if (cq->channel)
			line_add_object(&e->line, OBJECT_CHANNEL, cq->channel);
	}
	event_end(e);
}

void record_srq(struct event *e, struct ibv_srq *srq, const struct ibv_pd *pd,
		struct ibv_context *context, const struct ibv_srq_attr *attr)
{
	writer_lock();
	object_add(OBJECT_SRQ, srq, context);
	line_add_object(&e->line, OBJECT_SRQ, srq);
	line_add_object(&e->line, OBJECT_PD, pd);
	line_add_object(&e->line, OBJECT_CONTEXT, context);
	LINE_NUMBER(&e->line, "max_wr", attr->max_wr);
	LINE_NUMBER(&e->line, "max_sge", attr->max_sge);
	event_end(e);
}

/* 信号打断的、fd 是 O_NONBLOCK 的：不是失败，可是程序也许当成失败。*/
void warn_woken(const char *call)
{
	static _Atomic int told;
	int err = errno;

	if ((err != EINTR && err != EAGAIN) || !recorder_ready() ||
	    atomic_exchange(&told, err) == err)
		return;
	event_warn(OBJECT_CONTEXT, NULL,
		   because(err == EINTR ? "wait-interrupted" : "wait-empty",
			   "%s", call));
	errno = err;
}

/* 此刻别的线程也许正要 ack，所以只是警告；它真的没有返回，报告才算是原因。*/
void warn_unacked(enum object_kind kind, const void *pointer)
{
	const struct object *object;
	uint64_t got, acked;

	if (!recorder_ready())
		return;
	writer_lock();
	object = object_find(kind, pointer);
	got = object ? object->events_got : 0;
	acked = object ? object->events_acked : 0;
	writer_unlock();
	if (got == acked)
		return;
	if (kind == OBJECT_CM_ID)
		event_warn(kind, pointer, explain_cm_unacked(got - acked));
	else if (kind == OBJECT_CQ)
		event_warn(kind, pointer, explain_unacked(got, acked));
	else
		event_warn(kind, pointer,
			   because("async-not-acked", "%s\t%ju\t%ju",
				   kind == OBJECT_QP ? "ibv_destroy_qp"
						     : "ibv_destroy_srq",
				   got, acked));
}

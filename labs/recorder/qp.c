// SPDX-License-Identifier: MIT
/*
 * qp.c —— QP 的一生：建、每一次 ibv_modify_qp、查
 *
 * 记录的中心是 modify_qp：从哪个状态到哪个状态、带了哪些位、每个值是多少、内核
 * 回了什么、花了多久（解析对端 MAC 要一秒的话，就看得见这一秒）。
 */
#include "event.h"
#include "explain/qp_table.h"
#include "file.h"
#include "format.h"
#include "hooks.h"
#include "objects.h"
#include "writer.h"

#include <errno.h>

#define MOST_WARNINGS 4

/* libibverbs 不看就去读 CQ：程序在里面崩溃，所以先说。*/
static void warn_of_no_cq(struct ibv_pd *pd,
			  const struct ibv_qp_init_attr *init)
{
	struct event e;

	if ((init->send_cq && init->recv_cq) ||
	    (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UC &&
	     init->qp_type != IBV_QPT_UD) ||
	    !event_begin(&e, "explain"))
		return;
	LINE_TEXT(&e.line, "about", "create_qp");
	event_explain(&e, explain_create_qp_call(pd, init, EINVAL),
		      "ibv_create_qp(%s, %s)", pd->context->device->name,
		      qp_type_name(init->qp_type));
	writer_lock();
	event_end(&e);
}

EXPORTED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd,
				      struct ibv_qp_init_attr *init)
{
	REAL(ibv_create_qp, "IBVERBS_1.1", NULL);
	struct ibv_qp_init_attr wanted = *init;
	const struct ibv_qp_cap asked = init->cap;
	struct ibv_qp *qp;
	struct event e;

	warn_of_no_cq(pd, init);
	RECORD_MADE(&e, "create_qp", qp, real(pd, init));
	EXPLAIN_ERR(&e, explain_create_qp_call(pd, &wanted, e.err),
		    "ibv_create_qp(%s, %s, %u send and %u receive "
		    "WRs, %u and %u SGEs, inline %u)",
		    pd->context->device->name, qp_type_name(init->qp_type),
		    asked.max_send_wr, asked.max_recv_wr, asked.max_send_sge,
		    asked.max_recv_sge, asked.max_inline_data);
	if (qp)
		hook_qp(qp);
	record_qp(&e, qp, pd, init, &asked);
	return qp;
}

/* 必须在真的调用之前：它一返回，别的线程可能已经 poll 到 flush 了。*/
static void expect_flush(const struct ibv_qp *qp,
			 const struct ibv_qp_attr *attr, int mask)
{
	struct object *object;

	if (!(mask & IBV_QP_STATE) || attr->qp_state != IBV_QPS_ERR)
		return;
	writer_lock();
	object = object_find(OBJECT_QP, qp);
	if (object)
		object->to_error = true;
	writer_unlock();
}

static void record_modify(struct event *e, struct ibv_qp *qp,
			  const struct ibv_qp_attr *attr, int mask)
{
	struct object *object;

	writer_lock();
	object = object_find(OBJECT_QP, qp);
	line_add_object(&e->line, OBJECT_QP, qp);
	if (!e->err && (mask & IBV_QP_DEST_QPN))
		file_knows(true, attr->dest_qp_num);
	if (object && !e->err && (mask & IBV_QP_STATE) &&
	    attr->qp_state == IBV_QPS_RESET)
		object->to_error = object->failed = false;
	event_end(e);
}

/*
 * 内核收下了、以后却会出事的值（rxe 上的 retry_cnt 7、颠倒的 QPN……）：只写进记录，
 * 不打扰程序的 stderr，因为多数时候什么也不会发生。
 */
static void record_warnings(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
			    int mask, enum ibv_qp_state before)
{
	struct explanation found[MOST_WARNINGS];
	int saved_errno = errno;
	struct line line;
	size_t n;

	recorder_inside++;
	n = explain_accepted(qp, attr, mask, before, found, MOST_WARNINGS);
	for (size_t i = 0; i < n; i++) {
		line_start(&line, "warning");
		LINE_NUMBER(&line, "qpn", qp->qp_num);
		line_add_why(&line, &found[i]);
		writer_lock();
		line_add_object(&line, OBJECT_QP, qp);
		writer_add_now(&line);
		writer_unlock();
	}
	recorder_inside--;
	errno = saved_errno;
}

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr,
			   int mask)
{
	REAL(ibv_modify_qp, "IBVERBS_1.1", ENOSYS);
	enum ibv_qp_state from = qp->state;
	bool moves = mask & IBV_QP_STATE;
	const char *to = moves ? qp_state_name(attr->qp_state) : NULL;
	char bits[256];
	struct event e;
	int err;

	if (!event_begin(&e, "modify_qp"))
		return real(qp, attr, mask);
	expect_flush(qp, attr, mask);
	err = real(qp, attr, mask);
	event_returned(&e, err);
	LINE_NUMBER(&e.line, "qpn", qp->qp_num);
	LINE_TEXT(&e.line, "from", qp_state_name(from));
	if (to)
		LINE_TEXT(&e.line, "to", to);
	qp_mask_text(bits, sizeof(bits), mask);
	LINE_TEXT(&e.line, "mask", bits);
	format_qp_attr(&e.line, qp, attr, mask);
	EXPLAIN_ERR(&e, explain_modify_qp(qp, attr, mask, err),
		    "ibv_modify_qp(QP %u of %s, %s -> %s, mask %s)", qp->qp_num,
		    qp->context->device->name, qp_state_name(from),
		    to ? to : "same", bits);
	record_modify(&e, qp, attr, mask);
	if (!err)
		record_warnings(qp, attr, mask, from);
	return err;
}

EXPORTED int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			  struct ibv_qp_init_attr *init)
{
	REAL(ibv_query_qp, "IBVERBS_1.1", ENOSYS);
	enum ibv_qp_state state = qp->state;
	struct event e;
	int err;

	/* 它是用户态的缓存，query 会刷新它：解释器偷看过之后要放回原样。*/
	if (recorder_inside) {
		err = real(qp, attr, mask, init);
		qp->state = state;
		return err;
	}
	RECORD_ERR(&e, "query_qp", err, real(qp, attr, mask, init));
	LINE_NUMBER(&e.line, "qpn", qp->qp_num);
	if (!err)
		LINE_TEXT(&e.line, "state", qp_state_name(attr->qp_state));
	else
		event_explain(&e, UNKNOWN, "ibv_query_qp(QP %u)", qp->qp_num);
	writer_lock();
	line_add_object(&e.line, OBJECT_QP, qp);
	event_end(&e);
	return err;
}

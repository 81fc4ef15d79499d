// SPDX-License-Identifier: MIT
/*
 * qp.c —— QP 的一生：建、每一次 ibv_modify_qp、查
 *
 * 记录的中心是 modify_qp：从哪个状态到哪个状态、带了哪些位、每个值是多少、内核
 * 回了什么、花了多久（解析对端 MAC 要一秒的话，就看得见这一秒）。
 */
#include "base/verbs_names.h"
#include "event.h"
#include "explain/qp_table.h"
#include "file.h"
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
	struct ibv_qp_init_attr wanted = *init;
	const struct ibv_qp_cap asked = init->cap;

	warn_of_no_cq(pd, init);
	MADE(struct ibv_qp *, qp, create_qp, "1.1", pd, init);
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

/* 属性里只有 sgid_index；对端看到的是槽里的 GID，所以把它也查出来。*/
static void format_av(struct line *line, struct ibv_qp *qp,
		      const struct ibv_ah_attr *ah)
{
	char text[GID_TEXT_SIZE];
	union ibv_gid mine;

	LINE_NUMBER(line, "is_global", ah->is_global);
	LINE_NUMBER(line, "ah_port", ah->port_num);
	if (!ah->is_global) {
		LINE_NUMBER(line, "dlid", ah->dlid);
		return;
	}
	LINE_NUMBER(line, "sgid_index", ah->grh.sgid_index);
	if (!ibv_query_gid(qp->context, ah->port_num, ah->grh.sgid_index,
			   &mine))
		LINE_TEXT(line, "sgid", gid_text(text, mine.raw));
	LINE_TEXT(line, "dgid", gid_text(text, ah->grh.dgid.raw));
	LINE_NUMBER(line, "hop_limit", ah->grh.hop_limit);
	LINE_NUMBER(line, "traffic_class", ah->grh.traffic_class);
	LINE_NUMBER(line, "sl", ah->sl);
}

#define NUMBER(bit, key, member)                              \
	do {                                                  \
		if (mask & (bit))                             \
			LINE_NUMBER(line, key, attr->member); \
	} while (0)

static void format_ladder(struct line *line, const struct ibv_qp_attr *attr,
			  int mask)
{
	NUMBER(IBV_QP_DEST_QPN, "dest_qpn", dest_qp_num);
	NUMBER(IBV_QP_RQ_PSN, "rq_psn", rq_psn);
	NUMBER(IBV_QP_SQ_PSN, "sq_psn", sq_psn);
	/* 枚举之外的值原样写出：“1024 不是 enum ibv_mtu”正是要让人看见的。*/
	if ((mask & IBV_QP_PATH_MTU) && mtu_bytes(attr->path_mtu))
		LINE_NUMBER(line, "path_mtu", mtu_bytes(attr->path_mtu));
	else
		NUMBER(IBV_QP_PATH_MTU, "path_mtu_bad", path_mtu);
	NUMBER(IBV_QP_TIMEOUT, "timeout", timeout);
	NUMBER(IBV_QP_RETRY_CNT, "retry_cnt", retry_cnt);
	NUMBER(IBV_QP_RNR_RETRY, "rnr_retry", rnr_retry);
	NUMBER(IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", min_rnr_timer);
	NUMBER(IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", max_rd_atomic);
	NUMBER(IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic",
	       max_dest_rd_atomic);
}

static void format_qp_attr(struct line *line, struct ibv_qp *qp,
			   const struct ibv_qp_attr *attr, int mask)
{
	char text[ACCESS_TEXT_SIZE];

	if (mask & IBV_QP_CUR_STATE)
		LINE_TEXT(line, "cur_state", qp_state_name(attr->cur_qp_state));
	NUMBER(IBV_QP_PKEY_INDEX, "pkey_index", pkey_index);
	NUMBER(IBV_QP_PORT, "port", port_num);
	if (mask & IBV_QP_ACCESS_FLAGS)
		LINE_TEXT(line, "access",
			  access_text(text, sizeof(text),
				      attr->qp_access_flags));
	if (mask & IBV_QP_QKEY)
		LINE_HEX(line, "qkey", attr->qkey);
	if (mask & IBV_QP_AV)
		format_av(line, qp, &attr->ah_attr);
	format_ladder(line, attr, mask);
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
	size_t n;

	recorder_inside++;
	n = explain_accepted(qp, attr, mask, before, found, MOST_WARNINGS);
	for (size_t i = 0; i < n; i++)
		event_warn(OBJECT_QP, qp, found[i]);
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
	event_ends_of(&e, OBJECT_QP, qp);
	return err;
}

// SPDX-License-Identifier: MIT
/*
 * 第 2 课：PD、MR、CQ、QP
 *
 * 建好四种对象，看清每一个的“身份证号”（lkey/rkey、QPN）和实际得到的容量，再按
 * 相反的次序拆掉。--break 演示两种最常见的错误：权限组合不合法、拆的次序不对。
 */
#include "../lesson.h"
#include "base/call_failed.h"
#include "base/report.h"
#include "explain/explain.h"
#include "explain/qp_table.h"

#include <errno.h>
#include <stdlib.h>

// region show-objects
static int show_objects(struct rdma_resources *res)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int err =
		ibv_query_qp(res->qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init);

	if (err)
		return call_failed(err, "ibv_query_qp(QP %u)", res->qp->qp_num);
	report_fact("PD  handle %u", res->pd->handle);
	report_fact("MR  %zu bytes at %p, lkey 0x%x, rkey 0x%x", res->buf_size,
		    (void *)res->buf, res->mr->lkey, res->mr->rkey);
	report_fact("    receive slot 0 at +%td, send slot 0 at +%td",
		    recv_slot(res, 0) - res->buf, send_slot(res, 0) - res->buf);
	report_fact("CQ  asked for %u entries, got %d",
		    res->recv_slots + res->send_slots, res->cq->cqe);
	report_fact("QP  number 0x%06x, state %s", res->qp->qp_num,
		    qp_state_name(attr.qp_state));
	report_fact("    asked for %u send and %u receive WRs, got %u and %u; "
		    "inline up to %u bytes",
		    res->send_slots, res->recv_slots, init.cap.max_send_wr,
		    init.cap.max_recv_wr, init.cap.max_inline_data);
	return 0;
}
// endregion show-objects

/* REMOTE_WRITE 意味着网卡要写这块内存，所以必须同时允许 LOCAL_WRITE。*/
static int break_access(void *with)
{
	struct rdma_resources *res = with;
	struct ibv_mr *mr;

	report_step("break it: REMOTE_WRITE without LOCAL_WRITE");
	mr = ibv_reg_mr(res->pd, res->buf, res->buf_size,
			IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		return verb_failed(
			errno,
			explain_reg_mr_call(res->pd, res->buf, res->buf_size,
					    IBV_ACCESS_REMOTE_WRITE, errno),
			"ibv_reg_mr(%zu bytes, REMOTE_WRITE)", res->buf_size);
	ibv_dereg_mr(mr);
	report_fact("this device allows it");
	return 0;
}

/* PD 是地基：楼还没拆完就挖地基，内核回 EBUSY，并且什么也没有发生。*/
static int break_order(void *with)
{
	struct rdma_resources *res = with;
	int err;

	report_step("break it: deallocate the PD first");
	err = ibv_dealloc_pd(res->pd);
	if (err)
		return check_destroyed("ibv_dealloc_pd", err);
	res->pd = NULL;
	return 0;
}

static const struct lesson_break breaks[] = {
	{ "access", "register for REMOTE_WRITE without LOCAL_WRITE",
	  break_access },
	{ "order", "deallocate the PD while an MR and a QP still use it",
	  break_order },
	{ 0 },
};

int main(int argc, char *argv[])
{
	struct rdma_resources res = { 0 };
	struct lesson lesson;
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	report_step("open the device, make PD, MR, CQ and QP");
	rc = init_rdma_resources(&res, &lesson.config);
	if (rc)
		return 1;

	report_step("what they are");
	rc = show_objects(&res);
	if (!rc && lesson.broken)
		rc = lesson.broken->plant(&res);

	report_step("destroy QP, CQ, MR, PD; close the device");
	rc |= destroy_rdma_resources(&res);
	return rc ? 1 : 0;
}

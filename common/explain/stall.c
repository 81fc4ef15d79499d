// SPDX-License-Identifier: MIT
/*
 * stall.c —— 一直没有 completion：没有 errno、没有 status，只有等
 *
 * 这是最折磨人的一类：什么都没有失败。原因分三层，逐层排除：
 *   1. 本来就不会有：没带 SIGNALED、等错了 CQ、QP 根本不在 RTS；
 *   2. 设备被告知永远等：rxe 上 retry_cnt 7、timeout 0、max_rd_atomic 0；
 *   3. 包没到，或到了被悄悄丢掉：UD/UC 没有 ACK，发送方照样“成功”。
 */
#include "parts.h"
#include "qp_table.h"

#define RETRY_MAX 7
#define GRH_BYTES 40

static const struct explain_request no_request;

struct wait {
	struct ibv_qp *qp;
	const struct explain_request *rq;
	struct ibv_qp_attr now;
	bool sq_sig_all;
	bool rxe;
	int64_t ms;
	int64_t gives_up_ms; /* when the retries are used up; -1: never */
};

/* 4.096 µs × 2^timeout，共 retry_cnt + 1 次。*/
static int64_t gives_up_after(const struct ibv_qp_attr *now, bool rxe)
{
	if (!now->timeout || (rxe && now->retry_cnt >= RETRY_MAX))
		return -1;
	return (int64_t)(now->retry_cnt + 1) *
		       ((INT64_C(4096) << (now->timeout & 31)) / 1000000) +
	       1;
}

/* ---- 不论收发 ------------------------------------------------------------- */

static struct explanation check_state(const struct wait *w)
{
	enum ibv_qp_state state = w->now.qp_state;
	bool early = state < (w->rq->send ? IBV_QPS_RTS : IBV_QPS_RTR);

	if (state == IBV_QPS_ERR)
		return because("qp-in-error");
	if (state == IBV_QPS_SQD && w->rq->send)
		return because("sqd-holds");
	if (early)
		return because("qp-too-early", "this QP\t%s",
			       qp_state_name(state));
	return no_idea();
}

static struct explanation check_cq(const struct wait *w)
{
	const struct ibv_cq *right =
		w->rq->recv ? w->qp->recv_cq : w->qp->send_cq;

	if (!w->rq->polled || w->rq->polled == right ||
	    (!w->rq->recv && !w->rq->send))
		return no_idea();
	return because("wrong-cq", "%s\t%s", w->rq->recv ? "receive" : "send",
		       w->rq->recv ? "recv_cq" : "send_cq");
}

/* ---- 发送方 --------------------------------------------------------------- */

static struct explanation check_signaled(const struct wait *w)
{
	if (!w->rq->send || w->sq_sig_all ||
	    (w->rq->send->send_flags & IBV_SEND_SIGNALED))
		return no_idea();
	return because("unsignaled");
}

/* 网卡 down 了、MTU 被改小了：收与发都没有指望，与有没有 SIGNALED 无关。*/
static struct explanation check_link(const struct wait *w)
{
	return why_no_link(w->qp, w->rq);
}

static struct explanation check_rd_atomic(const struct wait *w)
{
	const struct ibv_send_wr *send = w->rq->send;

	if (!send || w->now.max_rd_atomic ||
	    (send->opcode != IBV_WR_RDMA_READ && !is_atomic(send->opcode)))
		return no_idea();
	return because("rd-atomic-zero");
}

/* 设备不会放弃。为什么没有 ACK 才是原因；说不出的话，就说它永远不放弃。*/
static struct explanation check_never_gives_up(const struct wait *w)
{
	struct explanation why, ack;

	if (!w->rq->send || w->gives_up_ms >= 0 || w->qp->qp_type != IBV_QPT_RC)
		return no_idea();
	if (!w->now.timeout)
		why = because("timeout-zero");
	else
		why = because("retry-forever");
	ack = why_no_ack(w->qp, w->rq);
	if (!ack.id || explain_is_status(ack.id))
		return why;
	also_cause(&ack, &why);
	return ack;
}

static struct explanation check_still_trying(const struct wait *w)
{
	if (!w->rq->send || w->gives_up_ms < 0 || w->ms > w->gives_up_ms ||
	    w->qp->qp_type != IBV_QPT_RC)
		return no_idea();
	return because("still-retrying", "%lld\t%u\t%u",
		       (long long)w->gives_up_ms, w->now.timeout,
		       w->now.retry_cnt);
}

/* 早该放弃了，也没有 RNR NAK：包根本没有发出去。*/
static struct explanation check_refused(const struct wait *w)
{
	const char *device = device_of(w->qp->context);

	if (!w->rq->send || !w->rxe || w->gives_up_ms < 0 ||
	    w->ms <= 2 * w->gives_up_ms || w->qp->qp_type != IBV_QPT_RC ||
	    hw_counter(device, "rcvd_rnr_err") > 0)
		return no_idea();
	return because("kernel-refuses", "%lld", (long long)w->gives_up_ms);
}

/* ---- 接收方：对端的 send “成功”了，这边却没有 ---------------------------- */

static struct explanation check_ud(const struct wait *w)
{
	const struct ibv_send_wr *send = w->rq->peer_send;
	struct ibv_port_attr port;
	struct explanation why;
	uint64_t length, room;

	if (!w->rq->recv || !send || w->qp->qp_type != IBV_QPT_UD)
		return no_idea();
	length = bytes_of(send->sg_list, send->num_sge);
	if (send->wr.ud.remote_qpn != w->qp->qp_num)
		return because("qpn-differs", "the peer\t0x%x\tthis side\t0x%x",
			       send->wr.ud.remote_qpn, w->qp->qp_num);
	if (!(send->wr.ud.remote_qkey & 0x80000000) &&
	    send->wr.ud.remote_qkey != w->now.qkey)
		return because("qkey-differs", "0x%x\tthis QP\t0x%x",
			       send->wr.ud.remote_qkey, w->now.qkey);
	if (!ibv_query_port(w->qp->context, w->now.port_num, &port) &&
	    length > mtu_bytes(port.active_mtu))
		return because("ud-too-long", "%ju\t%u", length,
			       mtu_bytes(port.active_mtu));
	room = bytes_of(w->rq->recv->sg_list, w->rq->recv->num_sge);
	if (room >= length + GRH_BYTES)
		return no_idea();
	why = because("ud-no-grh-room", "%ju", room);
	also_seen(&why, "message", "%ju", length);
	return why;
}

static struct explanation check_pair(const struct wait *w)
{
	struct explanation all[EXPLAIN_MOST];

	/* 从发的那一端看起：先说它发往哪里、从哪个 PSN 发起。*/
	if (explain_pair(w->rq->peer, w->rq->mine, all, EXPLAIN_MOST))
		return all[0];
	return no_idea();
}

/* 不是在等自己的 send，就不能说“ACK 丢了”：对端也许根本没有发。*/
static struct explanation check_ack(const struct wait *w)
{
	if (!w->rq->send)
		return why_no_peer(w->qp, w->rq);
	return why_no_ack(w->qp, w->rq);
}

static struct explanation nothing_sent(const struct wait *w)
{
	if (!w->rq->recv)
		return no_idea();
	return because("nothing-came");
}

static struct explanation (*const checks[])(const struct wait *w) = {
	check_state,	 check_cq,  check_link,		  check_signaled,
	check_rd_atomic, check_ud,  check_never_gives_up, check_still_trying,
	check_pair,	 check_ack, check_refused,	  nothing_sent,
};

struct explanation explain_stall(struct ibv_qp *qp,
				 const struct explain_request *request,
				 int64_t wait_ms)
{
	KEEP_ERRNO;
	struct wait w = { .qp = qp,
			  .rq = request ? request : &no_request,
			  .ms = wait_ms };
	const int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
			 IBV_QP_QKEY | IBV_QP_PORT;
	struct explanation why = no_idea();
	struct ibv_qp_init_attr init = { 0 };

	if (!explain_is_on() || !peek_at_qp(qp, &w.now, mask, &init))
		return why;
	w.sq_sig_all = init.sq_sig_all;
	w.rxe = device_is_rxe(qp->context);
	w.gives_up_ms = gives_up_after(&w.now, w.rxe);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && !why.id;
	     i++)
		why = checks[i](&w);
	if (!why.id)
		why = because("no-completion");
	also_seen(&why, "waiting-qp", "%u\t%s\t%s\t%u\t%u\t%u", qp->qp_num,
		  qp_state_name(w.now.qp_state), qp_state_name(qp->state),
		  w.now.timeout, w.now.retry_cnt, w.now.max_rd_atomic);
	return why;
}

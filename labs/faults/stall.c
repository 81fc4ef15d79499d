// SPDX-License-Identifier: MIT
/*
 * stall.c —— 什么都不失败：completion 就是不来，或发送方“成功”而对端什么也没有
 *
 * 这里等 WAIT_MS 就算“不来了”。真程序里没有期限的 while (!ibv_poll_cq(…)) 会在
 * 同样的地方转到天荒地老：所以每个等待都要有期限。
 */
#include "faults.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define GRH_BYTES 40

/* ---- 设备被告知永远等 ------------------------------------------------------ */

WRONG_PLAN(retry_seven, IBV_WR_SEND, 64, rig->a.plan.retry_cnt = 7;
	   rig->a.plan.dest_qp_num += 1000)

static void timeout_zero(struct rig *rig)
{
	rig->a.plan.timeout = 0;
	rig->b.plan.rq_psn += 500;
	connect_ends(rig);
	send_message(rig, 64);
}

WRONG_PLAN(read_depth_zero, IBV_WR_RDMA_READ, 64, rig->a.plan.max_rd_atomic = 0)

/* 2^18 × 4.096 µs = 1 s 一次，共 3 次：等 100 ms 当然等不到。*/
static void long_timeout(struct rig *rig)
{
	rig->a.plan.timeout = 18;
	rig->a.plan.dest_qp_num += 1000;
	connect_ends(rig);
	prepare_send(rig, IBV_WR_SEND, 64);
	if (!try_post(rig))
		wait_send(rig, 100);
}

/* 规范说一直等；rxe 的重传定时器在 RNR 等待期间也走，于是多半变成 12。*/
WRONG_PLAN(rnr_seven, IBV_WR_SEND, 64, rig->a.plan.rnr_retry = 7)

/* ---- 本来就不会有 ---------------------------------------------------------- */

WRONG_MESSAGE(unsignaled, 64, rig->send.send_flags = 0)

static void wrong_cq(struct rig *rig)
{
	const struct explain_request request = { .send = &rig->send,
						 .polled = rig->a.recv_cq };

	post_recv(rig, 64);
	prepare_send(rig, IBV_WR_SEND, 64);
	if (!try_post(rig))
		wait_for(rig, rig->a.qp, rig->a.recv_cq, &request, WAIT_MS);
}

WRONG_MESSAGE(held_in_sqd, 64, do_step(&rig->a, step_state(IBV_QPS_SQD)))

/*
 * rxe 冲刷 receive 的是一个 task，ERR 之后稍晚才跑；赶在它前面投的 receive 也会被冲刷。
 * 先等到一个被冲刷的：它跑过了，再投的才是“ERR 里投的”。
 */
static void recv_in_err(struct rig *rig)
{
	struct ibv_wc flushed;

	post_recv(rig, 64);
	do_step(&rig->b, step_state(IBV_QPS_ERR));
	next_wc(rig->b.recv_cq, &flushed, WAIT_MS);
	post_recv(rig, 64);
	wait_recv(rig, WAIT_MS);
}

FAULT(nobody_sends, post_recv(rig, 64); wait_recv(rig, 100))

/* ---- CQ 装不下 ------------------------------------------------------------ */

static void cq_overrun(struct rig *rig)
{
	struct pollfd fd = { .fd = rig->a.context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	/* 要 4 个，rxe 给 7 个；16 个 WRITE 都要 completion，一个也不取。*/
	rig->a.send_cq = ibv_create_cq(rig->a.context, 4, NULL, NULL, 0);
	if (!rig->a.send_cq)
		return;
	make_qps(rig, IBV_QPT_RC, true);
	connect_ends(rig);
	prepare_send(rig, IBV_WR_RDMA_WRITE, 64);
	for (int i = 0; i < 16; i++)
		if (try_post(rig))
			return;
	if (poll(&fd, 1, WAIT_MS) != 1 ||
	    ibv_get_async_event(rig->a.context, &event))
		return;
	snprintf(rig->saw, sizeof(rig->saw), "async event %d (%s)",
		 event.event_type, ibv_event_type_str(event.event_type));
	rig->why = explain_async_event(event.event_type);
	ibv_ack_async_event(&event);
}

/* ---- 发送方成功，接收方没有 ------------------------------------------------ */

/* PSN 差得“太超前”：rxe 确认了它，却把它扔了。*/
static void psn_gap(struct rig *rig)
{
	rig->a.plan.sq_psn = 0x900000;
	rig->b.plan.rq_psn = 0xa00000;
	connect_ends(rig);
	send_message(rig, 64);
	if (!rig->why.id)
		wait_recv(rig, WAIT_MS);
}

static void make_ud(struct rig *rig)
{
	make_qps(rig, IBV_QPT_UD, false);
	connect_ends(rig);
	prepare_send(rig, IBV_WR_SEND, 64);
	rig->send.wr.ud.ah = ibv_create_ah(rig->a.pd, &rig->a.plan.ah_attr);
	rig->send.wr.ud.remote_qpn = rig->b.qp->qp_num;
	rig->send.wr.ud.remote_qkey = rig->b.plan.qkey;
}

/* UD 没有 ACK：发送方的 completion 只说明“发出去了”。*/
static void ud_send(struct rig *rig, uint32_t room)
{
	struct ibv_wc wc;

	post_recv(rig, room);
	if (!rig->send.wr.ud.ah || try_post(rig) ||
	    !next_wc(rig->a.send_cq, &wc, WAIT_MS) || wc.status)
		return;
	wait_recv(rig, WAIT_MS);
}

#define WRONG_UD(function, room, change)      \
	static void function(struct rig *rig) \
	{                                     \
		make_ud(rig);                 \
		change;                       \
		ud_send(rig, room);           \
	}
WRONG_UD(ud_qkey, 64 + GRH_BYTES, rig->send.wr.ud.remote_qkey++)
WRONG_UD(ud_qpn, 64 + GRH_BYTES, rig->send.wr.ud.remote_qpn += 1000)
WRONG_UD(ud_long, 8192 + GRH_BYTES, rig->send_sge.length = 8192)
WRONG_UD(ud_no_grh_room, 16, rig->send_sge.length = 16)

/*
 * 收到了，却是程序自己扔的：completion 成功，它比较 16 字节的 dgid，不相等，一声不响
 * 地丢掉。UCX 从 1.11（2021）到 2024 年 10 月的修正，在 rxe 与 irdma 上就是这样：第 13
 * 课。
 */
static void ud_dgid(struct rig *rig)
{
	const struct ibv_grh *grh = (const struct ibv_grh *)rig->b.buf;
	struct ibv_wc wc;
	bool equal;

	make_ud(rig);
	post_recv(rig, 64 + GRH_BYTES);
	if (!rig->send.wr.ud.ah || try_post(rig) ||
	    !next_wc(rig->b.recv_cq, &wc, WAIT_MS) || wc.status)
		return;
	equal = !memcmp(&grh->dgid, &rig->b.gid, sizeof(grh->dgid));
	snprintf(rig->saw, sizeof(rig->saw),
		 "wc.status %d (%s), %u bytes, wc.sl %u; the 16 bytes of dgid "
		 "are %smy GID",
		 wc.status, ibv_wc_status_str(wc.status), wc.byte_len, wc.sl,
		 equal ? "" : "not ");
	if (!equal)
		rig->why = explain_grh(&wc, grh, &rig->b.gid);
}

const struct fault stall_faults[] = {
	ROW("hang-retry-seven", "a wrong QPN, with retry_cnt 7",
	    "no completion", "qpn-differs", RESET, retry_seven),
	ROW("hang-timeout-zero", "a wrong PSN, with timeout 0", "no completion",
	    "psn-differs", RESET, timeout_zero),
	ROW("hang-read-depth-zero", "a READ, with max_rd_atomic 0",
	    "no completion", "rd-atomic-zero", RESET, read_depth_zero),
	ROW("hang-long-timeout", "a wrong QPN, and timeout 18 takes 3 s",
	    "no completion", "still-retrying", RESET, long_timeout),
	ROW("rnr-retry-seven", "no receive is posted, with rnr_retry 7",
	    "wc.status 12 |no completion", "no-receive-posted", RESET,
	    rnr_seven),
	ROW("hang-unsignaled", "a send without IBV_SEND_SIGNALED",
	    "no completion", "unsignaled", CONNECTED, unsignaled),
	ROW("hang-wrong-cq", "the receive CQ is polled for a send",
	    "no completion", "wrong-cq", CONNECTED, wrong_cq),
	ROW("hang-sqd", "the QP was left in SQD", "no completion", "sqd-holds",
	    CONNECTED, held_in_sqd),
	ROW("hang-recv-in-err", "a receive is posted in ERR",
	    "no completion|wc.status 5 ", "qp-in-error|WR_FLUSH_ERR", CONNECTED,
	    recv_in_err),
	ROW("hang-nobody-sends", "both sides wait for the other",
	    "no completion", "nothing-came", CONNECTED, nobody_sends),
	ROW("cq-overrun", "the CQ is smaller than what is outstanding",
	    "async event .*CQ error", "cq-overrun", OPEN, cq_overrun),
	ROW("psn-gap-success",
	    "a PSN far behind: the SEND succeeds and nothing is received",
	    "no completion", "psn-differs", RESET, psn_gap),
	ROW("ud-qkey", "a UD send with a Q_Key that is not the peer's",
	    "no completion", "qkey-differs", OPEN, ud_qkey),
	ROW("ud-qpn", "a UD send to a QPN that is not the peer's",
	    "no completion", "qpn-differs", OPEN, ud_qpn),
	ROW("ud-too-long", "a UD send of more than one MTU", "no completion",
	    "ud-too-long", OPEN, ud_long),
	ROW("ud-no-grh-room", "a UD receive without 40 bytes for the GRH",
	    "wc.status 2 |no completion", "ud-no-grh-room", OPEN,
	    ud_no_grh_room),
	ROW("ud-dgid-ipv4",
	    "a UD receiver drops what has not its GID as dgid, over IPv4",
	    "wc.status 0 .*not my GID", "grh-is-ipv4", OPEN, ud_dgid),
	{ 0 },
};

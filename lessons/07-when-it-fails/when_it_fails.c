// SPDX-License-Identifier: MIT
/*
 * 第 7 课：出错之后——QP 怎么进的 ERR，怎么回来，怎么读懂一次失败
 *
 * 一个进程里两个 QP：A 发、B 收。先让 A 出错，看库记得的状态与内核里的状态如何分道
 * 扬镳；再看 ERR 里的 QP 对新的请求怎么答复；然后走唯一的那条路回来，把消息送到。最后
 * 走一遍 SQD：发送队列可以停下来，而连接还在。
 *
 * --break 种下的都是 ibv_modify_qp 的错误：内核的回答只有一个 EINVAL，原因由
 * common/explain/explain.h 说出来。
 */
#include "../lesson.h"
#include "base/deadline.h"
#include "base/report.h"
#include "explain/explain.h"
#include "explain/qp_table.h"

#include <errno.h>
#include <string.h>

#define TEXT	  "back again"
#define FLUSH_MS  1000
#define DRAIN_MS  1000
#define PSN_AHEAD 1000
#define PSN_OF_A  0xf00000

/* qp->state 是库的记忆：上一次成功的 ibv_modify_qp 之后。内核里的，要去问。*/
static int show_states(struct rdma_resources *res, const char *who)
{
	struct ibv_qp_attr attr;
	enum ibv_qp_state remembered = res->qp->state;
	int rc = query_qp(res, &attr);

	if (!rc)
		report_fact("%s: the library remembers %s, the kernel has %s",
			    who, qp_state_name(remembered),
			    qp_state_name(attr.qp_state));
	return rc;
}

/* RESET 到 INIT，然后“交换”：每次都换新的 PSN，两边都要知道。*/
static int meet(struct rdma_resources *a, struct rdma_resources *b)
{
	int rc = modify_qp_to_init(a);

	if (!rc)
		rc = modify_qp_to_init(b);
	a->remote = cm_con_data_of(b);
	b->remote = cm_con_data_of(a);
	return rc;
}

static int make_ready(struct rdma_resources *a, struct rdma_resources *b)
{
	int rc = modify_qp_to_rtr(a);

	if (!rc)
		rc = modify_qp_to_rtr(b);
	if (!rc)
		rc = modify_qp_to_rts(a);
	return rc ? rc : modify_qp_to_rts(b);
}

static int climb(struct rdma_resources *a, struct rdma_resources *b)
{
	int rc = meet(a, b);

	return rc ? rc : make_ready(a, b);
}

static int both_to_reset(struct rdma_resources *a, struct rdma_resources *b)
{
	int rc = modify_qp_to_reset(a);

	return rc ? rc : modify_qp_to_reset(b);
}

// region fail
/* 一个不属于任何 MR 的 lkey：本地就查得出来，包根本不会发出去。*/
static int fail_on_purpose(struct rdma_resources *a)
{
	struct ibv_mr wrong = *a->mr, *mr = a->mr;
	int rc;

	report_step("A sends with an lkey that belongs to no MR");
	wrong.lkey ^= 0x00ff00;
	a->mr = &wrong;
	rc = post_send(a, 0, a->msg_size, true);
	a->mr = mr;
	if (rc)
		return rc;
	report_fact("ibv_post_send: 0, the request was taken");
	rc = poll_completion(a, WR_ID_SEND(0), NULL, POLL_TIMEOUT_MS);
	return rc == -EIO ? show_states(a, "A") : -EBADMSG;
}
// endregion fail

// region flush
static int post_into_err(struct rdma_resources *a)
{
	struct ibv_wc wc = { 0 };
	int rc;

	report_step("A sends once more, with the right lkey");
	rc = post_send(a, 0, a->msg_size, true);
	if (rc)
		return rc;
	/* ERR 里的 QP 照收请求，然后原样退回：这叫 flush，不是新的错误。*/
	for (int ms = 0; ms < FLUSH_MS && !rc; ms++) {
		int n = ibv_poll_cq(a->cq, 1, &wc);

		if (n)
			break;
		rc = deadline_sleep_ms(1, INT64_MAX);
	}
	if (!rc)
		report_fact("wr_id 0x%jx came back: %s (%d)", wc.wr_id,
			    ibv_wc_status_str(wc.status), wc.status);
	return rc;
}
// endregion flush

// region come-back
static int come_back(struct rdma_resources *a, struct rdma_resources *b)
{
	int rc;

	report_step("the way back: ERR -> RESET -> INIT -> RTR -> RTS");
	/*
	 * B 没有出错，也要一起回去：A 换了 PSN，B 若还等着旧的，就把新包当作乱序丢掉。
	 */
	rc = both_to_reset(a, b);
	if (!rc)
		rc = climb(a, b);
	if (!rc)
		rc = show_states(a, "A");
	return rc;
}
// endregion come-back

static int deliver(struct rdma_resources *a, struct rdma_resources *b)
{
	struct ibv_wc wc;
	char text[64];
	int rc = post_receive(b, 0);

	memcpy(send_slot(a, 0), TEXT, sizeof(TEXT));
	if (!rc)
		rc = post_send(a, 0, sizeof(TEXT), true);
	if (!rc)
		rc = poll_completion(b, WR_ID_RECV(0), &wc, POLL_TIMEOUT_MS);
	if (!rc)
		rc = poll_completion(a, WR_ID_SEND(0), NULL, POLL_TIMEOUT_MS);
	if (!rc)
		report_fact("B received \"%s\"",
			    printable_text(text, sizeof(text), recv_slot(b, 0),
					   wc.byte_len));
	return rc;
}

// region sqd
/*
 * SQD：发送队列排空之后停止，接收照常。此时可以修改 AV、timeout 等属性（见参考
 * 表里 SQD→SQD 那一行），再回 RTS，连接不断，PSN 不变。
 */
static int pause_sending(struct rdma_resources *a, struct rdma_resources *b)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	int rc;

	report_step("RTS -> SQD: A's send queue is drained and stops");
	rc = modify_qp(a, &attr, IBV_QP_STATE);
	if (!rc)
		rc = wait_for_drained_sq(a->qp, DRAIN_MS);
	if (!rc)
		rc = show_states(a, "A");
	if (rc)
		return rc;
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD,
				     .timeout = 16,
				     .retry_cnt = 5 };
	rc = modify_qp(a, &attr,
		       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT);
	if (!rc)
		report_fact("SQD -> SQD: timeout and retry_cnt are changed");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
	if (!rc)
		rc = wait_for_drained_sq(a->qp, DRAIN_MS);
	if (!rc)
		rc = modify_qp(a, &attr, IBV_QP_STATE);
	if (!rc)
		rc = query_qp(a, &attr);
	if (!rc)
		report_fact("SQD -> RTS: timeout %u, retry_cnt %u",
			    attr.timeout, attr.retry_cnt);
	return rc ? rc : deliver(a, b);
}
// endregion sqd

/* ---- --break --------------------------------------------------------------- */

/* 内核没有拒绝，却还是错了。*/
static int show_accepted(struct rdma_resources *a,
			 const struct ibv_qp_attr *attr, int mask,
			 enum ibv_qp_state before)
{
	struct explanation found[EXPLAIN_MOST];
	int rc = show_states(a, "A");
	size_t n = explain_accepted(a->qp, attr, mask, before, found,
				    EXPLAIN_MOST);
	struct explain_words words;

	for (size_t i = 0; i < n; i++) {
		explain_in_words(&words, &found[i], false);
		report_warning(words.next, "%s", words.cause);
	}
	return rc ? rc : -EINVAL;
}

/* 前四种，内核当场拒绝：都是 EINVAL，原因却各不相同。*/
static int err_to_init(void *a)
{
	int rc = modify_qp_to_error(a);

	return rc ? rc : modify_qp_to_init(a);
}

static int reset_to_err(void *a)
{
	int rc = modify_qp_to_reset(a);

	return rc ? rc : modify_qp_to_error(a);
}

static int assumed_state(void *a)
{
	return modify_qp_to_rtr(a);
}

/* 新一些的 rxe 装作成功（RXE_TAKES_MASKS_WITHOUT_STATE）：更难查。*/
static int no_state_bit(void *a)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
	int rc = modify_qp(a, &attr, IBV_QP_EN_SQD_ASYNC_NOTIFY);

	return rc ? rc
		  : show_accepted(a, &attr, IBV_QP_EN_SQD_ASYNC_NOTIFY,
				  IBV_QPS_RTS);
}

/* CUR_STATE 是“我以为我在哪里”。内核信了它，就不再看自己的记录。*/
static int cur_state(void *a)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .cur_qp_state = IBV_QPS_RTS };
	int mask = IBV_QP_STATE | IBV_QP_CUR_STATE;
	int rc = modify_qp_to_error(a);

	if (!rc)
		rc = modify_qp(a, &attr, mask);
	if (rc)
		return rc;
	report_fact("ibv_modify_qp(ERR -> RTS, CUR_STATE says RTS): 0");
	return show_accepted(a, &attr, mask, IBV_QPS_ERR);
}

// region wrong-psn
/*
 * 没有哪个内核会拒绝一个 PSN。错的后果取决于两个数相差多少：多半是重传次数用
 * 尽，RETRY_EXC；在 rxe 上可能更糟——B 把包当作旧的重复包丢弃，却照样应答 ACK，
 * 于是 A 以为已经送到。这里用固定的 PSN，让每次看到的都是后一种情形。
 */
static int wrong_psn(void *ends)
{
	struct rdma_resources *a = ends, *b = a + 1;
	int rc = both_to_reset(a, b);

	if (!rc)
		rc = meet(a, b);
	if (rc)
		return rc;
	/* A 的 PSN 是交换之后才定下的，所以 B 那份也要改。*/
	a->psn = PSN_OF_A;
	b->remote.psn = (PSN_OF_A + PSN_AHEAD) & 0xffffff;
	rc = make_ready(a, b);
	if (rc)
		return rc;
	report_fact("B expects a PSN that A will not send: RTR was accepted");
	rc = post_receive(b, 0);
	if (!rc)
		rc = post_send(a, 0, a->msg_size, true);
	if (!rc)
		rc = poll_completion(a, WR_ID_SEND(0), NULL, POLL_TIMEOUT_MS);
	if (!rc)
		report_fact("A's send completed with success");
	return rc ? rc : poll_completion(b, WR_ID_RECV(0), NULL, FLUSH_MS);
}
// endregion wrong-psn

static const struct lesson_break breaks[] = {
	{ "err-to-init", "leave ERR for INIT at once", err_to_init },
	{ "reset-to-err", "push a QP in RESET to ERR", reset_to_err },
	{ "assumed-state", "go to RTR, although the QP is in RTS already",
	  assumed_state },
	{ "no-state-bit", "forget IBV_QP_STATE in the mask", no_state_bit },
	{ "cur-state", "claim with CUR_STATE to be where one is not",
	  cur_state },
	{ "wrong-psn", "expect a PSN that the peer does not send", wrong_psn },
	{ 0 },
};

/* ---- 从头到尾 --------------------------------------------------------------- */

static int run(const struct lesson *lesson, struct rdma_resources *a,
	       struct rdma_resources *b)
{
	int rc;

	report_step("two QPs, connected: A is QP 0x%06x, B is QP 0x%06x",
		    a->qp->qp_num, b->qp->qp_num);
	rc = climb(a, b);
	if (!rc)
		rc = show_states(a, "A");
	if (rc)
		return rc;
	if (lesson->broken)
		return lesson_plant(lesson, a);
	rc = fail_on_purpose(a);
	if (!rc)
		rc = post_into_err(a);
	if (!rc)
		rc = come_back(a, b);
	if (!rc)
		rc = deliver(a, b);
	return rc ? rc : pause_sending(a, b);
}

int main(int argc, char *argv[])
{
	struct rdma_resources ends[2] = { 0 }, *a = ends, *b = a + 1;
	struct lesson lesson;
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	rc = init_rdma_resources(a, &lesson.config);
	if (!rc)
		rc = init_rdma_resources(b, &lesson.config);
	if (!rc)
		rc = run(&lesson, a, b);
	rc |= destroy_rdma_resources(b);
	rc |= destroy_rdma_resources(a);
	return rc ? 1 : 0;
}

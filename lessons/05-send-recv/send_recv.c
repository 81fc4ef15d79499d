// SPDX-License-Identifier: MIT
/*
 * 第 5 课：post_receive、post_send、poll_completion
 *
 * 一个进程里放两个 QP：A 发、B 收。没有网络、没有第二个终端，只看“登记—完成”
 * 这一件事，并把每个 completion（struct ibv_wc）的字段打印出来。跨进程的完整版本
 * 就是 rdma_server 与 rdma_client。
 */
#include "../lesson.h"
#include "base/report.h"
#include "explain/explain.h"

#include <errno.h>
#include <string.h>

#define TEXT "Hello from QP A!"

/*
 * 与 modify_qp_to_rts() 只差一处：rnr_retry = 1。平时用 7（一直等），对端忘了
 * post receive 就表现为“什么都不发生”；这里让它一次就放弃，好看到真正的 status。
 */
static int to_rts_impatient(struct rdma_resources *a)
{
	struct ibv_qp_attr attr = rts_attributes(a);

	attr.rnr_retry = 1;
	return modify_qp(a, &attr, RTS_MASK);
}

// region pair
/* 两端在同一个进程里，“交换”只是两次赋值：这正是第 4 课用 TCP 做的事。*/
static int connect_pair(struct rdma_resources *a, struct rdma_resources *b,
			int (*a_to_rts)(struct rdma_resources *a))
{
	int rc;

	a->remote = cm_con_data_of(b);
	b->remote = cm_con_data_of(a);
	rc = modify_qp_to_rtr(a);
	if (!rc)
		rc = modify_qp_to_rtr(b);
	if (!rc)
		rc = a_to_rts(a);
	return rc ? rc : modify_qp_to_rts(b);
}
// endregion pair

static void show_completion(const char *who, const struct ibv_wc *wc)
{
	bool received = wc->opcode == IBV_WC_RECV;

	report_fact("%s: wr_id 0x%jx (slot %u), status %s, opcode %s", who,
		    wc->wr_id, WR_ID_SLOT(wc->wr_id),
		    ibv_wc_status_str(wc->status), received ? "RECV" : "SEND");
	/* byte_len 只对“收到”的 completion 有意义，SEND 的不要读。*/
	if (received)
		report_fact("   byte_len %u", wc->byte_len);
}

// region transfer
static int transfer(struct rdma_resources *a, struct rdma_resources *b)
{
	struct ibv_wc wc;
	char text[64];
	int rc;

	report_step("B posts a receive: slot 0 now belongs to the QP");
	rc = post_receive(b, 0);
	if (rc)
		return rc;

	report_step("A posts a send of %zu bytes", sizeof(TEXT));
	memcpy(send_slot(a, 0), TEXT, sizeof(TEXT));
	rc = post_send(a, 0, sizeof(TEXT), true);
	if (rc)
		return rc;

	report_step("both poll their CQ");
	rc = poll_completion(b, WR_ID_RECV(0), &wc, POLL_TIMEOUT_MS);
	if (rc)
		return rc;
	show_completion("B", &wc);
	report_fact("B's slot 0: \"%s\"",
		    printable_text(text, sizeof(text), recv_slot(b, 0),
				   wc.byte_len));
	rc = poll_completion(a, WR_ID_SEND(0), &wc, POLL_TIMEOUT_MS);
	if (!rc)
		show_completion("A", &wc);
	return rc;
}
// endregion transfer

// region break-transfer
static int send_whole_slot(struct rdma_resources *a)
{
	int rc = post_send(a, 0, a->msg_size, true);

	return rc ? rc
		  : poll_completion(a, WR_ID_SEND(0), NULL, POLL_TIMEOUT_MS);
}

static int no_receive(void *ends)
{
	struct rdma_resources *a = ends, *b = a + 1;
	int rc = connect_pair(a, b, to_rts_impatient);

	return rc ? rc : send_whole_slot(a);
}

static int too_small(void *ends)
{
	struct rdma_resources *a = ends, *b = a + 1;
	int rc;

	b->msg_size /= 2;
	rc = connect_pair(a, b, modify_qp_to_rts);
	if (!rc)
		rc = post_receive(b, 0);
	if (rc)
		return rc;
	rc = send_whole_slot(a);
	/* 同一个错误在两端的样子不同：也看看 B 的 completion。*/
	poll_completion(b, WR_ID_RECV(0), NULL, POLL_TIMEOUT_MS);
	return rc;
}

static int bad_lkey(void *ends)
{
	struct rdma_resources *a = ends, *b = a + 1;
	struct ibv_mr wrong = *a->mr, *mr = a->mr;
	int rc = connect_pair(a, b, modify_qp_to_rts);

	if (!rc)
		rc = post_receive(b, 0);
	if (rc)
		return rc;
	wrong.lkey ^= 0x00ff00;
	a->mr = &wrong;
	rc = post_send(a, 0, a->msg_size, true);
	a->mr = mr;
	return rc ? rc
		  : poll_completion(a, WR_ID_SEND(0), NULL, POLL_TIMEOUT_MS);
}

static int too_early(void *ends)
{
	struct rdma_resources *a = ends, *b = a + 1;
	int rc = post_receive(b, 0);

	return rc ? rc : send_whole_slot(a);
}
// endregion break-transfer

static const struct lesson_break breaks[] = {
	{ "no-receive", "send although the peer has posted no receive",
	  no_receive },
	{ "too-small", "send more than the peer's receive buffer holds",
	  too_small },
	{ "bad-lkey", "post a send with an lkey that is nobody's", bad_lkey },
	{ "too-early", "post a send while the QP is still in INIT", too_early },
	{ 0 },
};

static int run(const struct lesson *lesson, struct rdma_resources *a,
	       struct rdma_resources *b)
{
	int rc;

	report_step("two QPs in one process: A is QP 0x%06x, B is QP 0x%06x",
		    a->qp->qp_num, b->qp->qp_num);
	rc = modify_qp_to_init(a);
	if (!rc)
		rc = modify_qp_to_init(b);
	if (!rc && lesson->broken)
		return lesson_plant(lesson, a);
	if (!rc)
		rc = connect_pair(a, b, modify_qp_to_rts);
	return rc ? rc : transfer(a, b);
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

// SPDX-License-Identifier: MIT
/*
 * keys.c —— rkey 是什么样的，猜不猜得到
 *
 * rkey 只有 32 位，设备又要靠其中一部分查表：真正随机的更少。知道地址和 rkey 的人就能读
 * 写，不问他是谁；所以它像一把钥匙，而不像一个名字。
 */
#include "one_sided.h"

#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <stdlib.h>

#define KEYS	 4
#define LOW_BITS 256 /* rxe：低 8 位随机，其余是编号 */
#define GUESS_MS 200

// region keys
int keys(struct walk *w)
{
	static char memory[KEYS][PART_BYTES];
	struct ibv_mr *mrs[KEYS] = { 0 };
	int rc = 0, undo;

	report_step("B registers %d more MRs: their rkeys", KEYS);
	for (int i = 0; i < KEYS && !rc; i++)
		rc = expose_memory(&w->b, memory[i], PART_BYTES,
				   IBV_ACCESS_REMOTE_READ, &mrs[i]);
	for (int i = 0; i < KEYS && mrs[i]; i++) {
		report_fact("number %u and 8 random bits: 0x%08x",
			    mrs[i]->rkey >> 8, mrs[i]->rkey);
		undo = check_destroyed("ibv_dereg_mr", ibv_dereg_mr(mrs[i]));
		rc = rc ? rc : undo;
	}
	return rc;
}
// endregion keys

/*
 * 坏的 completion 先到，内核随后才把 QP 移到 ERR。抢在它前面 RESET，QP 之后又回到 ERR
 * （Linux 6.12 的 rxe），所以等内核说它在 ERR。
 */
static int wait_for_error(struct rdma_resources *res)
{
	const int64_t deadline = deadline_in_ms(GUESS_MS);
	struct ibv_qp_attr attr;
	int rc;

	do
		rc = query_qp(res, &attr);
	while (!rc && attr.qp_state != IBV_QPS_ERR &&
	       !deadline_passed(deadline));
	return rc;
}

/* 猜错一次，两端的 QP 都进 ERR：打回 RESET，重新连上，才能再猜。*/
static int reconnect(struct walk *w)
{
	int rc = wait_for_error(&w->a);
	struct ibv_wc wc;

	if (!rc)
		rc = wait_for_error(&w->b);
	if (!rc)
		rc = modify_qp_to_reset(&w->a);
	if (!rc)
		rc = modify_qp_to_reset(&w->b);
	while (ibv_poll_cq(w->a.cq, 1, &wc) > 0)
		;
	if (!rc)
		rc = modify_qp_to_init(&w->a);
	if (!rc)
		rc = modify_qp_to_init(&w->b);
	return rc ? rc : connect_to_board(w);
}

// region guess
/*
 * 不用 poll_completion()：在这里猜错很正常，不需要解释。返回 1：猜中；0：没
 * 中。READ 不改变任何内容。
 */
static int try_key(struct walk *w, const void *addr, uint32_t rkey)
{
	struct ibv_sge into = { (uintptr_t)send_slot(&w->a, 0), PART_BYTES,
				w->a.mr->lkey };
	const int64_t deadline = deadline_in_ms(GUESS_MS);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	int rc = post_read(&w->a, 0, &into, (uintptr_t)addr, rkey);

	while (!rc && !ibv_poll_cq(w->a.cq, 1, &wc) &&
	       !deadline_passed(deadline))
		rc = deadline_sleep_ms(0, deadline);
	return rc ? rc : wc.status == IBV_WC_SUCCESS;
}

/* 从 A 得到的那个 key 往后试：编号加一、加二……，每个编号有 256 种可能。*/
static int guess_from(struct walk *w, const void *addr)
{
	uint32_t number = (w->a.remote.rkey >> 8) + 1;
	int rc = 0;

	for (int i = 0; i < KEYS * LOW_BITS && !rc; i++) {
		rc = try_key(w, addr, (number << 8) + (uint32_t)i);
		if (!rc)
			rc = reconnect(w);
	}
	return rc;
}
// endregion guess

/* B 另有一块内存，是给别人的，从没告诉过 A。地址算是已经知道的。*/
int guess(void *walk)
{
	static char secret[PART_BYTES] = "B's, and not for A";
	struct walk *w = walk;
	struct ibv_mr *mr;
	uint32_t found;
	int rc = expose_memory(&w->b, secret, sizeof(secret),
			       IBV_ACCESS_REMOTE_READ, &mr);

	if (rc)
		return rc;
	rc = connect_to_board(w);
	if (!rc)
		rc = guess_from(w, secret);
	found = mr->rkey;
	ibv_dereg_mr(mr);
	if (rc <= 0)
		return rc ? rc : not_refused("no key");
	report_fact("A was given rkey 0x%x, and 0x%x works as well",
		    w->a.remote.rkey, found);
	return fail(-EACCES,
		    "an rkey is no secret: grant little, invalidate early",
		    "A has read \"%s\"", send_slot(&w->a, 0));
}

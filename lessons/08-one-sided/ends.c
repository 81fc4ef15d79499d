// SPDX-License-Identifier: MIT
/*
 * ends.c —— 连上两端；从 A 发起一次 WRITE 或 READ 并等它完成
 */
#include "one_sided.h"

#include "base/report.h"

#include <errno.h>
#include <string.h>

int not_refused(const char *what)
{
	return fail(-EPROTO, NULL, "%s was not refused", what);
}

// region connect-ends
int connect_ends(struct walk *w, struct ibv_mr *mr, uint8_t rnr_retry,
		 uint8_t reads)
{
	struct ibv_qp_attr rts = rts_attributes(&w->a);
	int rc;

	rts.rnr_retry = rnr_retry;
	rts.max_rd_atomic = reads;
	w->b.remote = cm_con_data_of(&w->a);
	w->a.remote = cm_con_data_of(&w->b);
	/* 第 4 课的 12 个字节：地址与 rkey。长度是给人看的，设备自己有一份。*/
	w->a.remote.addr = (uintptr_t)mr->addr;
	w->a.remote.rkey = mr->rkey;
	w->a.remote.size = (uint32_t)mr->length;
	rc = modify_qp_to_rtr(&w->a);
	if (!rc)
		rc = modify_qp_to_rtr(&w->b);
	if (!rc)
		rc = modify_qp_to_rts(&w->b);
	return rc ? rc : modify_qp(&w->a, &rts, RTS_MASK);
}
// endregion connect-ends

int connect_to_board(struct walk *w)
{
	return connect_ends(w, w->mr, RNR_EVER, READS_USUAL);
}

int await(struct rdma_resources *res, uint64_t wr_id)
{
	return poll_completion(res, wr_id, NULL, POLL_TIMEOUT_MS);
}

int write_text(struct walk *w, const char *text, uint32_t length, uint64_t addr,
	       uint32_t rkey)
{
	int rc;

	memcpy(send_slot(&w->a, 0), text, length);
	rc = post_write(&w->a, 0, length, addr, rkey, IBV_SEND_SIGNALED);
	return rc ? rc : await(&w->a, WR_ID_WRITE(0));
}

int read_back(struct walk *w, uint32_t length, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge into = { .addr = (uintptr_t)send_slot(&w->a, 0),
				.length = length,
				.lkey = w->a.mr->lkey };
	int rc = post_read(&w->a, 0, &into, addr, rkey);

	return rc ? rc : await(&w->a, WR_ID_READ(0));
}

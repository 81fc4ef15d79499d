// SPDX-License-Identifier: MIT
// report: https://github.com/ROCm/mori/pull/424
// symptom: data goes through, but the short notification after it cannot be posted on some cards
// cause: the notification is sent inline from memory that is not registered, but the QP was made without room for inline data (max_inline_data 0)
// expect: max_inline|inline
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

struct notify {
	char what[48];
	uint64_t transfer, bytes;
};

int main(int argc, char **argv)
{
	struct notify done = { "written", 7, 32768 };
	struct ibv_sge g = { (uintptr_t)&done, sizeof(done), 0 };
	struct ibv_send_wr w = { .wr_id = 2,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags =
					 IBV_SEND_SIGNALED | IBV_SEND_INLINE },
			   *bad;
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	to = card(&b);
	must(post_recv(&b, 1, 4096), "post_recv");
	must(post(&a, IBV_WR_RDMA_WRITE, 1, done.bytes, &to, IBV_SEND_SIGNALED),
	     "post");
	next(a.scq, "write");
	must(ibv_post_send(a.qp, &w, &bad), "notification");
	next(a.scq, "notification");
	next(b.rcq, "notified");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/jcxue/RDMA-Tutorial/issues/11
// symptom: with one message at a time all is well, with more of them a send fails with a local protection error after a few
// cause: the pointer into the ring is advanced by the offset instead of set to base plus offset, so it runs past the registered buffer
// expect: beyond|past|outside|exceed|out of (bounds|range|the)|behind|not (in|within|inside|covered)|end of|range|bounds
// kind: memory
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	enum {
		MSG = 8192
	};
	struct end a, b;
	size_t off = 0;
	char *at;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	at = a.buf;
	for (int i = 0; i < 12; i++) {
		struct ibv_sge g = { (uintptr_t)at, MSG, a.mr->lkey };
		struct ibv_send_wr w = { .wr_id = i,
					 .sg_list = &g,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED },
				   *bad;

		must(post_recv(&b, i, MSG), "post_recv");
		must(ibv_post_send(a.qp, &w, &bad), "post");
		if (next(a.scq, "sent").status != IBV_WC_SUCCESS)
			return 1;
		off = (off + MSG) % opt.size;
		at += off;
	}
	return 0;
}

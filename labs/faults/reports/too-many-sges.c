// SPDX-License-Identifier: MIT
// report: https://github.com/spdk/spdk/issues/640
// symptom: large requests sometimes cannot be posted on one kind of card: invalid argument, small ones work
// cause: the request is split into as many pieces as its buffers need, which is more than the max_send_sge of the QP
// expect: max_send_sge|num_sge|(more|too many) (SGEs?|scatter)
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

enum {
	PIECE = 4096
};

static int write_io(struct end *e, const struct card *to, int bytes)
{
	struct ibv_sge g[16];
	struct ibv_send_wr w = { .wr_id = bytes,
				 .sg_list = g,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	for (int off = 0; off < bytes; off += PIECE, w.num_sge++)
		g[w.num_sge] = (struct ibv_sge){ (uintptr_t)e->buf + off, PIECE,
						 e->mr->lkey };
	w.wr.rdma.remote_addr = to->addr;
	w.wr.rdma.rkey = to->rkey;
	return ibv_post_send(e->qp, &w, &bad);
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	to = card(&b);
	for (int bytes = PIECE; bytes <= 8 * PIECE; bytes *= 2) {
		must(write_io(&a, &to, bytes), "posting the request");
		if (next(a.scq, "bytes").status)
			return 1;
	}
	return 0;
}

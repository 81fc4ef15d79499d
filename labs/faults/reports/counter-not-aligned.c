// SPDX-License-Identifier: MIT
// report: https://github.com/open-mpi/ompi/pull/7872
// symptom: a read that also fetches a counter fails for some displacements and works for others
// cause: the fetch-and-add goes to an address that is no multiple of 8
// expect: align|multiple of (8|eight)|divisible
// kind: memory
// run: one
// half: unseen
#include "rep.h"

static int add(struct end *e, const struct card *to, int at)
{
	struct ibv_sge g = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr w = { .wr_id = at,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	w.wr.atomic.remote_addr = to->addr + at;
	w.wr.atomic.rkey = to->rkey;
	return ibv_post_send(e->qp, &w, &bad);
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&a);
	make_qp(&b);
	pair(&a, &b);
	cb = card(&b);
	for (int at = 0; at < 64; at += 12) { /* a row of three ints */
		must(add(&a, &cb, at), "post");
		if (next(a.scq, "add at").status != IBV_WC_SUCCESS)
			return 1;
	}
	return 0;
}

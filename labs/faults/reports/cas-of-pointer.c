// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/10923
// symptom: a compare-and-swap completes with success, but the word at the peer is unchanged, although it held the expected value
// cause: compare_add and swap of the work request hold the addresses of the values instead of the values, so the comparison fails
// expect: compare_add|compar(e|ed|ison)|(address|pointer).*(instead|not the value|of the value)|operand|(did|was|has) not (swap|match)|swap.*not
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

static int cas(struct end *e, const struct card *to, const uint64_t *expected,
	       const uint64_t *wanted)
{
	struct ibv_sge g = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr w = { .wr_id = 1,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	w.wr.atomic.remote_addr = to->addr;
	w.wr.atomic.rkey = to->rkey;
	w.wr.atomic.compare_add = (uintptr_t)expected;
	w.wr.atomic.swap = (uintptr_t)wanted;
	return ibv_post_send(e->qp, &w, &bad);
}

int main(int argc, char **argv)
{
	uint64_t expected = 516, wanted = 11;
	struct end a, b;
	struct card cb;

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&a);
	make_qp(&b);
	pair(&a, &b);
	cb = card(&b);
	*(uint64_t *)b.buf = expected;
	must(cas(&a, &cb, &expected, &wanted), "post");
	next(a.scq, "compare and swap");
	if (*(uint64_t *)b.buf == wanted)
		return 0;
	printf("it was %lu, it is %lu\n", *(uint64_t *)a.buf,
	       *(uint64_t *)b.buf);
	return 1;
}

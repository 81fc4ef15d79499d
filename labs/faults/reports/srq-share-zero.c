// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/263
// symptom: with more QPs than before the test does not start: the first message is never received, no error comes
// cause: the depth of the SRQ divided by the number of QPs gives 0, so no receive is ever posted to it
// expect: (no|without a|without any|zero|0|missing|none)[a-z ]*(receive|recv|WR|work request)s?|SRQ.*(empty|no|none|0|nothing|never)|RNR|receiver not ready
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

enum {
	QPS = 6,
	DEPTH = 4
};

int main(int argc, char **argv)
{
	struct end a, b;
	struct ibv_srq_init_attr si = { .attr = { DEPTH, 1, 0 } };
	struct ibv_sge g;
	struct ibv_recv_wr w = { .sg_list = &g, .num_sge = 1 }, *bad;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 8, 8, 1, 1, 0 } };

	open_both(&a, &b, argc, argv);
	b.srq = ibv_create_srq(b.pd, &si);
	must(b.srq ? 0 : -1, "create_srq");
	b.scq = b.rcq = ibv_create_cq(b.ctx, 64, NULL, NULL, 0);
	g = (struct ibv_sge){ (uintptr_t)b.buf, 1024, b.mr->lkey };
	for (int i = 0; i < QPS; i++)
		for (int n = 0; n < DEPTH / QPS; n++)
			must(ibv_post_srq_recv(b.srq, &w, &bad), "post");
	make_qp_as(&b, &init); /* the first of them */
	pair(&a, &b);
	must(post(&a, IBV_WR_SEND, 1, 64, NULL, IBV_SEND_SIGNALED), "post");
	next(a.scq, "sent");
	next(b.rcq, "received");
	return 0;
}

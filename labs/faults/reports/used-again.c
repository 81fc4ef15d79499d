// SPDX-License-Identifier: MIT
// report: https://github.com/Mellanox/gpu_direct_rdma_access/pull/1
// symptom: none: receives come back flushed on purpose, then the same QPs are connected again and go on
// cause: innocent: ERR, taking the flushed requests, RESET and a new connection is the way to use a QP again
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

static int drain(struct end *e, int receives)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE), "to ERR");
	for (; receives > 0; receives--)
		if (next(e->rcq, "given back").status != IBV_WC_WR_FLUSH_ERR)
			return 1;
	a.qp_state = IBV_QPS_RESET;
	must(ibv_modify_qp(e->qp, &a, IBV_QP_STATE), "to RESET");
	return 0;
}

int main(int argc, char **argv)
{
	struct end a, b;

	open_both(&a, &b, argc, argv);
	for (int round = 0; round < 3; round++) {
		pair(&a, &b);
		for (int i = 0; i < 5; i++)
			must(post_recv(&a, i, 4000), "post_recv");
		must(post(&b, IBV_WR_SEND, round, 4000, NULL,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(b.scq, "sent").status ||
		    next(a.rcq, "received").status)
			return 1;
		if (drain(&a, 4) || drain(&b, 0))
			return 1;
	}
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	must(ibv_destroy_qp(b.qp), "destroy_qp");
	printf("three rounds\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/4719
// symptom: none: at the start many QPs cannot be made, then all works
// cause: innocent: there is no call that says how much inline data a device can do, so the program tries sizes until ibv_create_qp succeeds
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

static int probe(struct end *e)
{
	struct ibv_cq *cq = ibv_create_cq(e->ctx, 4, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .cap = { 2, 2, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	int low = 0, high = 4096;
	struct ibv_qp *qp;

	while (low < high) { /* halve the range */
		init.cap.max_inline_data = (low + high + 1) / 2;
		int asked = init.cap.max_inline_data;
		qp = ibv_create_qp(e->pd, &init);
		if (qp)
			must(ibv_destroy_qp(qp), "destroy_qp");
		if (qp)
			low = asked;
		else
			high = asked - 1;
	}
	must(ibv_destroy_cq(cq), "destroy_cq");
	return low;
}

int main(int argc, char **argv)
{
	struct end a, b;

	open_both(&a, &b, argc, argv);
	printf("inline data: up to %d bytes\n", probe(&a));
	pair(&a, &b);
	must(post_recv(&b, 1, 2000), "post_recv");
	must(post(&a, IBV_WR_SEND, 2, 2000, NULL, IBV_SEND_SIGNALED), "post");
	return next(a.scq, "sent").status || next(b.rcq, "received").status;
}

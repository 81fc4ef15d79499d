// SPDX-License-Identifier: MIT
// report: https://github.com/ceph/ceph/pull/25447
// symptom: at the end of a program many requests end with a flush error
// cause: nothing: the QP is put into the error state to get its receives back, a last send tells that all have come
// expect: ^$
// kind: innocent
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	enum {
		BEACON = 99
	};
	struct end a, b;
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;
	int back = 0;

	open_both(&a, &b, argc, argv);
	a.scq = a.rcq = ibv_create_cq(a.ctx, 64, NULL, NULL, 0);
	pair(&a, &b);
	for (int i = 0; i < 10; i++)
		must(post_recv(&a, i, 256), "post_recv");
	for (int i = 0; i < 3; i++)
		must(post(&b, IBV_WR_SEND, i, 64, NULL, IBV_SEND_SIGNALED),
		     "post");
	for (int i = 0; i < 3; i++)
		next(a.rcq, "received");
	must(ibv_modify_qp(a.qp, &at, IBV_QP_STATE), "to ERR");
	must(post(&a, IBV_WR_SEND, BEACON, 0, NULL, IBV_SEND_SIGNALED), "post");
	for (int beacon = 0; back < 7 || !beacon;) {
		wc = next(a.scq, "back");
		if (wc.wr_id == BEACON)
			beacon = 1;
		else
			back++;
	}
	for (int i = 0; i < 3; i++)
		next(b.scq, "sent");
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	must(ibv_destroy_qp(b.qp), "destroy_qp");
	printf("%d receives came back\n", back);
	return 0;
}

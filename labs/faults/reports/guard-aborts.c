// SPDX-License-Identifier: MIT
// report: https://github.com/RDMA-Rust/sideway/pull/22
// symptom: posting succeeds, but neither does the peer get anything nor does a completion come
// cause: the builder's scope ends with ibv_wr_abort instead of ibv_wr_complete, which drops what was built
// expect: abort|ibv_wr_complete|(never|not|nothing)( was| been)? (posted|sent)
// kind: extended
// run: one
// half: tuned
#include "rep.h"

static void send_one(struct ibv_qp_ex *x, struct end *e, uint64_t id)
{
	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x);
	ibv_wr_set_sge(x, e->mr->lkey, (uintptr_t)e->buf, 512);
	ibv_wr_abort(x); /* leaving the scope */
}

int main(int argc, char **argv)
{
	struct end a, b;

	open_both(&a, &b, argc, argv);
	make_qp(&b);
	make_qp_ex(&a, (struct ibv_qp_cap){ 8, 8, 1, 1, 0 },
		   IBV_QP_EX_WITH_SEND);
	pair(&a, &b);
	must(post_recv(&b, 1, 512), "post_recv");
	send_one(ibv_qp_to_qp_ex(a.qp), &a, 2);
	printf("waiting for the completion\n");
	fflush(stdout);
	next(a.scq, "sent");
	next(b.rcq, "received");
	return 0;
}

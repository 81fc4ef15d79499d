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
	struct ibv_qp_init_attr_ex init = {
		.cap = { 8, 8, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND
	};
	struct end a, b;

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&b);
	a.scq = a.rcq = ibv_create_cq(a.ctx, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = a.scq;
	init.pd = a.pd;
	a.qp = ibv_create_qp_ex(a.ctx, &init);
	must(a.qp ? 0 : -1, "create_qp_ex");
	pair(&a, &b);
	must(post_recv(&b, 1, 512), "post_recv");
	send_one(ibv_qp_to_qp_ex(a.qp), &a, 2);
	printf("waiting for the completion\n");
	fflush(stdout);
	next(a.scq, "sent");
	next(b.rcq, "received");
	return 0;
}

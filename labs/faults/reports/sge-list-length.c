// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1744
// symptom: a request of two pieces posted by the extended calls ends with a local protection error; by ibv_post_send it works
// cause: rxe's provider adds up the length of the first piece for every piece of ibv_wr_set_sge_list, so the request is longer than its list
// expect: set_sge_list|sge_list|provider|librxe
// kind: extended
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_qp_ex *x;
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	make_qp(&b);
	make_qp_ex(&a, (struct ibv_qp_cap){ 8, 8, 4, 4, 0 },
		   IBV_QP_EX_WITH_RDMA_WRITE);
	pair(&a, &b);
	to = card(&b);
	struct ibv_sge pieces[2] = { { (uintptr_t)a.buf, 4096, a.mr->lkey },
				     { (uintptr_t)a.buf + 8192, 64,
				       a.mr->lkey } };
	x = ibv_qp_to_qp_ex(a.qp);
	ibv_wr_start(x);
	x->wr_id = 1;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, to.rkey, to.addr);
	ibv_wr_set_sge_list(x, 2, pieces);
	must(ibv_wr_complete(x), "wr_complete");
	return next(a.scq, "write").status != IBV_WC_SUCCESS;
}

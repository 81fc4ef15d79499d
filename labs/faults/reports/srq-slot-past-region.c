// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/issues/308
// symptom: a UD test passes with a queue for each QP and fails with the shared one: the receive ends with an error
// cause: the receive's length has the 40 bytes of the GRH but the registered memory has not, so the receive reaches past its region
// expect: (beyond|past|outside|exceed|behind|not (in|within|inside|covered)|end of|range|bounds|longer|larger)|40[- ]byte|GRH
// kind: ud
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_sge g;
	struct ibv_srq_init_attr si = { .attr = { 8, 1, 0 } };
	struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &g, .num_sge = 1 },
			   *badr;
	struct end e; /* sends to itself */
	struct card c;
	struct ibv_ah *ah;

	opt.size = 1024;
	open_end(&e, device(argc, argv));
	e.srq = ibv_create_srq(e.pd, &si);
	must(e.srq ? 0 : -1, "create_srq");
	make_ud(&e);
	c = card(&e);
	ah = make_ah(&e, &c);
	g = (struct ibv_sge){ (uintptr_t)e.buf, 1024 + 40, e.mr->lkey };
	must(ibv_post_srq_recv(e.srq, &r, &badr), "post_srq_recv");
	must(post_ud(&e, ah, &c, e.buf, 1024), "post_send");
	return next(e.rcq, "received").status != IBV_WC_SUCCESS;
}

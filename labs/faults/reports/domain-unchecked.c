// SPDX-License-Identifier: MIT
// report: https://github.com/chimera-nas/libevpl/pull/82
// symptom: starting with a domain for each thread the program fails later, where it makes its QP, and says nothing of the reason
// cause: ibv_alloc_td failed, this device has no thread domains, and nobody looked at its result
// expect: thread domain|ibv_alloc_td|parent domain|not support|unsupported|EOPNOTSUPP|NULL
// kind: extended
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a;
	struct ibv_td_init_attr ti = { 0 };
	struct ibv_parent_domain_init_attr pi = { 0 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 8, 8, 1, 1, 0 } };

	open_end(&a, device(argc, argv));
	pi.pd = a.pd;
	pi.td = ibv_alloc_td(a.ctx, &ti);
	a.pd = ibv_alloc_parent_domain(a.ctx, &pi);
	a.scq = ibv_create_cq(a.ctx, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = a.scq;
	printf("making a QP in its own domain\n");
	fflush(stdout);
	a.qp = ibv_create_qp(a.pd, &init);
	must(a.qp ? 0 : -1, "create_qp");
	printf("QP %u\n", a.qp->qp_num);
	return 0;
}

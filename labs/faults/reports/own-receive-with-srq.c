// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/2076
// symptom: with the shared queue switched on the first message is not received, the sender waits
// cause: the QP is attached to an SRQ, so ibv_post_recv on the QP is refused; nobody looked at its result and the SRQ is empty
// expect: SRQ|shared receive|post_recv.*(fail|refus|EINVAL|return)|(no|without a|without any)[a-z ]*(receive|recv)|RNR|receiver not ready
// kind: nothing-outstanding
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct ibv_srq_init_attr si = { .attr = { 16, 1, 0 } };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 8, 8, 1, 1, 0 } };

	open_both(&a, &b, argc, argv);
	b.srq = ibv_create_srq(b.pd, &si);
	b.scq = b.rcq = ibv_create_cq(b.ctx, 64, NULL, NULL, 0);
	must(b.srq && b.rcq ? 0 : -1, "SRQ or CQ");
	make_qp_as(&b, &init);
	pair(&a, &b);
	for (int i = 0; i < 8; i++)
		post_recv(&b, i, 256);
	must(post(&a, IBV_WR_SEND, 100, 64, NULL, IBV_SEND_SIGNALED), "post");
	next(a.scq, "sent");
	next(b.rcq, "received");
	return 0;
}

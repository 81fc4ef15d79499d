// SPDX-License-Identifier: MIT
// report: https://github.com/SymbioticLab/Justitia/issues/3
// symptom: ported from InfiniBand to RoCE the program cannot connect: the step to RTR is refused
// cause: the GRH is filled with the peer's GID only, sgid_index stays 0, and the own GID of that index is of another address family than the peer's
// expect: sgid|gid[_ ]?index|index (0|of the GID)|(IPv6|link-local|fe80).*(IPv4|10\.99)|(IPv4|10\.99).*(IPv6|link-local|fe80)|(address )?famil(y|ies)|own GID
// kind: attributes
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;
	const struct ibv_qp_attr usual = opt.qp;

	open_both(&a, &b, argc, argv);
	make_qp(&a);
	make_qp(&b);
	cb = card(&b);
	opt.qp.max_dest_rd_atomic = opt.qp.max_rd_atomic = 1;
	opt.qp.retry_cnt = 3;
	opt.qp.ah_attr.grh.sgid_index = 0;
	opt.qp.ah_attr.grh.hop_limit = 64;
	connect_qp(&a, &cb);
	opt.qp = usual;
	connect_qp(&b, &(struct card){ .qpn = a.qp->qp_num, .gid = cb.gid });
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 64, &cb, IBV_SEND_SIGNALED),
	     "post");
	return next(a.scq, "write").status != IBV_WC_SUCCESS;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/kvcache-ai/Mooncake/issues/3868
// symptom: small transfers work, the first large WRITE between two machines with different ports ends with an invalid request
// cause: each side sets path_mtu from its own port, nobody exchanges it, and packets of 1024 bytes come to a QP that has 512
// expect: mtu
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card ca, cb;

	opt.qp.rq_psn = opt.qp.sq_psn = 0;
	opt.qp.max_dest_rd_atomic = opt.qp.max_rd_atomic = 1;
	opt.qp.retry_cnt = 3;
	open_both(&a, &b, argc, argv);
	make_qp(&a);
	make_qp(&b);
	ca = card(&a);
	cb = card(&b);
	opt.qp.path_mtu = IBV_MTU_1024;
	connect_qp(&a, &cb);
	opt.qp.path_mtu = IBV_MTU_512;
	connect_qp(&b, &ca);
	for (int len = 64; len <= 16384; len *= 16) {
		must(post(&a, IBV_WR_RDMA_WRITE, len, len, &cb,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(a.scq, "write").status != IBV_WC_SUCCESS)
			return 1;
	}
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ROCm/rocm-systems/pull/11183
// symptom: the QP that a process has with itself, to flush what came in, dies at its first request
// cause: the QP's access flags allow only READ, and the flush begins with a WRITE of a dummy
// expect: qp_access|access[_ ]flags?|REMOTE_WRITE|(QP|queue pair).*(not allow|permit|right|grant|refus|accept)|not allow
// kind: attributes
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a;
	struct card me;

	opt.qp.rq_psn = opt.qp.sq_psn = 0;
	opt.qp.max_dest_rd_atomic = opt.qp.max_rd_atomic = 1;
	opt.qp.retry_cnt = 3;
	opt.qp.qp_access_flags = LOCAL | IBV_ACCESS_REMOTE_READ;
	open_end(&a, device(argc, argv));
	make_qp(&a);
	me = card(&a);
	connect_qp(&a, &me); /* itself */
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 8, &me, 0), "post");
	must(post(&a, IBV_WR_RDMA_READ, 2, 8, &me, IBV_SEND_SIGNALED), "post");
	return next(a.scq, "flush").status != IBV_WC_SUCCESS;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1021
// symptom: a window cannot be bound to a region that is registered for everything it needs to do
// cause: the region was registered without IBV_ACCESS_MW_BIND
// expect: MW_BIND|bind[a-z]* (access|right|permission|flag)|(without|lacks|no|missing)[a-z ]*(right|access|permission)?.*bind
// kind: memory
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = { .wr_id = 1,
				    .send_flags = IBV_SEND_SIGNALED };

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	mw = ibv_alloc_mw(a.pd, IBV_MW_TYPE_1);
	must(mw ? 0 : -1, "alloc_mw");
	bind.bind_info.mr = a.mr;
	bind.bind_info.addr = (uintptr_t)a.buf;
	bind.bind_info.length = 4096;
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	must(ibv_bind_mw(a.qp, mw, &bind), "bind_mw");
	return next(a.scq, "bind").status != IBV_WC_SUCCESS;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1107
// symptom: windows from a pool can be bound to some buffers and not to others
// cause: the window was allocated in another protection domain than the region it is bound to
// expect: protection domain|(other|another|different|same|two|its) PDs?|PDs? (of|differ)|(^|[^a-z])PD([^a-z]|$)
// kind: memory
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct ibv_pd *pool;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = { .wr_id = 1,
				    .send_flags = IBV_SEND_SIGNALED };

	opt.access |= IBV_ACCESS_MW_BIND;
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	pool = ibv_alloc_pd(a.ctx); /* of the pool of windows */
	mw = pool ? ibv_alloc_mw(pool, IBV_MW_TYPE_1) : NULL;
	must(mw ? 0 : -1, "alloc_mw");
	bind.bind_info.mr = a.mr;
	bind.bind_info.addr = (uintptr_t)a.buf;
	bind.bind_info.length = 4096;
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	must(ibv_bind_mw(a.qp, mw, &bind), "bind_mw");
	return next(a.scq, "bind").status != IBV_WC_SUCCESS;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/openucx/ucx/pull/9363
// symptom: registering fails at once on some machines, though the library was built with on-demand paging
// cause: IBV_ACCESS_ON_DEMAND is asked for without a look at the device's odp_caps, and this device has none
// expect: on.?demand|\bODP\b
// kind: memory
// run: one
// half: tuned
#include "rep.h"

enum {
	UNPINNED = LOCAL | REMOTE | IBV_ACCESS_ON_DEMAND
};

int main(int argc, char **argv)
{
	struct ibv_mr *mr;
	struct end e;

	open_end(&e, device(argc, argv));
	make_qp(&e);
	mr = ibv_reg_mr(e.pd, e.buf, 1024, UNPINNED);
	must(mr ? 0 : -1, "registering without pinning");
	printf("lkey %#x\n", mr->lkey);
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/6841
// symptom: on a virtual machine a CQ for each core cannot be made from some core on
// cause: comp_vector is the number of the core, and the device has fewer completion vectors than there are cores
// expect: vector
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a;
	int cores = 96;

	open_end(&a, device(argc, argv));
	a.ch = ibv_create_comp_channel(a.ctx);
	must(a.ch ? 0 : -1, "comp_channel");
	for (int core = 0; core < cores; core++) {
		a.scq = ibv_create_cq(a.ctx, 16, NULL, a.ch, core);
		must(a.scq ? 0 : -1, "a CQ for each core");
		printf("CQ of core %d\n", core);
		must(ibv_destroy_cq(a.scq), "destroy_cq");
	}
	return 0;
}

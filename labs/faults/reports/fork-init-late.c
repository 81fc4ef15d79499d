// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1011
// symptom: making the process safe for fork fails with invalid argument, and nobody can say which argument
// cause: ibv_fork_init has to come before the first registration, and memory is registered already
// expect: ibv_fork_init
// kind: memory
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end e;

	open_end(&e, device(argc, argv));
	make_qp(&e);
	must(ibv_fork_init(), "ibv_fork_init");
	printf("safe\n");
	return 0;
}

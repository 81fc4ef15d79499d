// SPDX-License-Identifier: MIT
// report: https://github.com/mellanox-hpc/ibverbs-tests/pull/22
// symptom: the QP cannot leave RESET: invalid argument on a card with one port
// cause: a fixed port number is used in ibv_modify_qp that the device does not have
// expect: port_num|port.*(2|one|1|no such|not have|exist|count|range)
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .pkey_index = 0,
				 .port_num = 2,
				 .qp_access_flags = LOCAL | REMOTE };
	struct end e;

	open_end(&e, device(argc, argv));
	make_qp(&e);
	must(ibv_modify_qp(e.qp, &a, TO_INIT), "ibv_modify_qp");
	printf("initialized\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/spdk/spdk/issues/1387
// symptom: when the initiator is interrupted the target's transfer from its memory ends with a remote access error
// cause: the initiator deregistered its buffer while the target still had a READ of it to make
// expect: dereg|no longer|(stale|invalid|unknown|old|freed) (r_?key|key|MR|memory region)|(MR|memory region|r_?key|registration).*(gone|removed|destroyed|freed|not exist|does not|ended)|no (MR|memory region)
// kind: order
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end initiator, target;
	struct card io;

	open_both(&initiator, &target, argc, argv);
	pair(&initiator, &target);
	io = card(&initiator);
	for (int i = 0; i < 4; i++) {
		must(post(&target, IBV_WR_RDMA_READ, i, 4096, &io,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(target.scq, "data in").status != IBV_WC_SUCCESS)
			return 1;
		if (i == 1) { /* Ctrl-C over there, queued I/O here */
			must(ibv_dereg_mr(initiator.mr), "dereg_mr");
			printf("the initiator freed its buffer\n");
		}
	}
	return 0;
}

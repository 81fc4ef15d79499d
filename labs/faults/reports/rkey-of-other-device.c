// SPDX-License-Identifier: MIT
// report: https://github.com/chimera-nas/libevpl/pull/89
// symptom: on a machine with two devices the peer's READ is refused with a remote access error; with one device it works
// cause: the rkey that was sent is of the MR on the other device, not of the one that the QP is on
// expect: rkey.*(other|another|different|belong|no MR|rxe0)|(other|another|different) (device|PD|protection domain|context)
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

static const char *nics[] = { "rxe0", "rxe1" };

int main(void)
{
	struct end slot[2], peer, *used = &slot[1];
	struct card c;

	for (int i = 0; i < 2; i++) { /* the same memory on every device */
		open_end(&slot[i], nics[i]);
		slot[i].buf = slot[0].buf;
		slot[i].mr = ibv_reg_mr(slot[i].pd, slot[i].buf, opt.size,
					opt.access);
		must(slot[i].mr ? 0 : -1, "reg_mr");
	}
	open_end(&peer, nics[0]);
	make_qp(used);
	make_qp(&peer);
	c = card(used);
	c.rkey = slot[0].mr->rkey; /* before the device was known */
	pair(used, &peer);
	printf("asking for %#x\n", c.rkey);
	must(post(&peer, IBV_WR_RDMA_READ, 1, 256, &c, IBV_SEND_SIGNALED),
	     "post");
	return next(peer.scq, "read").status != IBV_WC_SUCCESS;
}

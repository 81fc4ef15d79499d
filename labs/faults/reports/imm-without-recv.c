// SPDX-License-Identifier: MIT
// report: https://github.com/DeepLink-org/DLSlime/pull/71
// symptom: one-sided writes that worked before fail with RNR as soon as they carry a number for the peer
// cause: a WRITE with immediate data takes a receive at the peer, and the peer posts one only when its user asks for it
// expect: no receive|(receive|recv).*(immediate|IMM|posted|needs?|takes?|consum)|(immediate|IMM).*(receive|recv)
// kind: capacity
// run: server/client
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's', fd = meet(server, 7004);
	struct card me, peer;
	struct end e;

	open_end(&e, device(argc, argv));
	opt.qp.rnr_retry = 2;
	opt.qp.min_rnr_timer = 10;
	join(fd, &e, &me, &peer);
	if (server)
		must(post_recv(&e, 1, 0), "post_recv");
	swap(fd, &me, &peer, sizeof(me));
	if (server) {
		next(e.rcq, "user's receive");
		swap(fd, &me, &peer, sizeof(me));
		return 0;
	}
	peer.addr += 64;
	for (int i = 0; i < 4; i++) {
		must(post(&e, IBV_WR_RDMA_WRITE_WITH_IMM, i, 1024, &peer,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(e.scq, "write").status)
			return 1;
	}
	swap(fd, &me, &peer, sizeof(me));
	return 0;
}

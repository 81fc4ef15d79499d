// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/issues/114
// symptom: with two different cards in the two machines one side fails on the way to RTS, with equal cards all is well
// cause: max_rd_atomic is set to the number of READs that the peer's card can have outstanding, which is more than the own device's max_qp_rd_atom
// expect: max_rd_atomic|rd_atom|outstanding (RDMA )?(READ|atomic)|READs? (at once|in flight|outstanding)|(200|128).*(128|200)
// kind: capacity
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;
	int peer_reads = 200; /* came over TCP, from a larger card */

	opt.qp.rq_psn = opt.qp.sq_psn = 0;
	opt.qp.max_dest_rd_atomic = 16;
	opt.qp.max_rd_atomic = peer_reads;
	opt.qp.retry_cnt = 3;
	open_both(&a, &b, argc, argv);
	make_qp(&a);
	make_qp(&b);
	cb = card(&b);
	connect_qp(&a, &cb);
	printf("connected\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1441
// symptom: all messages of the group arrive, with the right length, and their text is wrong
// cause: the sender's buffer keeps 40 bytes in front for a GRH, as the receiver's does, and the send begins at its start instead of behind them
// expect: 40[- ]byte|[^0-9]40 |GRH
// kind: ud
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	char *out, *in;
	struct end e; /* sends to itself */
	struct card c;
	struct ibv_ah *ah;

	open_end(&e, device(argc, argv));
	make_ud(&e);
	c = card(&e);
	ah = make_ah(&e, &c);
	in = e.buf;	    /* 40 bytes of room for the GRH, then the message */
	out = e.buf + 4096; /* the same */
	strcpy(out + 40, "tick 1");
	must(post_recv(&e, 1, 40 + 64), "post_recv");
	must(post_ud(&e, ah, &c, out, 64), "post_send");
	next(e.rcq, "received");
	printf("the message says \"%s\"\n", in + 40);
	return !!strcmp(in + 40, "tick 1");
}

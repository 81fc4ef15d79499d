// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/fabtests/pull/280
// symptom: the ping-pong stops at a larger size: the message was sent, says its completion, and does not arrive
// cause: a UD message must fit into one packet, and this one is longer than the MTU
// expect: MTU|one packet|single packet|too (long|large|big)|(longer|larger|bigger|more) than
// kind: ud
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end e; /* sends to itself */
	struct card c;
	struct ibv_ah *ah;

	open_end(&e, device(argc, argv));
	make_ud(&e);
	c = card(&e);
	ah = make_ah(&e, &c);
	for (int len = 512; len <= 8192; len *= 4) {
		must(post_recv(&e, len, 40 + 8192), "post_recv");
		must(post_ud(&e, ah, &c, e.buf + 16384, len), "post_send");
		next(e.scq, "sent");
		printf("%u bytes\n", next(e.rcq, "received").byte_len);
	}
	return 0;
}

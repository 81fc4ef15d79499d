// SPDX-License-Identifier: MIT
// report: https://github.com/gpudirect/libgdsync/issues/43
// symptom: with the receive buffer cut to the size of the message the wait for the message never ends well
// cause: a UD receive needs 40 bytes more than the message, for the GRH in front of it
// expect: \b40\b|GRH|global routing header
// kind: ud
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;

	opt.qp.qkey = 0x1111;
	opt.qp.ah_attr.grh.hop_limit = 8;
	open_both(&a, &b, argc, argv);
	make_ud(&a);
	make_ud(&b);
	cb = card(&b);
	must(post_recv(&b, 1, 512), "post_recv");
	must(post_ud(&a, make_ah(&a, &cb), &cb, a.buf, 512), "post");
	next(a.scq, "sent");
	return next(b.rcq, "received").status != IBV_WC_SUCCESS;
}

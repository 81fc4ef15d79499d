// SPDX-License-Identifier: MIT
// report: https://github.com/gpudirect/libgdsync/issues/10
// symptom: the address handle cannot be made, the printed address of the peer has a QP number and an empty GID
// cause: without a GID index nobody queries the GID, so the destination GID of the address handle is all zero
// expect: (GID|destination|dgid|address).*(zero|empty|all 0|::|unset|not set|missing|invalid)|(zero|empty|unset|missing|invalid|no|all-zero)[a-z ]*(GID|address)
// kind: ud
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card peer = { 0 };

	opt.qp.qkey = 0x1234;
	open_both(&a, &b, argc, argv);
	a.scq = a.rcq = ibv_create_cq(a.ctx, 16, NULL, NULL, 0);
	make_ud(&a);
	b.scq = b.rcq = ibv_create_cq(b.ctx, 16, NULL, NULL, 0);
	make_ud(&b);
	peer.qpn = b.qp->qp_num; /* all that InfiniBand needed besides a LID */
	make_ah(&a, &peer);
	printf("QP %u can be reached\n", peer.qpn);
	return 0;
}

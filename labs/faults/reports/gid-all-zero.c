// SPDX-License-Identifier: MIT
// report: https://github.com/gpudirect/libgdsync/issues/10
// symptom: the address handle cannot be made, the printed address of the peer has a QP number and an empty GID
// cause: without a GID index nobody queries the GID, so the destination GID of the address handle is all zero
// expect: (GID|destination|dgid|address).*(zero|empty|all 0|::|unset|not set|missing|invalid)|(zero|empty|unset|missing|invalid|no|all-zero)[a-z ]*(GID|address)
// kind: ud
// run: one
// half: tuned
#include "rep.h"

static void ud_qp(struct end *e)
{
	struct ibv_qp_attr at = { .port_num = 1, .qkey = 0x1234 };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { 8, 8, 1, 1, 0 } };
	int mask = (TO_INIT ^ IBV_QP_ACCESS_FLAGS) | IBV_QP_QKEY;

	e->scq = e->rcq = ibv_create_cq(e->ctx, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = e->scq;
	e->qp = ibv_create_qp(e->pd, &init);
	must(e->qp ? 0 : -1, "create_qp");
	for (int s = 1; s <= IBV_QPS_RTS; s++, mask = IBV_QP_STATE) {
		at.qp_state = s;
		must(ibv_modify_qp(e->qp, &at,
				   mask | (s == IBV_QPS_RTS ? IBV_QP_SQ_PSN
							    : 0)),
		     "modify_qp");
	}
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct card peer = { 0 };
	struct ibv_ah_attr attr = { .port_num = 1, .is_global = 1 };

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	ud_qp(&a);
	ud_qp(&b);
	peer.qpn = b.qp->qp_num; /* all that InfiniBand needed besides a LID */
	attr.grh.dgid = peer.gid;
	attr.grh.sgid_index = 1;
	attr.grh.hop_limit = 4;
	must(ibv_create_ah(a.pd, &attr) ? 0 : -1, "create_ah");
	printf("QP %u can be reached\n", peer.qpn);
	return 0;
}

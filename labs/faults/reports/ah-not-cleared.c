// SPDX-License-Identifier: MIT
// report: https://github.com/NVIDIA/nvshmem/issues/21
// symptom: at the start, on some runs, the address handle is refused
// cause: the attributes of the address handle were never cleared, and a field that nobody sets holds what was in the memory
// expect: sgid_index|gid[_ ]?index|index (of|90)|uninitiali[sz]ed|(not|never) (set|zeroed|cleared|initiali[sz]ed)|garbage|[^0-9]90([^0-9]|$)|0x5a
// kind: ud
// run: one
// half: unseen
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
	struct end a;
	struct card me;
	struct ibv_ah_attr *attr = malloc(sizeof(*attr));

	memset(attr, 0x5a, sizeof(*attr)); /* what malloc found */
	open_end(&a, device(argc, argv));
	ud_qp(&a);
	me = card(&a);
	attr->port_num = 1;
	attr->is_global = 1;
	attr->dlid = 0;
	attr->sl = 0;
	attr->src_path_bits = 0;
	attr->grh.dgid = me.gid;
	attr->grh.hop_limit = 255;
	must(ibv_create_ah(a.pd, attr) ? 0 : -1, "create_ah");
	printf("address handle\n");
	return 0;
}

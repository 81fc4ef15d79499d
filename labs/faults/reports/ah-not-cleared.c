// SPDX-License-Identifier: MIT
// report: https://github.com/NVIDIA/nvshmem/issues/21
// symptom: at the start, on some runs, the address handle is refused
// cause: the attributes of the address handle were never cleared, and a field that nobody sets holds what was in the memory
// expect: sgid_index|gid[_ ]?index|index (of|90)|uninitiali[sz]ed|(not|never) (set|zeroed|cleared|initiali[sz]ed)|garbage|[^0-9]90([^0-9]|$)|0x5a
// kind: ud
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a;
	struct card me;
	struct ibv_ah_attr *attr = malloc(sizeof(*attr));

	memset(attr, 0x5a, sizeof(*attr)); /* what malloc found */
	opt.qp.qkey = 0x1234;
	open_end(&a, device(argc, argv));
	a.scq = a.rcq = ibv_create_cq(a.ctx, 16, NULL, NULL, 0);
	make_ud(&a);
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

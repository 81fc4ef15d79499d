// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1214
// symptom: on Soft-RoCE no address handle can be made, though connected QPs work
// cause: the GID index that the user chose is not handed on to the route, so the address handle is made with index 0, which is the link-local GID and cannot reach the IPv4 one of the peer
// expect: (GID|sgid).?index|sgid_index|link.local|fe80|index 0
// kind: ud
// run: one
// half: tuned
#include "rep.h"

static int gid_index;

static struct ibv_ah *address(struct ibv_pd *pd, union ibv_gid peer)
{
	struct ibv_ah_attr to = { .is_global = 1,
				  .port_num = 1,
				  .grh = { .dgid = peer, .hop_limit = 64 } };

	return ibv_create_ah(pd, &to);
}

int main(int argc, char **argv)
{
	union ibv_gid peer;
	struct ibv_ah *ah;
	struct end a;

	gid_index = argc > 3 ? atoi(argv[3]) : 1;
	open_end(&a, device(argc, argv));
	make_qp(&a);
	must(ibv_query_gid(a.ctx, 1, gid_index, &peer), "query_gid");
	ah = address(a.pd, peer);
	must(ah ? 0 : -1, "Failed to create AH");
	printf("address handle\n");
	return ibv_destroy_ah(ah);
}

// SPDX-License-Identifier: MIT
// report: https://github.com/madsys-dev/smart/issues/2
// symptom: what worked on InfiniBand cannot be brought to RTR on Ethernet: invalid argument
// cause: is_global is 0 and the peer is named by LID, but RoCE needs a GRH with the peer's GID
// expect: is_global|\bGRH\b|\bGID\b
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = REMOTE,
				 .path_mtu = IBV_MTU_512,
				 .rq_psn = 3185,
				 .max_dest_rd_atomic = 16,
				 .min_rnr_timer = 12 };
	struct ibv_port_attr port;
	struct end e, peer;

	open_both(&e, &peer, argc, argv);
	make_qp(&e);
	make_qp(&peer);
	must(ibv_query_port(peer.ctx, 1, &port), "query_port");
	must(ibv_modify_qp(e.qp, &a, TO_INIT), "to INIT");
	a.qp_state = IBV_QPS_RTR;
	a.dest_qp_num = peer.qp->qp_num;
	a.ah_attr.is_global = 0;
	a.ah_attr.dlid = port.lid;
	a.ah_attr.port_num = 1;
	must(ibv_modify_qp(e.qp, &a, TO_RTR), "Third ibv_modify_qp");
	printf("ready to receive\n");
	return 0;
}

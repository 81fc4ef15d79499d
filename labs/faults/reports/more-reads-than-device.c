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
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&a);
	make_qp(&b);
	cb = card(&b);
	at.qp_access_flags = REMOTE;
	must(ibv_modify_qp(a.qp, &at, TO_INIT), "to INIT");
	at.qp_state = IBV_QPS_RTR;
	at.path_mtu = IBV_MTU_1024;
	at.dest_qp_num = cb.qpn;
	at.max_dest_rd_atomic = 16;
	at.min_rnr_timer = 12;
	at.ah_attr.port_num = 1;
	at.ah_attr.is_global = 1;
	at.ah_attr.grh = (struct ibv_global_route){ cb.gid, 0, 1, 4, 0 };
	must(ibv_modify_qp(a.qp, &at, TO_RTR), "to RTR");
	at.qp_state = IBV_QPS_RTS;
	at.timeout = 14;
	at.retry_cnt = 3;
	at.rnr_retry = 7;
	at.max_rd_atomic = peer_reads;
	must(ibv_modify_qp(a.qp, &at, TO_RTS), "to RTS");
	printf("connected\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/SoftRoCE/rxe-dev/issues/31
// symptom: a program that joins a multicast group gets nothing of what is sent to it
// cause: the address that it joins is the unicast address of a machine, not one of a multicast group
// expect: unicast|(not|no) (a |an |in the )?multicast|224\.|239\.|not (a )?group|class D
// kind: ud
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in own = { .sin_family = AF_INET };
	struct sockaddr_in group = { .sin_family = AF_INET };
	struct ibv_qp_init_attr init = { .cap = { 8, 8, 1, 1, 0 },
					 .qp_type = IBV_QPT_UD };
	struct rdma_cm_id *id;

	inet_pton(AF_INET, ip, &own.sin_addr);
	inet_pton(AF_INET, "10.99.0.2", &group.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_UDP), "create_id");
	must(rdma_bind_addr(id, (void *)&own), "bind_addr");
	must(rdma_create_qp(id, NULL, &init), "create_qp");
	must(rdma_join_multicast(id, (void *)&group, NULL), "join");
	event(ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	printf("joined\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ska-sa/spead2/issues/45
// symptom: given 127.0.0.1 the program crashes when it starts, with the address of the card it runs
// cause: rdma_bind_addr accepts the loopback address but no RDMA device has it, so id->verbs stays NULL
// expect: loopback|127\.0\.0\.1|no (RDMA )?device|verbs.*NULL|NULL|not bound|wildcard
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(7143) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct ibv_pd *pd;

	inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_bind_addr(id, (void *)&at), "bind_addr");
	printf("bound\n");
	fflush(stdout);
	pd = ibv_alloc_pd(id->verbs);
	must(pd ? 0 : -1, "alloc_pd");
	must(rdma_listen(id, 4), "listen");
	printf("listening\n");
	return 0;
}

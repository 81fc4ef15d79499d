// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/60
// symptom: a client that was turned away does not end: it sits in rdma_destroy_id
// cause: on the error path the REJECTED event is never acknowledged, and rdma_destroy_id waits for that
// expect: rdma_ack_cm_event|acknowledg|unacked
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7105) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	inet_pton(AF_INET, argc > 1 ? argv[1] : "10.99.0.1", &to.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_resolve_addr(id, NULL, (void *)&to, 1000), "resolve_addr");
	event(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, 1000), "resolve_route");
	event(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	must(rdma_create_qp(id, NULL, &init), "create_qp");
	must(rdma_connect(id, &param), "connect");
	must(rdma_get_cm_event(ch, &e), "get_cm_event");
	if (e->event == RDMA_CM_EVENT_ESTABLISHED) {
		rdma_ack_cm_event(e);
		printf("connected\n");
		return 0;
	}
	printf("failed: %s, status %d\n", rdma_event_str(e->event), e->status);
	fflush(stdout);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
	return 1;
}

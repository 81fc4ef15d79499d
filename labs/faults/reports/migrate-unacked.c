// SPDX-License-Identifier: MIT
// report: https://github.com/pmem/rpma/pull/89
// symptom: giving the connection an event channel of its own never returns
// cause: rdma_migrate_id waits until all events of the id are acknowledged, and the event that is being handled is not
// expect: acknowledg|unacked|rdma_ack_cm_event|not acked|(^|[^a-z])ack([^a-z]|$)
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7141) };
	struct rdma_event_channel *common = rdma_create_event_channel();
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;

	inet_pton(AF_INET, argc > 1 ? argv[1] : "10.99.0.1", &to.sin_addr);
	must(rdma_create_id(common, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_resolve_addr(id, NULL, (void *)&to, 2000), "resolve_addr");
	must(rdma_get_cm_event(common, &e), "get_cm_event");
	printf("%s\n", rdma_event_str(e->event));
	fflush(stdout);
	if (e->event == RDMA_CM_EVENT_ADDR_RESOLVED) {
		must(rdma_migrate_id(id, own), "migrate_id");
		printf("migrated\n");
	}
	rdma_ack_cm_event(e);
	must(rdma_resolve_route(id, 2000), "resolve_route");
	event(own, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return 0;
}

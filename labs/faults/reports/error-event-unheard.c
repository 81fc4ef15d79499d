// SPDX-License-Identifier: MIT
// report: https://github.com/zrlio/disni/issues/41
// symptom: connecting sometimes never returns: neither a connection nor an error
// cause: resolving failed and rdma_cm said so by an event, but the event loop knows only the good events and waits on for one that cannot come
// expect: (ADDR|ROUTE)_ERROR|ETIMEDOUT|timed out|(failed|error|bad) event|nobody (answers|has)|no (such )?(host|neighbo)|ARP|neighbo
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

enum {
	IDLE,
	ADDRESS,
	ROUTE,
	CONNECTED
};

static int state;

static void dispatch(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *e;

	must(rdma_get_cm_event(ch, &e), "rdma_get_cm_event");
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		state = ADDRESS;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		state = ROUTE;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		state = CONNECTED;
		break;
	default:
		break;
	}
	rdma_ack_cm_event(e);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7122) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	inet_pton(AF_INET, argc > 1 ? argv[1] : "10.99.0.77", &to.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_resolve_addr(id, NULL, (void *)&to, 1000), "resolve_addr");
	while (state != ADDRESS)
		dispatch(ch);
	must(rdma_resolve_route(id, 1000), "resolve_route");
	while (state != ROUTE)
		dispatch(ch);
	printf("resolved\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/201
// symptom: the measurement is done and both programs stay: each waits for the event that the connection has ended
// cause: RDMA_CM_EVENT_DISCONNECTED comes only when one side calls rdma_disconnect, and the count that should make it do so is missing
// expect: rdma_disconnect|(never|nobody|no one|neither|not).*disconnect
// kind: rdma_cm
// run: server/client
// half: tuned
#include "rep.h"

static int disconnects_left;

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's';
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7106) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *id;

	setvbuf(stdout, NULL, _IOLBF, 0);
	inet_pton(AF_INET, "10.99.0.1", &to.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	if (server) {
		must(rdma_bind_addr(id, (void *)&to), "bind_addr");
		must(rdma_listen(id, 1), "listen");
		id = event(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		must(rdma_create_qp(id, NULL, &init), "create_qp");
		must(rdma_accept(id, &param), "accept");
	} else {
		sleep(1);
		must(rdma_resolve_addr(id, NULL, (void *)&to, 1000), "addr");
		event(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
		must(rdma_resolve_route(id, 1000), "route");
		event(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
		must(rdma_create_qp(id, NULL, &init), "create_qp");
		must(rdma_connect(id, &param), "connect");
	}
	event(ch, RDMA_CM_EVENT_ESTABLISHED);
	printf("measured\n");
	if (disconnects_left > 0)
		must(rdma_disconnect(id), "disconnect");
	event(ch, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	rdma_destroy_id(id);
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/RDMA-Rust/sideway/pull/114
// symptom: rdma_connect says invalid argument once the greeting in it has grown
// cause: with RDMA_PS_TCP a connect carries at most 56 bytes of private data, and this greeting has more
// expect: private.?data.*(56|too long|limit|exceed|more than|at most|longer)|56 bytes
// kind: rdma_cm
// run: server/client
// half: tuned
#include "rep.h"

static struct greeting {
	char name[32], session[32];
	struct card card;
} hello = { "loader", "0123456789abcdef", { 0 } };

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's';
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7108) };
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { .private_data = &hello,
					 .private_data_len = sizeof(hello) };
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct rdma_cm_id *id;

	setvbuf(stdout, NULL, _IOLBF, 0);
	inet_pton(AF_INET, "10.99.0.1", &to.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	if (server) {
		must(rdma_bind_addr(id, (void *)&to), "bind_addr");
		must(rdma_listen(id, 1), "listen");
		event(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		return 0;
	}
	sleep(1);
	must(rdma_resolve_addr(id, NULL, (void *)&to, 1000), "resolve_addr");
	event(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, 1000), "resolve_route");
	event(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	must(rdma_create_qp(id, NULL, &init), "create_qp");
	must(rdma_connect(id, &param), "connect");
	event(ch, RDMA_CM_EVENT_ESTABLISHED);
	return 0;
}

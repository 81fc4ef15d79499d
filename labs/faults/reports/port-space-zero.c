// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/229
// symptom: the listening endpoint cannot be made, the error is: invalid argument
// cause: the port space that is passed on is 0, which is none of the RDMA_PS_ values
// expect: port[ _]?space|RDMA_PS
// kind: rdma_cm
// run: one
// half: unseen
#include "rep.h"

struct wish {
	const char *ip;
	int port;
	int port_space; /* who fills it? */
};

static struct rdma_cm_id *endpoint(const struct wish *w)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(w->port) };
	struct rdma_cm_id *id;

	inet_pton(AF_INET, w->ip, &at.sin_addr);
	must(rdma_create_id(ch, &id, NULL, w->port_space), "create_id");
	must(rdma_bind_addr(id, (void *)&at), "bind_addr");
	must(rdma_listen(id, 1), "listen");
	return id;
}

int main(int argc, char **argv)
{
	struct wish w = { .ip = argc > 1 ? argv[1] : "10.99.0.1",
			  .port = 7145 };

	endpoint(&w);
	printf("listening\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/NVIDIA/daqiri/issues/182
// symptom: a second connection of the same client makes the server fail with invalid argument, instead of only being turned away
// cause: the request was already answered with rdma_reject, then the code goes on to rdma_accept on the same id
// expect: reject
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

static int known;

static struct rdma_cm_id *answer(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7 };

	cm_qp(id);
	for (int slot = 0; slot < 4; slot++) {
		if (known) {
			printf("this client has a slot already\n");
			must(rdma_reject(id, NULL, 0), "reject");
			break;
		}
		known = 1;
		break;
	}
	must(rdma_accept(id, &param), "accept");
	return id;
}

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *sch = rdma_create_event_channel();
	struct rdma_event_channel *cch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_cm_id *client;

	hear(sch, ip, 7121);
	for (int i = 0; i < 2; i++) {
		client = dial(cch, ip, 7121);
		cm_qp(client);
		must(rdma_connect(client, &param), "connect");
		answer(event(sch, RDMA_CM_EVENT_CONNECT_REQUEST));
		event(cch, RDMA_CM_EVENT_ESTABLISHED);
		event(sch, RDMA_CM_EVENT_ESTABLISHED);
	}
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/spdk/spdk/issues/851
// symptom: a target crashes when a client leaves while requests are under way in the layer below
// cause: the disconnect destroys the QP, and the last request that returns closes the connection once more: id->qp is NULL then
// expect: (already|was|been|twice|second)[a-z ]*destroy|destroyed.*(already|twice|before|earlier)|NULL|no QP
// kind: order
// run: one
// half: tuned
#include "rep.h"

struct connection {
	struct rdma_cm_id *id;
	int requests; /* in the layer below */
};

static void close_it(struct connection *c)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	must(ibv_query_qp(c->id->qp, &attr, IBV_QP_STATE, &init), "query_qp");
	printf("closing in state %d\n", attr.qp_state);
	fflush(stdout);
	rdma_destroy_qp(c->id);
}

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *sch = rdma_create_event_channel();
	struct rdma_event_channel *cch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct connection c = { .requests = 2 };
	struct rdma_cm_id *client;

	hear(sch, ip, 7127);
	client = dial(cch, ip, 7127);
	cm_qp(client);
	must(rdma_connect(client, &param), "connect");
	c.id = event(sch, RDMA_CM_EVENT_CONNECT_REQUEST);
	cm_qp(c.id);
	must(rdma_accept(c.id, &param), "accept");
	event(cch, RDMA_CM_EVENT_ESTABLISHED);
	event(sch, RDMA_CM_EVENT_ESTABLISHED);
	must(rdma_disconnect(client), "disconnect");
	event(sch, RDMA_CM_EVENT_DISCONNECTED);
	close_it(&c);
	while (c.requests--) /* return one by one */
		usleep(50000);
	close_it(&c);
	return 0;
}

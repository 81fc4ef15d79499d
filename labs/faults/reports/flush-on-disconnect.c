// SPDX-License-Identifier: MIT
// report: https://github.com/spdk/spdk/issues/298
// symptom: none: on each disconnect the log has a flush error for each receive that was posted
// cause: innocent: a disconnect moves the QP to ERR and gives the posted receives back as flushed, which is the way to close
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *sch = rdma_create_event_channel();
	struct rdma_event_channel *cch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_cm_id *hears = hear(sch, ip, 7125), *client, *server;
	static char buf[4096];
	struct ibv_mr *mr;

	client = dial(cch, ip, 7125);
	cm_qp(client);
	must(rdma_connect(client, &param), "connect");
	server = event(sch, RDMA_CM_EVENT_CONNECT_REQUEST);
	cm_qp(server);
	mr = rdma_reg_msgs(server, buf, sizeof(buf));
	must(mr ? 0 : -1, "reg_msgs");
	for (uintptr_t i = 0; i < 8; i++)
		must(rdma_post_recv(server, (void *)i, buf, 512, mr), "recv");
	must(rdma_accept(server, &param), "accept");
	event(cch, RDMA_CM_EVENT_ESTABLISHED);
	event(sch, RDMA_CM_EVENT_ESTABLISHED);
	must(rdma_disconnect(client), "disconnect");
	event(sch, RDMA_CM_EVENT_DISCONNECTED);
	must(rdma_disconnect(server), "disconnect");
	event(cch, RDMA_CM_EVENT_DISCONNECTED);
	for (int i = 0; i < 8; i++)
		if (next(server->recv_cq, "receive").status !=
		    IBV_WC_WR_FLUSH_ERR)
			return 1;
	rdma_destroy_qp(server);
	must(rdma_dereg_mr(mr), "dereg_mr");
	must(rdma_destroy_id(server), "destroy_id");
	rdma_destroy_qp(client);
	must(rdma_destroy_id(client), "destroy_id");
	must(rdma_destroy_id(hears), "destroy_id");
	return 0;
}

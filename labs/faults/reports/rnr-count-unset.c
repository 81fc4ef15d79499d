// SPDX-License-Identifier: MIT
// report: https://github.com/spdk/spdk/issues/2429
// symptom: the host fails to connect now and then: its first command is refused, the receiver was not ready
// cause: the target accepts with rnr_retry_count 0, which the host's QP takes, and posts its receives a little later
// expect: rnr|receiver not ready|(no|without a|without any)[a-z ]*(receive|recv)
// kind: rdma_cm
// run: one
// half: unseen
#include "rep.h"

static void *target(void *ip)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { .responder_resources = 4 };
	struct ibv_recv_wr w = { .wr_id = 1 }, *bad;
	struct rdma_cm_id *id;

	hear(ch, ip, 7144);
	id = event(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	cm_qp(id);
	must(rdma_accept(id, &param), "accept");
	event(ch, RDMA_CM_EVENT_ESTABLISHED);
	sleep(1); /* prepares its commands */
	must(ibv_post_recv(id->qp, &w, &bad), "post_recv");
	return NULL;
}

int main(int argc, char **argv)
{
	char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 7,
					 .rnr_retry_count = 7 };
	struct ibv_send_wr w = { .wr_id = 2,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct rdma_cm_id *id;
	pthread_t t;

	must(pthread_create(&t, NULL, target, ip), "thread");
	sleep(1);
	id = dial(ch, ip, 7144);
	cm_qp(id);
	must(rdma_connect(id, &param), "connect");
	event(ch, RDMA_CM_EVENT_ESTABLISHED);
	must(ibv_post_send(id->qp, &w, &bad), "post");
	return next(id->send_cq, "command").status != IBV_WC_SUCCESS;
}

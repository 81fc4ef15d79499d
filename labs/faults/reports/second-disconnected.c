// SPDX-License-Identifier: MIT
// report: https://github.com/mercury-hpc/mercury/issues/111
// symptom: the side that was hung up on does not finish closing: it waits for an event
// cause: it got DISCONNECTED, called rdma_disconnect in answer and waits for another DISCONNECTED; that answer makes no new event, there is one for each connection
// expect: DISCONNECTED.*(once|already|again|one|second|no (other|more|new))|(already|once|only one|no (other|more|new|second)).*DISCONNECTED
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

static void wait_for(struct rdma_event_channel *ch, int want)
{
	struct rdma_cm_event *e;
	int got;

	do {
		must(rdma_get_cm_event(ch, &e), "rdma_get_cm_event");
		got = e->event;
		printf("%s\n", rdma_event_str(e->event));
		fflush(stdout);
		rdma_ack_cm_event(e);
	} while (got != want);
}

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *sch = rdma_create_event_channel();
	struct rdma_event_channel *cch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_cm_id *client, *server;

	hear(sch, ip, 7126);
	client = dial(cch, ip, 7126);
	cm_qp(client);
	must(rdma_connect(client, &param), "connect");
	server = event(sch, RDMA_CM_EVENT_CONNECT_REQUEST);
	cm_qp(server);
	must(rdma_accept(server, &param), "accept");
	event(cch, RDMA_CM_EVENT_ESTABLISHED);
	event(sch, RDMA_CM_EVENT_ESTABLISHED);
	must(rdma_disconnect(client), "disconnect");
	wait_for(sch, RDMA_CM_EVENT_DISCONNECTED);
	must(rdma_disconnect(server), "disconnect");
	wait_for(sch, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(server);
	printf("closed\n");
	return 0;
}

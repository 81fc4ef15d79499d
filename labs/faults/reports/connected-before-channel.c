// SPDX-License-Identifier: MIT
// report: https://github.com/pmem/rpma/pull/101
// symptom: both sides are connected, but the client waits for the event that says so
// cause: the id had no channel while rdma_connect ran, so the call itself took ESTABLISHED; on the channel that the id got afterwards it does not come again
// expect: already (connected|established|received|taken|consumed|reported|delivered|come|came|returned|been)|synchron|(no|nothing)[a-z ]*(outstanding|pending|asked|to come|more)|(channel|migrat).*(after|late|already)|ESTABLISHED.*(before|already|once|taken|consumed|inside)
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

static void *serve(void *ip)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_cm_id *id;

	hear(ch, ip, 7142);
	id = event(ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	cm_qp(id);
	must(rdma_accept(id, &param), "accept");
	event(ch, RDMA_CM_EVENT_ESTABLISHED);
	return NULL;
}

int main(int argc, char **argv)
{
	char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7142) };
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	pthread_t t;

	must(pthread_create(&t, NULL, serve, ip), "thread");
	sleep(1);
	inet_pton(AF_INET, ip, &to.sin_addr);
	must(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_resolve_addr(id, NULL, (void *)&to, 2000), "resolve_addr");
	must(rdma_resolve_route(id, 2000), "resolve_route");
	cm_qp(id);
	must(rdma_connect(id, &param), "connect");
	pthread_join(t, NULL);
	ch = rdma_create_event_channel();
	must(rdma_migrate_id(id, ch), "migrate_id");
	event(ch, RDMA_CM_EVENT_ESTABLISHED);
	printf("connected\n");
	return 0;
}

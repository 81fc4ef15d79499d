// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/issues/93
// symptom: started a moment before its server the client gives up at once, its retries do not help
// cause: the server does not listen yet, so the first rdma_connect is rejected; the second try uses the same id, which cannot connect again
// expect: listen|(new|fresh|another) (rdma_cm_)?id|same id|connect[a-z]* (again|twice)
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

static const char *ip = "10.99.0.1";

static void *server(void *arg)
{
	(void)arg;
	usleep(700000); /* prepares its memory */
	hear(rdma_create_event_channel(), ip, 7123);
	printf("the server listens\n");
	return NULL;
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	pthread_t t;
	int ok = 0;

	ip = argc > 1 ? argv[1] : ip;
	must(pthread_create(&t, NULL, server, NULL), "thread");
	id = dial(ch, ip, 7123);
	cm_qp(id);
	for (int i = 0; i < 4 && !ok; i++) {
		must(rdma_connect(id, &param), "connect");
		must(rdma_get_cm_event(ch, &e), "get_cm_event");
		printf("%s, status %d\n", rdma_event_str(e->event), e->status);
		ok = e->event == RDMA_CM_EVENT_ESTABLISHED;
		rdma_ack_cm_event(e);
		sleep(1);
	}
	return !ok;
}

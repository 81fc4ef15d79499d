// SPDX-License-Identifier: MIT
// report: https://github.com/RDMA-Rust/sideway/issues/112
// symptom: with a thread for each connection a worker sometimes waits for ever for its connection to be established
// cause: an accepted id stays on the channel of the listener, so the accepting thread takes the event that the worker waits for; rdma_migrate_id would give it a channel of its own
// expect: rdma_migrate_id|(other|another|different|second|accepting) thread|threads?.*(took|taken|reads?|consum|share)|(same|shared) (event )?channel|already (taken|read|come)
// kind: threads
// run: one
// half: tuned
#include "rep.h"

static struct rdma_event_channel *sch;

static void *worker(void *arg)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7 };

	cm_qp(arg);
	must(rdma_accept(arg, &param), "accept");
	usleep(400000); /* fills its buffers */
	event(sch, RDMA_CM_EVENT_ESTABLISHED);
	printf("worker: connected\n");
	exit(0);
}

static void *acceptor(void *arg)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	pthread_t t;

	for (arg = NULL; !rdma_get_cm_event(sch, &e);) {
		id = e->event == RDMA_CM_EVENT_CONNECT_REQUEST ? e->id : NULL;
		rdma_ack_cm_event(e);
		if (id)
			must(pthread_create(&t, NULL, worker, id), "thread");
	}
	return arg;
}

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *cch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_cm_id *id;
	pthread_t t;

	sch = rdma_create_event_channel();
	hear(sch, ip, 7124);
	must(pthread_create(&t, NULL, acceptor, NULL), "thread");
	id = dial(cch, ip, 7124);
	cm_qp(id);
	must(rdma_connect(id, &param), "connect");
	event(cch, RDMA_CM_EVENT_ESTABLISHED);
	pthread_join(t, NULL);
	return 0;
}

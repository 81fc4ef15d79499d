// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1622
// symptom: the test passes, yet the program says that getting an event failed and ends with an error
// cause: the event channel is destroyed while the event thread is about to call rdma_get_cm_event on it
// expect: rdma_destroy_event_channel|channel.*(destroyed|closed|gone|freed)
// kind: threads
// run: one
// half: tuned
#include "rep.h"

static struct rdma_event_channel *ch;
static struct rdma_cm_id *id;
static int failed;

static void *events(void *arg)
{
	struct rdma_cm_event *e;

	(void)arg;
	for (;;) {
		if (rdma_get_cm_event(ch, &e)) {
			perror("rdma_get_cm_event");
			failed = 1;
			return NULL;
		}
		printf("%s\n", rdma_event_str(e->event));
		fflush(stdout);
		rdma_ack_cm_event(e);
		usleep(200000); /* logs it */
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(7115) };
	pthread_t t;

	ch = rdma_create_event_channel();
	inet_pton(AF_INET, argc > 1 ? argv[1] : "10.99.0.1", &to.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	must(pthread_create(&t, NULL, events, NULL), "thread");
	must(rdma_resolve_addr(id, NULL, (void *)&to, 1000), "resolve_addr");
	usleep(100000);
	printf("passed\n");
	rdma_destroy_id(id);
	rdma_destroy_event_channel(ch);
	pthread_join(t, NULL);
	return failed;
}

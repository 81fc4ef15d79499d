// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/5353
// symptom: everything is done and closed, but the process does not end: main waits for a thread
// cause: the thread sits in ibv_get_async_event, no event will come, and nothing else wakes it up
// expect: ibv_get_async_event|async.*(event|thread)
// kind: threads
// run: one
// half: tuned
#include "rep.h"

static int stop;

static void *watch(void *arg)
{
	struct ibv_async_event e;
	struct end *a = arg;

	while (!stop && !ibv_get_async_event(a->ctx, &e)) {
		printf("%s\n", ibv_event_type_str(e.event_type));
		ibv_ack_async_event(&e);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct end a, b;
	pthread_t t;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	must(pthread_create(&t, NULL, watch, &a), "thread");
	usleep(50000);
	must(post_recv(&b, 1, 64), "post_recv");
	must(post(&a, IBV_WR_SEND, 2, 64, NULL, IBV_SEND_SIGNALED), "post");
	next(a.scq, "sent");
	must(ibv_destroy_qp(a.qp), "destroy_qp");
	must(ibv_destroy_cq(a.scq), "destroy_cq");
	must(ibv_destroy_cq(a.rcq), "destroy_cq");
	stop = 1;
	printf("stopping the watcher\n");
	fflush(stdout);
	pthread_join(t, NULL);
	must(ibv_close_device(a.ctx), "close_device");
	printf("done\n");
	return 0;
}

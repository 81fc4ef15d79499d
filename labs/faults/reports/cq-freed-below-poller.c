// SPDX-License-Identifier: MIT
// report: https://github.com/ydb-platform/nbs/issues/6233
// symptom: rarely, when an endpoint is stopped, the completion thread crashes
// cause: the endpoint is destroyed by another thread while the completion thread still polls its CQ by a raw pointer
// expect: (CQ|completion queue).*(destroy|freed|gone|use.after)|(destroy|ibv_destroy_cq).*(CQ|poll|thread)|use.after
// kind: threads
// run: one
// half: tuned
#include "rep.h"

static struct end a, b;

static void *completions(void *arg)
{
	struct ibv_cq *cq = arg;
	struct ibv_wc wc[4];
	int n;

	for (;;) {
		n = ibv_poll_cq(cq, 4, wc);
		for (int i = 0; i < n; i++)
			printf("completed %d\n", (int)wc[i].wr_id);
		usleep(3000);
	}
	return NULL;
}

static void stop_endpoint(struct end *e)
{
	must(ibv_destroy_qp(e->qp), "destroy_qp");
	must(ibv_destroy_cq(e->scq), "destroy_cq");
	must(ibv_destroy_cq(e->rcq), "destroy_cq");
	printf("endpoint is stopped\n");
}

int main(int argc, char **argv)
{
	pthread_t t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	must(pthread_create(&t, NULL, completions, a.scq), "thread");
	struct card to = card(&b);
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 64, &to, IBV_SEND_SIGNALED),
	     "post");
	usleep(100000);
	stop_endpoint(&a);
	sleep(1);
	printf("done\n");
	return 0;
}

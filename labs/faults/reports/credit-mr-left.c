// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/77
// symptom: everything works, but at the end the protection domain cannot be freed: device or resource busy
// cause: the MR of the credit counters is deregistered only if rdma_cm is used, and that flag is cleared before; the PD still has an MR
// expect: \b(MR|memory region)s?\b|ibv_dereg_mr
// kind: balance
// run: one
// half: tuned
#include "rep.h"

static struct ibv_mr *credits;
static uint32_t counters[16];

static int tear_down(struct end *e, int rdma_cm)
{
	if (ibv_destroy_qp(e->qp) || ibv_destroy_cq(e->scq) ||
	    ibv_destroy_cq(e->rcq))
		return -1;
	if (rdma_cm && ibv_dereg_mr(credits))
		return -1;
	if (ibv_dereg_mr(e->mr))
		return -1;
	must(ibv_dealloc_pd(e->pd), "Failed to deallocate PD");
	return ibv_close_device(e->ctx);
}

int main(int argc, char **argv)
{
	struct end a, b;
	int rdma_cm = 1;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	credits = ibv_reg_mr(a.pd, counters, sizeof(counters), LOCAL);
	must(credits ? 0 : -1, "reg_mr");
	must(post_recv(&b, 1, 3000), "post_recv");
	must(post(&a, IBV_WR_SEND, 2, 3000, NULL, IBV_SEND_SIGNALED), "post");
	next(a.scq, "sent");
	next(b.rcq, "received");
	rdma_cm = 0; /* the connection of rdma_cm is closed */
	must(tear_down(&a, rdma_cm), "tear down");
	printf("clean\n");
	return 0;
}

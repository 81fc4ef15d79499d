// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/74
// symptom: moved to the new posting calls the data still arrives, but the completion that is waited for does not
// cause: wr_flags has to be set before the builder that makes the request; here the signaled flag is set after it
// expect: wr_flags|unsignal|signall?ed
// kind: extended
// run: one
// half: tuned
#include "rep.h"

static void write_list(struct ibv_qp_ex *x, struct end *e,
		       const struct card *to, int n)
{
	ibv_wr_start(x);
	for (int i = 0; i < n; i++) {
		x->wr_id = i;
		ibv_wr_rdma_write(x, to->rkey, to->addr + 64 * i);
		ibv_wr_set_sge(x, e->mr->lkey, (uintptr_t)e->buf, 64);
	}
	x->wr_flags = IBV_SEND_SIGNALED; /* the last one of the list */
	must(ibv_wr_complete(x), "wr_complete");
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	make_qp(&b);
	make_qp_ex(&a, (struct ibv_qp_cap){ 16, 8, 1, 1, 0 },
		   IBV_QP_EX_WITH_RDMA_WRITE);
	pair(&a, &b);
	to = card(&b);
	memset(a.buf, 7, 64);
	write_list(ibv_qp_to_qp_ex(a.qp), &a, &to, 6);
	usleep(100000);
	printf("at the peer: %d, waiting for the completion\n", b.buf[320]);
	fflush(stdout);
	next(a.scq, "written");
	return 0;
}

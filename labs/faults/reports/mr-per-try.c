// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/7837
// symptom: a client that tries again and again to reach its server runs out of memory after a while: registering fails
// cause: each try registers its receive buffers, and a try that fails does not deregister them
// expect: ibv_dereg_mr|deregister|leak|never (freed|released|given back)|still registered|\d+ (MRs|memory regions)
// kind: balance
// run: one
// half: tuned
#include "rep.h"

static int attempt(struct end *e)
{
	void *pool = aligned_alloc(4096, 256 << 10);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, pool, 256 << 10, LOCAL);
	struct ibv_qp *qp;

	must(mr ? 0 : -1, "registering the receive buffers");
	e->qp = NULL;
	make_qp(e);
	qp = e->qp;
	usleep(20000); /* nobody answers */
	return ibv_destroy_qp(qp);
}

int main(int argc, char **argv)
{
	struct end e;

	as_plain_user(4 << 20);
	open_end(&e, device(argc, argv));
	for (int i = 1; i <= 40; i++) {
		must(attempt(&e), "attempt");
		printf("attempt %d: no server\n", i);
		fflush(stdout);
	}
	return 0;
}

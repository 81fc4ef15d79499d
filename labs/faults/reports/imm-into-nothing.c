// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/301
// symptom: none: receives of no length at all are posted for writes with immediate data, and all of them arrive
// cause: innocent: a WRITE with immediate does not touch the buffer of the receive it takes, so it may have none
// expect: ^$
// kind: innocent
// run: server/client
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's', fd = meet(server, 7020);
	struct ibv_recv_wr empty = { .wr_id = 1 }, *bad;
	struct card me, peer;
	struct end e;

	open_end(&e, device(argc, argv));
	join(fd, &e, &me, &peer);
	for (int i = 0; server && i < 10; i++)
		must(ibv_post_recv(e.qp, &empty, &bad), "post_recv");
	swap(fd, &me, &peer, sizeof(me));
	for (int i = 0; i < 10; i++) {
		if (!server)
			must(post(&e, IBV_WR_RDMA_WRITE_WITH_IMM, i, 2000,
				  &peer, IBV_SEND_SIGNALED),
			     "post");
		if (next(server ? e.rcq : e.scq, "write").status)
			return 1;
	}
	swap(fd, &me, &peer, sizeof(me));
	must(ibv_destroy_qp(e.qp), "destroy_qp");
	must(ibv_destroy_cq(e.scq), "destroy_cq");
	must(ibv_destroy_cq(e.rcq), "destroy_cq");
	must(ibv_dereg_mr(e.mr), "dereg_mr");
	must(ibv_dealloc_pd(e.pd), "dealloc_pd");
	must(ibv_close_device(e.ctx), "close_device");
	return 0;
}

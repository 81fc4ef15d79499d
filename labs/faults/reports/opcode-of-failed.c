// SPDX-License-Identifier: MIT
// report: https://github.com/phoenix-dataplane/phoenix/issues/25
// symptom: on closing, the counter of sends runs below zero and the wait for the last receives never ends
// cause: the opcode of a completion that failed is not valid, but flushed requests are told apart by it
// expect: opcode.*(valid|undefined|defined|meaning|only|success)|(nothing|none|no (request|work request|WR|receive))[a-z ]*outstanding|(all|every)[a-z0-9 ]*(completion|request|receive)s?.*(taken|polled|completed|come|came)|already (been )?(taken|polled|completed)
// kind: balance
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	int sends = 2, recvs = 4;
	struct end a, b;

	open_both(&a, &b, argc, argv);
	a.scq = a.rcq = ibv_create_cq(a.ctx, 32, NULL, NULL, 0);
	pair(&a, &b);
	for (int i = 0; i < recvs; i++)
		must(post_recv(&a, i, 128), "post_recv");
	must(ibv_modify_qp(a.qp, &err, IBV_QP_STATE), "to ERR");
	for (int i = 0; i < sends; i++)
		must(post(&a, IBV_WR_RDMA_WRITE, 10 + i, 64, NULL,
			  IBV_SEND_SIGNALED),
		     "post");
	while (sends > 0 || recvs > 0) {
		struct ibv_wc wc = next(a.rcq, "flushed");

		if (wc.opcode == IBV_WC_RECV)
			recvs--;
		else
			sends--;
		printf("left: %d sends, %d receives\n", sends, recvs);
		fflush(stdout);
	}
	printf("drained\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ydb-platform/nbs/pull/6928
// symptom: the configured ACK timeout never had an effect: the call that sets it fails once the connection is up
// cause: IBV_QP_TIMEOUT may only be set on the way from RTR to RTS, and the QP is in RTS already
// expect: (timeout|mask|attribute).*(RTS|RTR|state|transition|allowed|permitted)|(RTS|RTR|state|transition).*(timeout|mask|attribute)
// kind: order
// run: one
// half: tuned
#include "rep.h"

static void tune(struct end *e, int timeout)
{
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_RTS,
				  .min_rnr_timer = 13 };

	must(ibv_modify_qp(e->qp, &at, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER),
	     "min_rnr_timer");
	if (!timeout)
		return;
	at.timeout = timeout;
	must(ibv_modify_qp(e->qp, &at, IBV_QP_STATE | IBV_QP_TIMEOUT),
	     "timeout");
}

int main(int argc, char **argv)
{
	struct end a, b;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	tune(&b, 0);
	tune(&a, 16); /* from the configuration file */
	must(post_recv(&b, 1, 64), "post_recv");
	must(post(&a, IBV_WR_SEND, 2, 64, NULL, IBV_SEND_SIGNALED), "post");
	next(a.scq, "sent");
	return 0;
}

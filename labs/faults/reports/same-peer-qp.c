// SPDX-License-Identifier: MIT
// report: https://github.com/wxdwfc/rlib/issues/3
// symptom: with two QPs for each thread the second one ends with a transport retry error, with one all is well
// cause: the index of the QP is left out when it asks for its peer, so both are connected to the same QP of the peer, which is connected to only one of them
// expect: (same|one) (peer )?QP|two QPs|dest_qp_num.*\bnot\b|(connected|paired|belongs?|answers?)[a-z ]* (another|a different|the other|other) QP|not (to )?this (one|QP)|(peer|remote)[a-z' ]* QP.*(another|a different|other) QP
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end mine[2], theirs[2];
	struct card to[2], me;

	for (int i = 0; i < 2; i++) {
		open_both(&mine[i], &theirs[i], argc, argv);
		make_qp(&mine[i]);
		make_qp(&theirs[i]);
	}
	for (int i = 0; i < 2; i++) {
		to[i] = card(&theirs[0]); /* of node 3, worker 0 */
		me = card(&mine[i]);
		connect_qp(&mine[i], &to[i]);
		connect_qp(&theirs[i], &me);
	}
	for (int i = 0; i < 2; i++) {
		must(post(&mine[i], IBV_WR_RDMA_WRITE, i, 2048, &to[i],
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(mine[i].scq, "write").status)
			return 1;
	}
	return 0;
}

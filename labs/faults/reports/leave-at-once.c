// SPDX-License-Identifier: MIT
// report: https://github.com/openucx/ucx/issues/844
// symptom: the last message of a connection never comes to the peer, or only in part, and the peer waits
// cause: the sender tears the QP down right after posting, without waiting for the completion (no flush)
// expect: destroy[a-z_]*.*(outstanding|before|without|while|still|never complete)|(outstanding|requests?|sends?).*(destroyed|went away|never complete|lost)|peer.*(destroyed|is gone|has gone|ended|exited|has left|went away|closed)
// kind: order
// run: server/client
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's', fd = meet(server, 7003);
	struct card me, peer;
	struct end e;

	opt.size = 16 << 20;
	open_end(&e, device(argc, argv));
	join(fd, &e, &me, &peer);
	must(post_recv(&e, 1, opt.size), "post_recv");
	swap(fd, &me, &peer, sizeof(me));
	if (!server) {
		next(e.rcq, "result");
		return 0;
	}
	must(post(&e, IBV_WR_SEND, 2, opt.size, NULL, IBV_SEND_SIGNALED),
	     "post");
	printf("result sent, bye\n");
	must(ibv_destroy_qp(e.qp), "destroy_qp");
	must(ibv_dereg_mr(e.mr), "dereg_mr");
	return 0;
}

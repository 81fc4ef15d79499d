// SPDX-License-Identifier: MIT
// report: https://github.com/zrlio/disni/issues/58
// symptom: now and then the server's answer fails with receiver not ready and takes the connection with it
// cause: the client posts the receive for the answer only after it has sent the request
// expect: no receive|(receive|recv|ibv_post_recv)[a-z ]*.*(late|after|before|posted|first|missing|none)|receiver.not.ready|\bRNR\b
// kind: order
// run: server/client
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's', fd = meet(server, 7002);
	struct card me, peer;
	struct end e;

	open_end(&e, device(argc, argv));
	opt.qp.rnr_retry = 1;
	opt.qp.min_rnr_timer = 8;
	join(fd, &e, &me, &peer);
	if (server)
		must(post_recv(&e, 1, 4096), "post_recv");
	swap(fd, &me, &peer, sizeof(me));
	if (server) {
		next(e.rcq, "request");
		must(post(&e, IBV_WR_SEND, 2, 16, NULL, IBV_SEND_SIGNALED),
		     "post");
		if (next(e.scq, "answer").status)
			return 1;
	} else {
		must(post(&e, IBV_WR_SEND, 3, 100, NULL, IBV_SEND_SIGNALED),
		     "post");
		next(e.scq, "request");
		usleep(20000); /* prepare for the answer */
		must(post_recv(&e, 4, 4096), "post_recv");
		next(e.rcq, "answer");
	}
	swap(fd, &me, &peer, 1);
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/381
// symptom: when the server fails during the handshake the client stays for ever, polling for its keys
// cause: the server exited before it sent its message, so nothing will ever complete the client's receive
// expect: (peer|other (side|end|process|program)|server|sender).*(exit|gone|ended|died|closed|never|not sen|did not|has not)|(never|nobody|no one|nothing)[a-z ]*(sen[dt]|sends|posted|came|arriv)
// kind: nothing-outstanding
// run: server client
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && argv[1][0] == 's', fd = meet(server, 7146);
	struct end e;
	struct card mine, theirs;

	open_end(&e, device(argc, argv));
	join(fd, &e, &mine, &theirs);
	must(post_recv(&e, 1, 256), "post_recv");
	swap(fd, "", &theirs, 1); /* both can receive */
	if (!server) {
		must(post(&e, IBV_WR_SEND, 2, 32, NULL, IBV_SEND_SIGNALED),
		     "post");
		next(e.scq, "sent my keys");
	}
	swap(fd, "", &theirs, 1); /* the client's keys are there */
	if (server) {
		fprintf(stderr, "no GPU memory for the test\n");
		return 1;
	}
	return next(e.rcq, "keys of the peer").status != IBV_WC_SUCCESS;
}

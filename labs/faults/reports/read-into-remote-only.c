// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/fabtests/issues/410
// symptom: writes work, but every read ends in an error at the side that reads
// cause: the buffer that a READ fills is registered for REMOTE_READ alone, it needs LOCAL_WRITE
// expect: LOCAL_WRITE
// kind: memory
// run: server/client
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's', fd = meet(server, 7012);
	struct card me, peer;
	struct end e;

	opt.access = IBV_ACCESS_REMOTE_READ; /* "the operation is read" */
	open_end(&e, device(argc, argv));
	join(fd, &e, &me, &peer);
	swap(fd, &me, &peer, sizeof(me));
	if (!server) {
		must(post(&e, IBV_WR_RDMA_READ, 9, 4096, &peer,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(e.scq, "read").status)
			return 1;
	}
	swap(fd, &me, &peer, sizeof(me));
	return 0;
}

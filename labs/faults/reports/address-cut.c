// SPDX-License-Identifier: MIT
// report: https://github.com/w180112/RDMA-example/issues/3
// symptom: every RDMA write ends with a remote access error, though key and rights are right
// cause: the peer's 64-bit address went through htonl and ntohl, which keep 32 bits of it
// expect: address.*(outside|not in|not within|beyond|range|32|trunc|upper|cut|bounds)|outside|32.bit|trunc|no (MR|memory region)
// kind: attributes
// run: server/client
// half: tuned
#include "rep.h"

struct hello {
	uint64_t va;
	uint32_t rkey;
};

int main(int argc, char **argv)
{
	int server = argc > 1 && *argv[1] == 's', fd = meet(server, 7011);
	struct hello mine, theirs;
	struct card me, peer;
	struct end e;

	open_end(&e, device(argc, argv));
	join(fd, &e, &me, &peer);
	mine.va = htonl((uintptr_t)e.buf);
	mine.rkey = htonl(e.mr->rkey);
	swap(fd, &mine, &theirs, sizeof(mine));
	if (!server) {
		peer.addr = ntohl(theirs.va);
		peer.rkey = ntohl(theirs.rkey);
		must(post(&e, IBV_WR_RDMA_WRITE, 1, 8, &peer,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(e.scq, "write").status)
			return 1;
	}
	swap(fd, &mine, &theirs, sizeof(mine));
	return 0;
}

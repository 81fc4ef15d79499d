// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/653
// symptom: a process spins for seconds without a call into the library
// cause: nothing: it watches the last byte of the memory that the peer will write
// expect: ^$
// kind: innocent
// run: server client
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	int server = argc > 1 && argv[1][0] == 's', fd = meet(server, 7147);
	struct end e;
	struct card mine, theirs;
	volatile char *flag;
	char c;

	open_end(&e, device(argc, argv));
	join(fd, &e, &mine, &theirs);
	swap(fd, "", &c, 1);
	flag = e.buf + 511;
	if (server) {
		while (!*flag)
			;
		printf("the flag says %d\n", *flag);
	} else {
		sleep(3);
		memset(e.buf, 7, 512);
		must(post(&e, IBV_WR_RDMA_WRITE, 1, 512, &theirs,
			  IBV_SEND_SIGNALED),
		     "post");
		if (next(e.scq, "write").status != IBV_WC_SUCCESS)
			return 1;
	}
	swap(fd, "", &c, 1);
	ibv_destroy_qp(e.qp);
	ibv_dereg_mr(e.mr);
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/librdmacm/issues/9
// symptom: a file that is mapped to be served cannot be registered: bad address
// cause: the mapping is PROT_READ, and the registration asks for write access to it
// expect: read.?only|PROT_|not writ(e|a)able|write access|LOCAL_WRITE
// kind: memory
// run: one
// half: tuned
#include "rep.h"

#include <fcntl.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
	size_t len = 64 << 10;
	int fd = open(argv[0], O_RDONLY);
	struct ibv_mr *mr;
	struct end e;
	void *file;

	open_end(&e, device(argc, argv));
	make_qp(&e);
	file = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
	must(file == MAP_FAILED ? -1 : 0, "mmap");
	printf("mapped\n");
	fflush(stdout);
	mr = ibv_reg_mr(e.pd, file, 16384, LOCAL | IBV_ACCESS_REMOTE_READ);
	must(mr ? 0 : -1, "registering the file");
	printf("rkey %#x\n", mr->rkey);
	return 0;
}

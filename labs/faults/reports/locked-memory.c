// SPDX-License-Identifier: MIT
// report: https://github.com/tarickb/the-geek-in-the-corner/issues/6
// symptom: registering works for small buffers and fails with cannot allocate memory for larger ones, with gigabytes free
// cause: the user's limit of locked memory (ulimit -l) is smaller than the buffers that are registered
// expect: memlock|RLIMIT|ulimit|locked.memory|lock.*limit
// kind: memory
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_mr *mr;
	struct end e;
	void *buf;

	opt.size = 4096;
	open_end(&e, device(argc, argv));
	make_qp(&e);
	as_plain_user(1 << 20); /* as the shell of one starts it */
	for (size_t kb = 32; kb <= 4096; kb *= 2) {
		buf = aligned_alloc(4096, kb << 10);
		mr = ibv_reg_mr(e.pd, buf, kb << 10, LOCAL);
		if (!mr) {
			fprintf(stderr, "%zu kB: %s\n", kb, strerror(errno));
			return 1;
		}
		printf("%zu kB are registered\n", kb);
		fflush(stdout);
	}
	return 0;
}

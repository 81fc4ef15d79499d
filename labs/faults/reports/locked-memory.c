// SPDX-License-Identifier: MIT
// report: https://github.com/tarickb/the-geek-in-the-corner/issues/6
// symptom: registering works for small buffers and fails with cannot allocate memory for larger ones, with gigabytes free
// cause: the user's limit of locked memory (ulimit -l) is smaller than the buffers that are registered
// expect: memlock|RLIMIT|ulimit|locked.memory|lock.*limit
// kind: memory
// run: one
// half: tuned
#include "rep.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void as_plain_user(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3,
						 0 };
	struct __user_cap_data_struct caps[2];
	struct rlimit few = { 1 << 20, 1 << 20 };

	must(setrlimit(RLIMIT_MEMLOCK, &few), "setrlimit");
	must(syscall(SYS_capget, &head, caps), "capget");
	caps[0].effective &= ~(1U << CAP_IPC_LOCK);
	caps[0].permitted &= ~(1U << CAP_IPC_LOCK);
	must(syscall(SYS_capset, &head, caps), "capset");
}

int main(int argc, char **argv)
{
	struct ibv_mr *mr;
	struct end e;
	void *buf;

	opt.size = 4096;
	open_end(&e, device(argc, argv));
	make_qp(&e);
	as_plain_user(); /* as the shell of one starts it */
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

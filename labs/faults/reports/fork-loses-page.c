// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1222
// symptom: the child of a fork dies when it writes to a variable that has nothing to do with RDMA
// cause: the variable shares a page with a registered buffer, and after ibv_fork_init the child does not get that page
// expect: fork|child|DONTFORK
// kind: threads
// run: one
// half: unseen
#include "rep.h"

#include <sys/mman.h>
#include <sys/wait.h>

struct both {
	char local[2048], remote[2048];
};

int main(int argc, char **argv)
{
	struct end a;
	struct both *m;
	int status;

	must(ibv_fork_init(), "fork_init");
	open_end(&a, device(argc, argv));
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(m == MAP_FAILED ? -1 : 0, "mmap");
	must(ibv_reg_mr(a.pd, m->remote, 2048, LOCAL) ? 0 : -1, "reg_mr");
	if (!fork()) {
		m->local[0] = 1;
		_exit(0);
	}
	wait(&status);
	printf("the child ended with %d\n", status);
	return status != 0;
}

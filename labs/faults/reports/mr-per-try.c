// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/issues/7837
// symptom: a client that tries again and again to reach its server runs out of memory after a while: registering fails
// cause: each try registers its receive buffers, and a try that fails does not deregister them
// expect: ibv_dereg_mr|deregister|leak|never (freed|released|given back)|still registered|\d+ (MRs|memory regions)
// kind: balance
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
	struct rlimit some = { 4 << 20, 4 << 20 };

	must(setrlimit(RLIMIT_MEMLOCK, &some), "setrlimit");
	must(syscall(SYS_capget, &head, caps), "capget");
	caps[0].effective &= ~(1U << CAP_IPC_LOCK);
	caps[0].permitted &= ~(1U << CAP_IPC_LOCK);
	must(syscall(SYS_capset, &head, caps), "capset");
}

static int attempt(struct end *e)
{
	void *pool = aligned_alloc(4096, 256 << 10);
	struct ibv_mr *mr = ibv_reg_mr(e->pd, pool, 256 << 10, LOCAL);
	struct ibv_qp *qp;

	must(mr ? 0 : -1, "registering the receive buffers");
	e->qp = NULL;
	make_qp(e);
	qp = e->qp;
	usleep(20000); /* nobody answers */
	return ibv_destroy_qp(qp);
}

int main(int argc, char **argv)
{
	struct end e;

	as_plain_user();
	open_end(&e, device(argc, argv));
	for (int i = 1; i <= 40; i++) {
		must(attempt(&e), "attempt");
		printf("attempt %d: no server\n", i);
		fflush(stdout);
	}
	return 0;
}

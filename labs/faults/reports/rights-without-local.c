// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/issues/189
// symptom: none: the QP has REMOTE_WRITE and not LOCAL_WRITE, the writes arrive all the same
// cause: innocent: LOCAL_WRITE is a right of the MR; a QP's access flags name remote rights only
// expect: ^$
// kind: innocent
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_qp_attr only = { .qp_access_flags =
					    IBV_ACCESS_REMOTE_WRITE };
	struct end a, b;
	struct card to;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	must(ibv_modify_qp(b.qp, &only, IBV_QP_ACCESS_FLAGS), "modify_qp");
	to = card(&b);
	memset(a.buf, 42, 3000);
	for (int i = 0; i < 64; i++) { /* every eighth is signaled */
		must(post(&a, IBV_WR_RDMA_WRITE, i, 3000, &to,
			  i % 8 == 7 ? IBV_SEND_SIGNALED : 0),
		     "post");
		if (i % 8 == 7 && next(a.scq, "written").status)
			return 1;
	}
	printf("the last byte is %d\n", b.buf[2999]);
	return b.buf[2999] != 42;
}

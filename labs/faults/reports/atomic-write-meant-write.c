// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1344
// symptom: a test of plain WRITE fails on every device, although WRITE works
// cause: the opcode is IBV_WR_ATOMIC_WRITE instead of IBV_WR_RDMA_WRITE
// expect: ATOMIC_?.?WRITE|opcode|atomic write
// kind: extended
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;
	struct ibv_wc wc;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	memset(a.buf, 'w', 1024);
	must(post(&a, IBV_WR_ATOMIC_WRITE, 1, 1024, &cb, IBV_SEND_SIGNALED),
	     "post");
	wc = next(a.scq, "write");
	printf("the peer's memory begins with %d\n", b.buf[0]);
	return wc.status != IBV_WC_SUCCESS || b.buf[1023] != 'w';
}

// SPDX-License-Identifier: MIT
// report: https://github.com/uccl-project/uccl/issues/267
// symptom: with large messages the post of the batch is refused with 12, out of memory
// cause: the batch has more requests than the send queue has places, which was made for 16
// expect: (send queue|SQ|max_send_wr|queue).*(full|room|hold|deep|depth|exceed|more|only|limit|overflow|small|places|entries)|(more|too many).*(requests|WRs?|work)
// kind: capacity
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	enum {
		BATCH = 64
	};
	struct end a, b;
	struct card cb;
	struct ibv_sge g;
	struct ibv_send_wr w[BATCH] = { { 0 } }, *bad;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	g = (struct ibv_sge){ (uintptr_t)a.buf, 1024, a.mr->lkey };
	for (int i = 0; i < BATCH; i++) {
		w[i].wr_id = i;
		w[i].next = i + 1 < BATCH ? &w[i + 1] : NULL;
		w[i].sg_list = &g;
		w[i].num_sge = 1;
		w[i].opcode = IBV_WR_RDMA_WRITE;
		w[i].send_flags = i % 8 == 7 ? IBV_SEND_SIGNALED : 0;
		w[i].wr.rdma.remote_addr = cb.addr;
		w[i].wr.rdma.rkey = cb.rkey;
	}
	must(ibv_post_send(a.qp, w, &bad), "post of a batch");
	for (int i = 0; i < BATCH / 8; i++)
		next(a.scq, "written up to");
	return 0;
}

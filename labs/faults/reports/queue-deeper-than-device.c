// SPDX-License-Identifier: MIT
// report: https://github.com/ska-sa/spead2/issues/64
// symptom: with a large buffer configured the reader does not start, the error says only: invalid argument
// cause: one receive for each slot of the buffer is more than the device's max_qp_wr
// expect: max_qp_wr|max_(send|recv)_wr|(work requests|receives|queue|depth|deep).*(more|exceed|limit|too|most|than)|1048576|2097152
// kind: capacity
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a;
	size_t buffer = 16UL << 30, packet = 8192;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD };

	open_end(&a, device(argc, argv));
	a.scq = ibv_create_cq(a.ctx, 64, NULL, NULL, 0);
	a.rcq = ibv_create_cq(a.ctx, 4096, NULL, NULL, 0);
	must(a.scq && a.rcq ? 0 : -1, "CQs");
	init.send_cq = a.scq;
	init.recv_cq = a.rcq;
	init.cap.max_send_wr = 1;
	init.cap.max_send_sge = 1;
	init.cap.max_recv_wr = buffer / packet;
	init.cap.max_recv_sge = 1;
	a.qp = ibv_create_qp(a.pd, &init);
	must(a.qp ? 0 : -1, "the reader");
	printf("reading\n");
	return 0;
}

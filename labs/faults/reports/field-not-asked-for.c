// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/10099
// symptom: the program dies of a jump to address 0 when the first message comes
// cause: it reads a field of the completion that wc_flags did not ask for when the CQ was made, its function pointer is NULL
// expect: wc_flags|EX_WITH_IMM|not (asked|requested|enabled)|without asking|function pointer|NULL|ibv_wc_read_imm|read_imm
// kind: extended
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct ibv_poll_cq_attr poll = { 0 };
	struct ibv_cq_init_attr_ex ask = { .cqe = 64,
					   .wc_flags =
						   IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *cq;

	open_both(&a, &b, argc, argv);
	cq = ibv_create_cq_ex(b.ctx, &ask);
	must(cq ? 0 : -1, "create_cq_ex");
	b.scq = b.rcq = ibv_cq_ex_to_cq(cq);
	pair(&a, &b);
	must(post_recv(&b, 1, 256), "post_recv");
	must(post(&a, IBV_WR_SEND_WITH_IMM, 2, 64, NULL, IBV_SEND_SIGNALED),
	     "post");
	next(a.scq, "sent");
	while (ibv_start_poll(cq, &poll))
		usleep(200);
	printf("%u bytes\n", ibv_wc_read_byte_len(cq));
	fflush(stdout);
	printf("tag %u\n", ibv_wc_read_imm_data(cq));
	ibv_end_poll(cq);
	return 0;
}

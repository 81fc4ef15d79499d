// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/1751
// symptom: a message given as a list of inline buffers arrives with no bytes in it, both sides say success
// cause: rxe's provider forgets to add up the lengths in ibv_wr_set_inline_data_list, so the request has length 0
// expect: inline_data_list|inline.*(length|0 bytes|empty|provider|librxe|rxe)|provider|librxe
// kind: extended
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct ibv_data_buf list[2] = { { "header: ", 8 },
					{ "and its body", 12 } };
	struct ibv_qp_ex *x;
	struct end a, b;
	struct ibv_wc wc;

	open_both(&a, &b, argc, argv);
	make_qp(&b);
	make_qp_ex(&a, (struct ibv_qp_cap){ 8, 8, 1, 1, 128 },
		   IBV_QP_EX_WITH_SEND);
	pair(&a, &b);
	must(post_recv(&b, 1, 512), "post_recv");
	x = ibv_qp_to_qp_ex(a.qp);
	ibv_wr_start(x);
	x->wr_id = 2;
	x->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_send(x);
	ibv_wr_set_inline_data_list(x, 2, list);
	must(ibv_wr_complete(x), "wr_complete");
	next(a.scq, "sent");
	wc = next(b.rcq, "received");
	printf("%u bytes: \"%.20s\"\n", wc.byte_len, b.buf);
	return wc.byte_len != 20;
}

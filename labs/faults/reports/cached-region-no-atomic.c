// SPDX-License-Identifier: MIT
// report: https://github.com/openucx/ucx/pull/9771
// symptom: a fetch-and-add on a buffer that was used for READ and WRITE before ends with a remote access error
// cause: the registration came from a cache and was made without the right to atomics
// expect: REMOTE_ATOMIC|atomic[a-z]* (access|right|permission|flag)|(without|lacks|no|not|missing)[a-z _]*atomic|access (flag|right)|(MR|region|registered|registration).*(not allow|without|right|permission)
// kind: memory
// run: one
// half: tuned
#include "rep.h"

static int add(struct end *e, const struct card *to)
{
	struct ibv_sge g = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr w = { .wr_id = 3,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	w.wr.atomic.remote_addr = to->addr;
	w.wr.atomic.rkey = to->rkey;
	w.wr.atomic.compare_add = 1;
	return ibv_post_send(e->qp, &w, &bad);
}

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;

	opt.access = LOCAL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	open_end(&a, device(argc, argv));
	open_end(&b, device(argc, argv));
	make_qp(&a);
	make_qp(&b);
	pair(&a, &b);
	cb = card(&b);
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 64, &cb, IBV_SEND_SIGNALED),
	     "post");
	next(a.scq, "write");
	must(post(&a, IBV_WR_RDMA_READ, 2, 64, &cb, IBV_SEND_SIGNALED), "post");
	next(a.scq, "read");
	must(add(&a, &cb), "post");
	return next(a.scq, "add").status != IBV_WC_SUCCESS;
}

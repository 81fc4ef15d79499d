// SPDX-License-Identifier: MIT
// report: https://github.com/openucx/ucx/pull/9771
// symptom: a fetch-and-add on a buffer that was used for READ and WRITE before ends with a remote access error
// cause: the registration came from a cache and was made without the right to atomics
// expect: REMOTE_ATOMIC|atomic[a-z]* (access|right|permission|flag)|(without|lacks|no|not|missing)[a-z _]*atomic|access (flag|right)|(MR|region|registered|registration).*(not allow|without|right|permission)
// kind: memory
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;

	opt.access = LOCAL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	must(post(&a, IBV_WR_RDMA_WRITE, 1, 64, &cb, IBV_SEND_SIGNALED),
	     "post");
	next(a.scq, "write");
	must(post(&a, IBV_WR_RDMA_READ, 2, 64, &cb, IBV_SEND_SIGNALED), "post");
	next(a.scq, "read");
	must(atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, &cb, 1, 0), "post");
	return next(a.scq, "add").status != IBV_WC_SUCCESS;
}

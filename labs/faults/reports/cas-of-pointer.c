// SPDX-License-Identifier: MIT
// report: https://github.com/ofiwg/libfabric/pull/10923
// symptom: a compare-and-swap completes with success, but the word at the peer is unchanged, although it held the expected value
// cause: compare_add and swap of the work request hold the addresses of the values instead of the values, so the comparison fails
// expect: compare_add|compar(e|ed|ison)|(address|pointer).*(instead|not the value|of the value)|operand|(did|was|has) not (swap|match)|swap.*not
// kind: attributes
// run: one
// half: tuned
#include "rep.h"

int main(int argc, char **argv)
{
	uint64_t expected = 516, wanted = 11;
	struct end a, b;
	struct card cb;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	*(uint64_t *)b.buf = expected;
	must(atomic(&a, IBV_WR_ATOMIC_CMP_AND_SWP, 1, &cb, (uintptr_t)&expected,
		    (uintptr_t)&wanted),
	     "post");
	next(a.scq, "compare and swap");
	if (*(uint64_t *)b.buf == wanted)
		return 0;
	printf("it was %lu, it is %lu\n", *(uint64_t *)a.buf,
	       *(uint64_t *)b.buf);
	return 1;
}

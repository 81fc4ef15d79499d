// SPDX-License-Identifier: MIT
// report: https://github.com/open-mpi/ompi/pull/7872
// symptom: a read that also fetches a counter fails for some displacements and works for others
// cause: the fetch-and-add goes to an address that is no multiple of 8
// expect: align|multiple of (8|eight)|divisible
// kind: memory
// run: one
// half: unseen
#include "rep.h"

int main(int argc, char **argv)
{
	struct end a, b;
	struct card cb;

	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	cb = card(&b);
	for (int at = 0; at < 64; at += 12, cb.addr += 12) { /* three ints */
		must(atomic(&a, IBV_WR_ATOMIC_FETCH_AND_ADD, at, &cb, 0, 0),
		     "post");
		if (next(a.scq, "add at").status != IBV_WC_SUCCESS)
			return 1;
	}
	return 0;
}

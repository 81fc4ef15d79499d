// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/perftest/pull/398
// symptom: with one QP all is well, with two the receiver of credits spins for ever on the second one's counter
// cause: the QP index is read from the upper half of wr_id but was written to the lower, so every completion counts for QP 0 and nothing is outstanding
// expect: (nothing|none|no (request|work request|WR|send|write))[a-z ]*outstanding|(all|every)[a-z0-9 ]*(completion|request|send|write)s?.*(taken|polled|completed|come|came|done)|already (been )?(taken|polled|completed)
// kind: nothing-outstanding
// run: one
// half: tuned
#include "rep.h"

enum {
	WINDOW = 5
};

int main(int argc, char **argv)
{
	struct end a[2], b[2];
	struct card to[2];
	int credit[2] = { 0, 0 }, n;
	struct ibv_wc wc[4];

	for (int q = 0; q < 2; q++) {
		open_both(&a[q], &b[q], argc, argv);
		pair(&a[q], &b[q]);
		to[q] = card(&b[q]);
	}
	for (int q = 0; q < 2; q++)
		for (int i = 0; i < WINDOW; i++, credit[q]++)
			must(post(&a[q], IBV_WR_RDMA_WRITE, q, 32, &to[q],
				  IBV_SEND_SIGNALED),
			     "post");
	for (int q = 0; q < 2; q++) {
		printf("QP %d: wait until its window is open\n", q);
		fflush(stdout);
		while (credit[q] >= WINDOW)
			for (int c = 0; c < 2; c++) {
				n = ibv_poll_cq(a[c].scq, 4, wc);
				for (int i = 0; i < n; i++)
					credit[wc[i].wr_id >> 32]--;
			}
	}
	printf("windows are open\n");
	return 0;
}

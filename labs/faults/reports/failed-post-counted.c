// SPDX-License-Identifier: MIT
// report: https://github.com/uiuc-hpc/lci/issues/24
// symptom: with many small messages at once the end is never reached: completions of the last ones are missing
// cause: the send queue was full and ibv_post_send refused some, its return value is ignored and they are waited for
// expect: ibv_post_send.*(fail|return|refus|ENOMEM|memory)|ENOMEM|Cannot allocate|queue (is |was )?full|max_send_wr|not (been )?posted
// kind: nothing-outstanding
// run: one
// half: tuned
#include "rep.h"

enum {
	MESSAGES = 40
};

int main(int argc, char **argv)
{
	struct end a, b;

	open_both(&a, &b, argc, argv);
	opt.depth = MESSAGES;
	make_qp(&b);
	opt.depth = 15;
	make_qp(&a);
	pair(&a, &b);
	for (int i = 0; i < MESSAGES; i++)
		post(&a, IBV_WR_SEND, i, 64, NULL, IBV_SEND_SIGNALED);
	for (int i = 0; i < MESSAGES; i++)
		must(post_recv(&b, i, 64), "post_recv");
	for (int i = 0; i < MESSAGES; i++)
		next(a.scq, "sent");
	printf("all sent\n");
	return 0;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/open-mpi/ompi/pull/376
// symptom: of many prepared receives the last ones never complete, although the posts of all of them went well
// cause: ibv_post_recv returns a positive errno, the program looks for a negative value, and so does not see that the receive queue was full
// expect: post_recv.*(fail|refus|ENOMEM|return|full)|receive queue.*full|(full|ENOMEM|refused|failed|not posted)|(no|without a|without any)[a-z ]*(receive|recv)|RNR|receiver not ready|(fewer|less|only)[a-z 0-9]*(receive|recv)
// kind: nothing-outstanding
// run: one
// half: unseen
#include "rep.h"

enum {
	MANY = 80
};

int main(int argc, char **argv)
{
	struct end a, b;

	opt.cqe = 256;
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	for (int i = 0; i < MANY; i++)
		if (post_recv(&b, i, 256) < 0) {
			perror("post_recv");
			return 1;
		}
	printf("%d receives are ready\n", MANY);
	for (int i = 0; i < MANY; i++) {
		must(post(&a, IBV_WR_SEND, i, 64, NULL, IBV_SEND_SIGNALED),
		     "post");
		next(a.scq, "sent");
		next(b.rcq, "received");
	}
	return 0;
}

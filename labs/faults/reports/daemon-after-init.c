// SPDX-License-Identifier: MIT
// report: https://github.com/ceph/ceph/pull/10600
// symptom: in the foreground all is well; as a daemon the process cannot post: permission denied
// cause: the device is opened and memory registered before the process forks into the background; only the process that made the resources may use them
// expect: \bfork|child|parent|(another|other|different|wrong) process|\bpid\b
// kind: memory
// run: one
// half: tuned
#include "rep.h"

#include <sys/wait.h>

static int serve(struct end *a, struct end *b)
{
	char *at = b->buf + 4096;
	struct ibv_sge g = { (uintptr_t)at, 64, b->mr->lkey };
	struct ibv_recv_wr w = { .wr_id = 1, .sg_list = &g, .num_sge = 1 },
			   *bad;

	must(ibv_post_recv(b->qp, &w, &bad), "post_recv");
	strcpy(a->buf, "an answer of the daemon");
	must(post(a, IBV_WR_SEND, 2, 64, NULL, IBV_SEND_SIGNALED), "post");
	if (next(a->scq, "sent").status || next(b->rcq, "received").status)
		return 1;
	printf("it says: \"%s\"\n", at);
	return strcmp(at, a->buf) != 0;
}

int main(int argc, char **argv)
{
	struct end a, b;
	pid_t daemon;
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	open_both(&a, &b, argc, argv);
	pair(&a, &b);
	strcpy(a.buf, "nothing yet");
	daemon = fork();
	if (!daemon)
		_exit(serve(&a, &b));
	waitpid(daemon, &status, 0);
	return status != 0;
}

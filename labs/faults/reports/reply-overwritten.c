// SPDX-License-Identifier: MIT
// report: https://github.com/nfs-ganesha/nfs-ganesha/pull/14
// symptom: under load a client gets one reply twice and another one never
// cause: each reply is built in the same send buffer, and nobody waits until the reply before has left it; here the client is slow and the first one is overwritten
// expect: (re-?us|overwr|writ|chang|modif)[a-z]*.*(before|outstanding|complet|in flight)|(same|one) (send )?(buffer|bytes|memory|address)|(bytes|buffer).*(several|two|more than one|other|another).*(send|request|outstanding)
// kind: order
// run: one
// half: tuned
#include "rep.h"

static int replies[3];

static void receive(struct end *e, int i)
{
	struct ibv_sge g = { (uintptr_t)&replies[i], 4, 0 };
	struct ibv_recv_wr w = { .wr_id = i, .sg_list = &g, .num_sge = 1 },
			   *bad;
	struct ibv_mr *mr = ibv_reg_mr(e->pd, replies, sizeof(replies), LOCAL);

	must(mr ? 0 : -1, "reg_mr");
	g.lkey = mr->lkey;
	must(ibv_post_recv(e->qp, &w, &bad), "post_recv");
}

int main(int argc, char **argv)
{
	struct end server, client;

	open_both(&server, &client, argc, argv);
	pair(&server, &client);
	for (int i = 0; i < 3; i++) { /* three requests are served */
		*(int *)server.buf = 100 + i;
		must(post(&server, IBV_WR_SEND, i, 4, NULL, IBV_SEND_SIGNALED),
		     "post");
	}
	usleep(20000);
	for (int i = 0; i < 3; i++)
		receive(&client, i);
	for (int i = 0; i < 3; i++) {
		next(server.scq, "reply sent");
		next(client.rcq, "reply");
		printf("it is number %d\n", replies[i]);
	}
	return replies[0] != 100 || replies[1] != 101 || replies[2] != 102;
}

// SPDX-License-Identifier: MIT
// report: https://github.com/linux-rdma/rdma-core/pull/486
// symptom: with a QP of its own making a server does not end: it waits for flushed receives after rdma_disconnect
// cause: rdma_disconnect moves only a QP that rdma_create_qp made to ERR; a QP made with ibv_create_qp has to be moved by the program
// expect: (not|never|only)[a-z_ ]*(moved?s?|in|reach|to|go|goes)[a-z_ ]*\bERR\b|IBV_QPS_ERR|(still|stays?) (in )?RTS|(move|modify|bring|put)[a-z_ ]*(to|into) (the )?(ERR\b|error state)
// kind: rdma_cm
// run: one
// half: tuned
#include "rep.h"

static void own_qp(struct end *e, struct rdma_cm_id *id, int state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask;

	must(rdma_init_qp_attr(id, &attr, &mask), "init_qp_attr");
	must(ibv_modify_qp(e->qp, &attr, mask), "modify_qp");
}

int main(int argc, char **argv)
{
	const char *ip = argc > 1 ? argv[1] : "10.99.0.1";
	struct rdma_event_channel *sch = rdma_create_event_channel();
	struct rdma_event_channel *cch = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 3 };
	struct rdma_cm_id *client, *server;
	struct end s, c;

	hear(sch, ip, 7120);
	client = dial(cch, ip, 7120);
	open_end(&c, ibv_get_device_name(client->verbs->device));
	open_end(&s, "rxe0");
	c.ctx = client->verbs;
	c.pd = ibv_alloc_pd(c.ctx);
	make_qp(&c);
	own_qp(&c, client, IBV_QPS_INIT);
	param.qp_num = c.qp->qp_num;
	must(rdma_connect(client, &param), "connect");
	server = event(sch, RDMA_CM_EVENT_CONNECT_REQUEST);
	s.ctx = server->verbs;
	s.pd = ibv_alloc_pd(s.ctx);
	s.mr = ibv_reg_mr(s.pd, s.buf, opt.size, LOCAL);
	make_qp(&s);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		own_qp(&s, server, state);
	for (int i = 0; i < 3; i++)
		must(post_recv(&s, i, 1024), "post_recv");
	param.qp_num = s.qp->qp_num;
	must(rdma_accept(server, &param), "accept");
	event(cch, RDMA_CM_EVENT_CONNECT_RESPONSE);
	own_qp(&c, client, IBV_QPS_RTR);
	own_qp(&c, client, IBV_QPS_RTS);
	must(rdma_establish(client), "establish");
	event(sch, RDMA_CM_EVENT_ESTABLISHED);
	must(rdma_disconnect(server), "disconnect");
	for (int i = 0; i < 3; i++)
		next(s.rcq, "flushed");
	return 0;
}

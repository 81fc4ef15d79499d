/* SPDX-License-Identifier: MIT */
/* What these programs share: a device, a pair of QPs, TCP, events of rdma_cm. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#pragma GCC diagnostic ignored "-Wunused-function"

enum {
	LOCAL = IBV_ACCESS_LOCAL_WRITE,
	REMOTE = 14 /* WRITE, READ, ATOMIC */
};
enum {
	TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		  IBV_QP_ACCESS_FLAGS,
	TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		 IBV_QP_MIN_RNR_TIMER,
	TO_RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC
};
struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
};
struct card {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};
static struct {
	int cqe, depth, access, rnr, rnr_timer, size;
} opt = { 64, 16, LOCAL | REMOTE, 7, 12, 65536 };

static void must(int err, const char *what)
{
	if (err) {
		fprintf(stderr, "%s: %s\n", what,
			strerror(err > 0 ? err : errno));
		exit(1);
	}
}
static void open_end(struct end *e, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	memset(e, 0, sizeof(*e));
	for (int i = 0; list && list[i] && !e->ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			e->ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	must(e->ctx && (e->pd = ibv_alloc_pd(e->ctx)) ? 0 : -1, name);
	e->buf = memset(aligned_alloc(4096, opt.size), 0, opt.size);
	e->mr = ibv_reg_mr(e->pd, e->buf, opt.size, opt.access);
	must(e->mr ? 0 : -1, "ibv_reg_mr");
}
static const char *device(int n, char **arg)
{
	return n > 2 ? arg[2] : getenv("REP_DEV") ? getenv("REP_DEV") : "rxe0";
}
static void make_qp(struct end *e)
{
	e->scq = e->scq ?: ibv_create_cq(e->ctx, opt.cqe, NULL, e->ch, 0);
	e->rcq = e->rcq ?: ibv_create_cq(e->ctx, opt.cqe, NULL, e->ch, 0);
	struct ibv_qp_init_attr init = { .send_cq = e->scq,
					 .recv_cq = e->rcq,
					 .cap = { opt.depth, opt.depth, 2, 2,
						  0 },
					 .qp_type = IBV_QPT_RC };
	e->qp = e->scq && e->rcq ? ibv_create_qp(e->pd, &init) : NULL;
	must(e->qp ? 0 : -1, "CQ or QP");
}
static struct card card(struct end *e)
{
	struct card c = { .qpn = e->qp->qp_num,
			  .rkey = e->mr->rkey,
			  .addr = (uintptr_t)e->buf };
	must(ibv_query_gid(e->ctx, 1, 1, &c.gid), "ibv_query_gid");
	return c;
}
static void connect_qp(struct end *e, const struct card *peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = 1,
				 .qp_access_flags = REMOTE,
				 .path_mtu = IBV_MTU_1024,
				 .dest_qp_num = peer->qpn,
				 .rq_psn = 77,
				 .max_dest_rd_atomic = 4,
				 .min_rnr_timer = opt.rnr_timer,
				 .timeout = 14,
				 .retry_cnt = 6,
				 .rnr_retry = opt.rnr,
				 .sq_psn = 77,
				 .max_rd_atomic = 4,
				 .ah_attr = {
					 .is_global = 1,
					 .port_num = 1,
					 .grh = { peer->gid, 0, 1, 4, 0 } } };
	must(ibv_modify_qp(e->qp, &a, TO_INIT), "to INIT");
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(e->qp, &a, TO_RTR), "to RTR");
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(e->qp, &a, TO_RTS), "to RTS");
}
static void pair(struct end *a, struct end *b)
{
	struct card ca = card(a), cb = card(b);
	connect_qp(a, &cb);
	connect_qp(b, &ca);
}
static int post_recv(struct end *e, uint64_t id, uint32_t len)
{
	struct ibv_sge g = { (uintptr_t)e->buf, len, e->mr->lkey };
	struct ibv_recv_wr w = { .wr_id = id, .sg_list = &g, .num_sge = 1 },
			   *bad;
	return ibv_post_recv(e->qp, &w, &bad);
}
static int post(struct end *e, int op, uint64_t id, uint32_t len,
		const struct card *to, int flags)
{
	struct ibv_sge g = { (uintptr_t)e->buf, len, e->mr->lkey };
	struct ibv_send_wr w = { .wr_id = id,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = flags },
			   *bad;
	w.wr.rdma.remote_addr = to ? to->addr : 0;
	w.wr.rdma.rkey = to ? to->rkey : 0;
	return ibv_post_send(e->qp, &w, &bad);
}
static struct ibv_wc next(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		usleep(200);
	printf("%s %d: %s\n", what, (int)wc.wr_id,
	       ibv_wc_status_str(wc.status));
	fflush(stdout);
	return wc;
}
static int meet(int server, int port)
{
	struct sockaddr_in a = {
		AF_INET, htons(port), { htonl(INADDR_LOOPBACK) }, ""
	};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (server && !bind(fd, (void *)&a, sizeof(a)) && !listen(fd, 1))
		return accept(fd, NULL, NULL);
	while (!server && connect(fd, (void *)&a, sizeof(a)))
		usleep(50000);
	return fd;
}
static void swap(int fd, const void *mine, void *theirs, int len)
{
	must(write(fd, mine, len) == len ? 0 : EPIPE, "TCP");
	must(recv(fd, theirs, len, MSG_WAITALL) == len ? 0 : EPIPE, "TCP");
}
static struct rdma_cm_id *event(struct rdma_event_channel *ch, int want)
{
	struct rdma_cm_event *e;
	must(rdma_get_cm_event(ch, &e), "rdma_get_cm_event");
	printf("%s, status %d\n", rdma_event_str(e->event), e->status);
	struct rdma_cm_id *id = (int)e->event == want ? e->id : NULL;
	rdma_ack_cm_event(e);
	must(id ? 0 : -1, rdma_event_str(want));
	return id;
}
/* rdma_cm: one listens, one asks as far as rdma_connect, both get a QP. */
static struct rdma_cm_id *hear(struct rdma_event_channel *ch, const char *ip,
			       int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port) };
	struct rdma_cm_id *id;
	setvbuf(stdout, NULL, _IOLBF, 0);
	inet_pton(AF_INET, ip, &a.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_bind_addr(id, (void *)&a), "bind_addr");
	must(rdma_listen(id, 4), "listen");
	return id;
}
static struct rdma_cm_id *dial(struct rdma_event_channel *ch, const char *ip,
			       int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port) };
	struct rdma_cm_id *id;
	setvbuf(stdout, NULL, _IOLBF, 0);
	inet_pton(AF_INET, ip, &a.sin_addr);
	must(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), "create_id");
	must(rdma_resolve_addr(id, NULL, (void *)&a, 2000), "resolve_addr");
	event(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(rdma_resolve_route(id, 2000), "resolve_route");
	event(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}
static void cm_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = { .cap = { 8, 8, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	must(rdma_create_qp(id, NULL, &init), "create_qp");
}

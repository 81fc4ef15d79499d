/* SPDX-License-Identifier: MIT */
/* What these programs share: a device, a pair of QPs, TCP, events of rdma_cm. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/capability.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
};
struct card {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};
/* What the functions below use; a program may set it otherwise. */
static struct {
	int cqe, depth, access, size;
	struct ibv_qp_attr qp;
} opt = { .cqe = 64,
	  .depth = 16,
	  .access = LOCAL | REMOTE,
	  .size = 65536,
	  .qp = { .port_num = 1,
		  .qp_access_flags = REMOTE,
		  .path_mtu = IBV_MTU_1024,
		  .rq_psn = 77,
		  .sq_psn = 77,
		  .max_dest_rd_atomic = 4,
		  .max_rd_atomic = 4,
		  .min_rnr_timer = 12,
		  .rnr_retry = 7,
		  .timeout = 14,
		  .retry_cnt = 6,
		  .qkey = 7,
		  .ah_attr = { .is_global = 1,
			       .port_num = 1,
			       .grh = { .sgid_index = 1, .hop_limit = 4 } } } };

static void must(int err, const char *what)
{
	if (err) {
		fprintf(stderr, "%s: %s\n", what,
			strerror(err > 0 ? err : errno));
		exit(1);
	}
}
static void as_plain_user(rlim_t locked)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3,
						 0 };
	struct __user_cap_data_struct caps[2];
	struct rlimit limit = { locked, locked };
	must(setrlimit(RLIMIT_MEMLOCK, &limit), "setrlimit");
	must(syscall(SYS_capget, &head, caps), "capget");
	caps[0].effective &= ~(1U << CAP_IPC_LOCK);
	caps[0].permitted &= ~(1U << CAP_IPC_LOCK);
	must(syscall(SYS_capset, &head, caps), "capset");
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
static void make_qp_as(struct end *e, struct ibv_qp_init_attr *init)
{
	e->scq = e->scq ?: ibv_create_cq(e->ctx, opt.cqe, NULL, e->ch, 0);
	e->rcq = e->rcq ?: ibv_create_cq(e->ctx, opt.cqe, NULL, e->ch, 0);
	init->send_cq = e->scq;
	init->recv_cq = e->rcq;
	init->srq = e->srq;
	e->qp = e->scq && e->rcq ? ibv_create_qp(e->pd, init) : NULL;
	must(e->qp ? 0 : -1, "CQ or QP");
}
static void make_qp(struct end *e)
{
	struct ibv_qp_init_attr init = {
		.cap = { opt.depth, opt.depth, 2, 2, 0 }, .qp_type = IBV_QPT_RC
	};
	make_qp_as(e, &init);
}
static void make_qp_ex(struct end *e, struct ibv_qp_cap cap, int ops)
{
	struct ibv_qp_init_attr_ex init = { .cap = cap,
					    .qp_type = IBV_QPT_RC,
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = e->pd,
					    .send_ops_flags = ops };
	if (ops)
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	e->scq = e->rcq = ibv_create_cq(e->ctx, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = e->scq;
	e->qp = ibv_create_qp_ex(e->ctx, &init);
	must(e->qp ? 0 : -1, "create_qp_ex");
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
	struct ibv_qp_attr a = opt.qp;
	a.qp_state = IBV_QPS_INIT;
	a.dest_qp_num = peer->qpn;
	a.ah_attr.grh.dgid = peer->gid;
	must(ibv_modify_qp(e->qp, &a, TO_INIT), "to INIT");
	a.qp_state = IBV_QPS_RTR;
	must(ibv_modify_qp(e->qp, &a, TO_RTR), "to RTR");
	a.qp_state = IBV_QPS_RTS;
	must(ibv_modify_qp(e->qp, &a, TO_RTS), "to RTS");
}
static void open_both(struct end *a, struct end *b, int n, char **arg)
{
	open_end(a, device(n, arg));
	open_end(b, device(n, arg));
}
/* Both have a QP from now on, connected to the other's. */
static void pair(struct end *a, struct end *b)
{
	if (!a->qp)
		make_qp(a);
	if (!b->qp)
		make_qp(b);
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
static int atomic(struct end *e, int op, uint64_t id, const struct card *to,
		  uint64_t add, uint64_t swap)
{
	struct ibv_sge g = { (uintptr_t)e->buf, 8, e->mr->lkey };
	struct ibv_send_wr w = { .wr_id = id,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.atomic = { to->addr, add, swap,
						to->rkey } },
			   *bad;
	return ibv_post_send(e->qp, &w, &bad);
}
/* UD: a QP in RTS, the way to a peer, a message to it. */
static void make_ud(struct end *e)
{
	struct ibv_qp_init_attr init = { .cap = { 8, 8, 1, 1, 0 },
					 .qp_type = IBV_QPT_UD };
	struct ibv_qp_attr a = { .port_num = 1, .qkey = opt.qp.qkey };
	int mask[] = { 0, (TO_INIT ^ IBV_QP_ACCESS_FLAGS) | IBV_QP_QKEY,
		       IBV_QP_STATE, IBV_QP_STATE | IBV_QP_SQ_PSN };
	opt.cqe = 16;
	make_qp_as(e, &init);
	for (int s = IBV_QPS_INIT; s <= IBV_QPS_RTS; s++) {
		a.qp_state = s;
		must(ibv_modify_qp(e->qp, &a, mask[s]), "modify_qp");
	}
}
static struct ibv_ah *make_ah(struct end *e, const struct card *to)
{
	struct ibv_ah_attr a = opt.qp.ah_attr;
	a.grh.dgid = to->gid;
	struct ibv_ah *ah = ibv_create_ah(e->pd, &a);
	must(ah ? 0 : -1, "create_ah");
	return ah;
}
static int post_ud(struct end *e, struct ibv_ah *ah, const struct card *to,
		   const char *from, uint32_t len)
{
	struct ibv_sge g = { (uintptr_t)from, len, e->mr->lkey };
	struct ibv_send_wr w = { .wr_id = 2,
				 .sg_list = &g,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.ud = { ah, to->qpn, opt.qp.qkey } },
			   *bad;
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
/* A window on 4096 bytes of e, with its key in c. */
static struct ibv_mw *bind_window(struct end *e, struct card *c)
{
	struct ibv_send_wr w = { .wr_id = 1,
				 .opcode = IBV_WR_BIND_MW,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_mw *mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
	must(mw ? 0 : -1, "alloc_mw");
	*c = card(e);
	c->rkey = ibv_inc_rkey(mw->rkey);
	w.bind_mw.mw = mw;
	w.bind_mw.rkey = c->rkey;
	w.bind_mw.bind_info =
		(struct ibv_mw_bind_info){ e->mr, c->addr, 4096,
					   IBV_ACCESS_REMOTE_WRITE };
	must(ibv_post_send(e->qp, &w, &bad), "post");
	next(e->scq, "bind");
	return mw;
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
static void join(int fd, struct end *e, struct card *me, struct card *peer)
{
	make_qp(e);
	*me = card(e);
	swap(fd, me, peer, sizeof(*me));
	connect_qp(e, peer);
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

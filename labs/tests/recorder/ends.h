/* SPDX-License-Identifier: MIT */
/*
 * ends.h - the QPs of the recorded programs, each with all that it stands on: made,
 * connected (also to themselves), and talking. What fails ends the program.
 */
#ifndef TESTS_RECORDER_ENDS_H
#define TESTS_RECORDER_ENDS_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MESSAGES   20
#define SIZE	   64
#define GRH	   40
#define QKEY	   0x1234
#define PSN	   100
#define DEADLINE_S 20

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel; /* or NULL */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	/* what modify tells the kernel of it; defaults() first */
	unsigned int access;
	uint32_t qkey, rq_psn;
	enum ibv_mtu mtu;
	uint8_t timeout, retry_cnt;
	char buf[2 * SIZE + GRH];
};

static inline void die(const char *what, int err)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		strerror(err));
	exit(1);
}

static inline struct ibv_context *open_first(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	if (!list || !list[0])
		die("ibv_get_device_list", ENODEV);
	context = ibv_open_device(list[0]);
	if (!context)
		die("ibv_open_device", errno);
	ibv_free_device_list(list);
	return context;
}

static inline void defaults(struct end *e)
{
	e->access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	e->qkey = QKEY;
	e->rq_psn = PSN;
	e->mtu = IBV_MTU_1024;
	e->timeout = 18; /* patient: others load this machine */
	e->retry_cnt = 6;
}

static inline void make_all_but_qp(struct end *e, bool events)
{
	defaults(e);
	e->context = open_first();
	e->pd = ibv_alloc_pd(e->context);
	if (!e->pd)
		die("ibv_alloc_pd", errno);
	e->mr = ibv_reg_mr(e->pd, e->buf, sizeof(e->buf),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC |
				   IBV_ACCESS_MW_BIND);
	if (!e->mr)
		die("ibv_reg_mr", errno);
	if (events)
		e->channel = ibv_create_comp_channel(e->context);
	e->cq = ibv_create_cq(e->context, 64, NULL, e->channel, 0);
	if (!e->cq || (events && ibv_req_notify_cq(e->cq, 0)))
		die("ibv_create_cq, ibv_req_notify_cq", errno);
}

static inline void make(struct end *e, enum ibv_qp_type type, bool events)
{
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.cap = { 32, 32, 1, 1, 0 },
	};

	make_all_but_qp(e, events);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &init);
	if (!e->qp)
		die("ibv_create_qp", errno);
}

static inline bool is_ud(const struct end *e)
{
	return e->qp->qp_type == IBV_QPT_UD;
}

static inline void modify(struct end *e, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(e->qp, attr, mask);

	if (err)
		die("ibv_modify_qp", err);
}

static inline void to_init(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = e->access,
		.qkey = e->qkey,
	};

	modify(e, &attr,
	       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (is_ud(e) ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

/* The way to this machine's own port. */
static inline struct ibv_ah_attr way(struct end *e)
{
	struct ibv_ah_attr ah = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .sgid_index = 1, .hop_limit = 1 },
	};

	if (ibv_query_gid(e->context, 1, 1, &ah.grh.dgid))
		die("ibv_query_gid", errno);
	return ah;
}

/* To QP @qpn, its own or another's; a UD QP only goes to RTS. */
static inline void connect_to(struct end *e, uint32_t qpn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = e->mtu,
		.dest_qp_num = qpn,
		.rq_psn = e->rq_psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = way(e),
	};

	modify(e, &attr,
	       is_ud(e) ? IBV_QP_STATE
			: IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = PSN,
		.timeout = e->timeout,
		.retry_cnt = e->retry_cnt,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	modify(e, &attr,
	       is_ud(e) ? IBV_QP_STATE | IBV_QP_SQ_PSN
			: IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_MAX_QP_RD_ATOMIC);
}

static inline void post_recv(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, SIZE, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int err;

	if (is_ud(e))
		sge.length += GRH;
	err = ibv_post_recv(e->qp, &wr, &bad);
	if (err)
		die("ibv_post_recv", err);
}

static inline void post_send(struct end *e, struct ibv_send_wr wr)
{
	struct ibv_sge sge = { (uintptr_t)e->buf + SIZE, SIZE, e->mr->lkey };
	struct ibv_send_wr *bad;
	int err;

	wr.wr_id = 2;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	err = ibv_post_send(e->qp, &wr, &bad);
	if (err)
		die("ibv_post_send", err);
}

/* Waits for @n completions; returns the status of the last one. */
static inline int reap(struct end *e, int n)
{
	time_t end = time(NULL) + DEADLINE_S;
	struct ibv_wc wc = { 0 };

	while (n > 0) {
		int got = ibv_poll_cq(e->cq, 1, &wc);

		if (got < 0 || time(NULL) > end)
			die("ibv_poll_cq", got < 0 ? errno : ETIMEDOUT);
		n -= got;
	}
	return wc.status;
}

static inline void wait_for_event(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(e->channel, &cq, &context))
		die("ibv_get_cq_event", errno);
}

static inline void unmake(struct end *e)
{
	if (ibv_destroy_qp(e->qp) || ibv_destroy_cq(e->cq) ||
	    (e->channel && ibv_destroy_comp_channel(e->channel)) ||
	    ibv_dereg_mr(e->mr) || ibv_dealloc_pd(e->pd) ||
	    ibv_close_device(e->context))
		die("unmake", errno);
}

static inline void converse(struct end *e, int messages)
{
	const struct ibv_send_wr send = { .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED };

	for (int i = 0; i < messages; i++) {
		post_recv(e);
		post_send(e, send);
		if (reap(e, 2) != IBV_WC_SUCCESS)
			die("completion", EIO);
	}
}

#endif

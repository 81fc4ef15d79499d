/* SPDX-License-Identifier: MIT */
/*
 * ends.h - trace_probe's QPs, each with all that it stands on: made, connected (also
 * to themselves), and talking. What fails ends the program.
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
#define DEADLINE_S 20

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *channel; /* or NULL */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char buf[2 * SIZE + GRH];
};

static void die(const char *what, int err)
{
	fprintf(stderr, "trace_probe: %s: %s\n", what, strerror(err));
	exit(1);
}

static struct ibv_context *open_first(void)
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

static void make(struct end *e, enum ibv_qp_type type, bool events)
{
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.cap = { 32, 32, 1, 1, 0 },
	};

	e->context = open_first();
	e->pd = ibv_alloc_pd(e->context);
	if (!e->pd)
		die("ibv_alloc_pd", errno);
	e->mr = ibv_reg_mr(e->pd, e->buf, sizeof(e->buf),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (events)
		e->channel = ibv_create_comp_channel(e->context);
	e->cq = ibv_create_cq(e->context, 64, NULL, e->channel, 0);
	if (!e->mr || !e->cq || (events && ibv_req_notify_cq(e->cq, 0)))
		die("ibv_reg_mr, ibv_create_cq, ibv_req_notify_cq", errno);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &init);
	if (!e->qp)
		die("ibv_create_qp", errno);
}

static void to_init(struct end *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	int err = ibv_modify_qp(e->qp, &attr,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_ACCESS_FLAGS);

	if (err)
		die("INIT", err);
}

/* @to is itself, or the QP of another end. */
static void connect_to(struct end *e, const struct end *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to->qp->qp_num,
		.rq_psn = 100,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .sgid_index = 1, .hop_limit = 1 } },
	};
	int err;

	if (ibv_query_gid(e->context, 1, 1, &attr.ah_attr.grh.dgid))
		die("ibv_query_gid", errno);
	err = ibv_modify_qp(e->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER);
	if (err)
		die("RTR", err);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 100,
		.timeout = 18, /* patient: others load this machine */
		.retry_cnt = 6,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	err = ibv_modify_qp(e->qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC);
	if (err)
		die("RTS", err);
}

static void to_rts(struct end *e)
{
	connect_to(e, e);
}

static void post_recv(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, SIZE, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(e->qp, &wr, &bad);

	if (err)
		die("ibv_post_recv", err);
}

static void post_send(struct end *e, struct ibv_send_wr wr)
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
static int reap(struct end *e, int n)
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

static void unmake(struct end *e)
{
	ibv_destroy_qp(e->qp);
	ibv_destroy_cq(e->cq);
	ibv_dereg_mr(e->mr);
	ibv_dealloc_pd(e->pd);
	ibv_close_device(e->context);
}

static void converse(struct end *e, int messages)
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

static inline void ud_to_rts(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = 1,
				    .qkey = QKEY };
	int err = ibv_modify_qp(e->qp, &attr,
				IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					IBV_QP_QKEY);

	attr.qp_state = IBV_QPS_RTR;
	if (!err)
		err = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	if (!err)
		err = ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (err)
		die("UD to RTS", err);
}

static inline void ud_recv(struct end *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, GRH + SIZE, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(e->qp, &wr, &bad);

	if (err)
		die("ibv_post_recv", err);
}

/* Connected to itself, after 20 messages. */
static inline struct end *after_a_talk(void)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		die("calloc", ENOMEM);
	make(e, IBV_QPT_RC, false);
	to_init(e);
	to_rts(e);
	converse(e, MESSAGES);
	return e;
}

#endif

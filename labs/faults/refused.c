// SPDX-License-Identifier: MIT
/*
 * refused.c —— 场景：设备或 libibverbs 不肯做的，等事件却没有等到的，ibv_wr_ 函数用错的
 */
#include "faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

void ask_for_device_memory(struct end *end)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE };

	need(end, "ibv_alloc_dm", ibv_alloc_dm(end->context, &attr));
}

/* rxe 没有时间戳。*/
void ask_for_timestamps(struct end *end)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 1,
		.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};

	need(end, "ibv_create_cq_ex", ibv_create_cq_ex(end->context, &init));
}

void arm_beyond_srq(struct end *end)
{
	struct ibv_srq_init_attr room = { .attr = { 8, 1, 0 } };
	struct ibv_srq_attr limit = { .srq_limit = 4000 };
	struct ibv_srq *srq = ibv_create_srq(end->pd, &room);

	need(end, "ibv_create_srq", srq);
	check(end, "ibv_modify_srq",
	      ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
}

static void wake(int sig)
{
	(void)sig;
}

static void await_event(struct end *end, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	void *context;

	check(end, "ibv_get_cq_event",
	      ibv_get_cq_event(channel, &cq, &context) ? errno : 0);
}

void be_interrupted(struct end *end)
{
	const struct sigaction act = { .sa_handler = wake };

	sigaction(SIGALRM, &act, NULL);
	alarm(1);
	await_event(end, ibv_create_comp_channel(end->context));
}

void be_too_early(struct end *end)
{
	struct ibv_comp_channel *channel =
		ibv_create_comp_channel(end->context);

	need(end, "ibv_create_comp_channel", channel);
	fcntl(channel->fd, F_SETFL, O_NONBLOCK);
	await_event(end, channel);
}

/* ---- ibv_wr_ 函数 ----------------------------------------------------------- */

/* 只要 SEND 的函数。comp_mask 里没有 PD 的，填了 pd 也不读。*/
static struct ibv_qp *make_qp_ex(struct end *end, uint32_t comp_mask)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = end->send_cq,
		.recv_cq = end->recv_cq,
		.cap = { 1, 1, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = comp_mask | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = end->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(end->context, &init);

	need(end, "ibv_create_qp_ex", qp);
	return qp;
}

void forget_pd(struct end *end)
{
	make_qp_ex(end, 0);
}

/* 没有 send_ops_flags 的 QP 没有这些函数。*/
void start_plain(struct end *end)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(end->qp);

	say(end, "ibv_qp_to_qp_ex: %s", ex ? "a QP" : "NULL");
	ibv_wr_start(ex);
}

/* 只要了 SEND，却去 WRITE：那个函数指针是 NULL。*/
void write_unasked(struct end *end)
{
	struct ibv_qp *qp = make_qp_ex(end, IBV_QP_INIT_ATTR_PD);

	say(end, "ibv_create_qp_ex: a QP");
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	ibv_wr_rdma_write(ibv_qp_to_qp_ex(qp), end->mr->rkey, end->mine.addr);
}

/* provider 的锁自己拿着，再拿一次就停在里面。*/
void start_twice(struct end *end)
{
	struct ibv_qp *qp = make_qp_ex(end, IBV_QP_INIT_ATTR_PD);

	signal(SIGALRM, SIG_DFL);
	alarm(1);
	for (int i = 0; i < 2; i++)
		ibv_wr_start(ibv_qp_to_qp_ex(qp));
}

/* ---- UD ------------------------------------------------------------------- */

/* 报文在第 40 字节，它从头读。*/
void read_from_the_start(struct end *end)
{
	await(end, end->recv_cq);
	say(end, "bytes 0 to 4 of %d", GRH_BYTES);
	leave(end, EXIT_FAILURE);
}

// SPDX-License-Identifier: MIT
/*
 * rig.c —— 故障台：同一个进程里的两端，和“犯错之后看见了什么”
 *
 * 两端同在一个进程，就不必等另一个程序、也不必交换任何东西：每个故障只剩下那个
 * 错误本身。两端分别在 rxe0 与 rxe1 上，包仍然经过 veth。
 *
 * 超时故意取得很短（4.096 µs × 2^12 = 17 ms，重传 2 次），失败几十毫秒就有结果。
 */
#include "base/report.h"
#include "explain/qp_table.h"
#include "faults.h"
#include "rdma_common.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CQ_ENTRIES  64
#define QUEUE_DEPTH 16
#define NOBODY	    65534
#define CANNOT_RUN  77
#define BROKEN	    2
#define ALL_RIGHTS                                         \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* 台子自己出了毛病，与故障无关：说清楚，然后走人。*/
static void must(bool good, const char *what)
{
	if (good)
		return;
	report_error("look at `rdma link` and dmesg", "the rig: %s: %s", what,
		     strerror(errno));
	exit(BROKEN);
}

static void open_end(struct end *end, const char *device)
{
	const struct rdma_config config = { .device_name = device,
					    .gid_index = GID_INDEX_AUTO };
	struct rdma_resources res = { 0 };

	if (open_device(&res, &config))
		exit(CANNOT_RUN);
	end->context = res.context;
	end->port = res.ib_port;
	end->gid_index = res.gid_index;
	end->gid = res.gid;
	end->plan = (struct ibv_qp_attr){
		.path_mtu = res.port_attr.active_mtu,
		.qkey = 0x1234,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.port_num = end->port,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.timeout = 12,
		.retry_cnt = 2,
		.rnr_retry = 1,
		.ah_attr = { .is_global = 1,
			     .port_num = end->port,
			     .grh = { .sgid_index = end->gid_index,
				      .hop_limit = 64 } },
	};
}

struct ibv_mr *add_mr(struct end *end, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(end->pd, end->buf, length, access);

	must(mr && end->n_mrs < MOST_MRS, "ibv_reg_mr");
	end->mrs[end->n_mrs++] = (struct explain_mr){
		.pd = end->pd,
		.addr = (uintptr_t)end->buf,
		.length = length,
		.lkey = mr->lkey,
		.rkey = mr->rkey,
		.access = access,
	};
	return mr;
}

struct ibv_mr *add_foreign_mr(struct end *end, int access)
{
	struct ibv_pd *own = end->pd;
	struct ibv_mr *mr;

	end->pd = ibv_alloc_pd(end->context);
	must(end->pd, "ibv_alloc_pd");
	mr = add_mr(end, PAGE, access);
	end->pd = own;
	return mr;
}

static void make_objects(struct end *end)
{
	end->pd = ibv_alloc_pd(end->context);
	must(end->pd, "ibv_alloc_pd");
	end->buf = aligned_alloc(PAGE, BUFFER_BYTES);
	must(end->buf, "aligned_alloc");
	memset(end->buf, 0, BUFFER_BYTES);
	end->mr = add_mr(end, BUFFER_BYTES, ALL_RIGHTS);
	end->send_cq = ibv_create_cq(end->context, CQ_ENTRIES, NULL, NULL, 0);
	end->recv_cq = ibv_create_cq(end->context, CQ_ENTRIES, NULL, NULL, 0);
	must(end->send_cq && end->recv_cq, "ibv_create_cq");
}

void make_qp(struct end *end, enum ibv_qp_type type, bool sq_sig_all)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->send_cq,
		.recv_cq = end->recv_cq,
		.cap = { .max_send_wr = QUEUE_DEPTH,
			 .max_recv_wr = QUEUE_DEPTH,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.qp_type = type,
		.sq_sig_all = sq_sig_all,
	};

	end->qp = ibv_create_qp(end->pd, &init);
	must(end->qp, "ibv_create_qp");
	end->side = (struct explain_side){ .name = end->name,
					   .qp_num = end->qp->qp_num,
					   .gid = end->gid };
	/* 用 QPN 凑一个 PSN：各端不同，又能重现。*/
	end->plan.sq_psn = 0x100000u + end->qp->qp_num * 1000u % 0x800000u;
}

static void meet(struct end *end, const struct end *other)
{
	end->plan.dest_qp_num = other->qp->qp_num;
	end->plan.rq_psn = other->plan.sq_psn;
	end->plan.ah_attr.grh.dgid = other->gid;
}

void introduce(struct rig *rig)
{
	meet(&rig->a, &rig->b);
	meet(&rig->b, &rig->a);
}

void make_qps(struct rig *rig, enum ibv_qp_type type, bool sq_sig_all)
{
	make_qp(&rig->a, type, sq_sig_all);
	make_qp(&rig->b, type, sq_sig_all);
	introduce(rig);
}

/* 第一个与第二个设备的名字；只有一个就两端同用它。*/
static void choose_devices(char names[2][64])
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list || !count) {
		report_error("run it in the lab: labs/faults/run",
			     "there is no RDMA device here");
		exit(CANNOT_RUN);
	}
	for (int i = 0; i < 2; i++)
		snprintf(names[i], 64, "%s",
			 ibv_get_device_name(list[i < count ? i : 0]));
	/* 列表的次序不保证；让 A 总在 rxe0。*/
	if (strcmp(names[0], names[1]) > 0) {
		char swap[64];

		memcpy(swap, names[0], 64);
		memcpy(names[0], names[1], 64);
		memcpy(names[1], swap, 64);
	}
	ibv_free_device_list(list);
}

void rig_prepare(struct rig *rig, enum ready ready)
{
	char names[2][64];

	memset(rig, 0, sizeof(*rig));
	rig->a.name = "A";
	rig->b.name = "B";
	if (ready == READY_NOT)
		return;
	choose_devices(names);
	open_end(&rig->a, names[0]);
	open_end(&rig->b, names[1]);
	make_objects(&rig->a);
	make_objects(&rig->b);
	if (ready == READY_OPEN)
		return;
	make_qps(rig, IBV_QPT_RC, false);
	if (ready == READY_CONNECTED) {
		connect_ends(rig);
	} else if (ready >= READY_INIT) {
		do_step(&rig->a, step_init(&rig->a));
		do_step(&rig->b, step_init(&rig->b));
		if (ready == READY_RTR)
			do_step(&rig->a, step_rtr(&rig->a));
	}
}

/* ---- 状态机 --------------------------------------------------------------- */

/* 该类型的 QP 走这一步必须带的位，表里有。*/
static struct step step_to(const struct end *end, enum ibv_qp_state from,
			   enum ibv_qp_state to)
{
	const struct qp_transition *row =
		qp_transition(end->qp->qp_type, from, to);
	struct step step = { .attr = end->plan,
			     .mask = row->required | IBV_QP_STATE };

	step.attr.qp_state = to;
	return step;
}

struct step step_init(const struct end *end)
{
	return step_to(end, IBV_QPS_RESET, IBV_QPS_INIT);
}

struct step step_rtr(const struct end *end)
{
	return step_to(end, IBV_QPS_INIT, IBV_QPS_RTR);
}

struct step step_rts(const struct end *end)
{
	return step_to(end, IBV_QPS_RTR, IBV_QPS_RTS);
}

struct step step_state(enum ibv_qp_state state)
{
	return (struct step){ .attr = { .qp_state = state },
			      .mask = IBV_QP_STATE };
}

void do_step(struct end *end, struct step step)
{
	errno = ibv_modify_qp(end->qp, &step.attr, step.mask);
	must(!errno, qp_state_name(step.attr.qp_state));
	explain_side_learn(&end->side, &step.attr, step.mask);
}

void connect_end(struct end *end)
{
	do_step(end, step_rtr(end));
	do_step(end, step_rts(end));
}

void connect_ends(struct rig *rig)
{
	do_step(&rig->a, step_init(&rig->a));
	do_step(&rig->b, step_init(&rig->b));
	connect_end(&rig->a);
	connect_end(&rig->b);
}

/* ---- 看见了什么 ------------------------------------------------------------ */

void saw_error(struct rig *rig, const char *call, int err)
{
	if (err)
		snprintf(rig->saw, sizeof(rig->saw), "%s: %s (%d)", call,
			 strerrorname_np(err), err);
	else
		snprintf(rig->saw, sizeof(rig->saw), "%s: 0", call);
}

void try_step(struct rig *rig, struct step step)
{
	struct ibv_qp *qp = rig->a.qp;
	enum ibv_qp_state before = qp->state;
	struct explanation all[EXPLAIN_MOST];
	int err = ibv_modify_qp(qp, &step.attr, step.mask);

	saw_error(rig, "ibv_modify_qp", err);
	if (err)
		rig->why = explain_modify_qp(qp, &step.attr, step.mask, err);
	else if (explain_accepted(qp, &step.attr, step.mask, before, all,
				  EXPLAIN_MOST))
		rig->why = all[0];
	if (!err)
		explain_side_learn(&rig->a.side, &step.attr, step.mask);
}

void prepare_send(struct rig *rig, enum ibv_wr_opcode opcode, uint32_t length)
{
	rig->send_sge = (struct ibv_sge){ .addr = (uintptr_t)rig->a.buf,
					  .length = length,
					  .lkey = rig->a.mr->lkey };
	rig->send = (struct ibv_send_wr){
		.wr_id = 1,
		.sg_list = &rig->send_sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr = { .rdma = { .remote_addr = (uintptr_t)rig->b.buf,
				  .rkey = rig->b.mr->rkey } },
	};
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		rig->send.wr.atomic.remote_addr = (uintptr_t)rig->b.buf;
		rig->send.wr.atomic.rkey = rig->b.mr->rkey;
		rig->send.wr.atomic.compare_add = 1;
	}
}

void post_recv(struct rig *rig, uint32_t length)
{
	struct ibv_recv_wr *bad;

	if (!rig->recv_sge.lkey)
		rig->recv_sge = (struct ibv_sge){
			.addr = (uintptr_t)rig->b.buf,
			.length = length,
			.lkey = rig->b.mr->lkey,
		};
	rig->recv = (struct ibv_recv_wr){ .wr_id = 2,
					  .sg_list = &rig->recv_sge,
					  .num_sge = 1 };
	errno = ibv_post_recv(rig->b.qp, &rig->recv, &bad);
	must(!errno, "ibv_post_recv");
}

int try_post(struct rig *rig)
{
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send(rig->a.qp, &rig->send, &bad);

	if (!err)
		return 0;
	saw_error(rig, "ibv_post_send", err);
	rig->why = explain_post_send(rig->a.qp, bad ? bad : &rig->send, err);
	return err;
}

bool next_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	for (int i = 0; i <= ms; i++) {
		if (ibv_poll_cq(cq, 1, wc) > 0)
			return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

bool wait_for(struct rig *rig, struct ibv_qp *qp, struct ibv_cq *cq,
	      const struct explain_request *request, int ms)
{
	struct ibv_wc wc;

	if (!next_wc(cq, &wc, ms)) {
		snprintf(rig->saw, sizeof(rig->saw),
			 "no completion within %d ms", ms);
		rig->why = explain_stall(qp, request, ms);
		return false;
	}
	snprintf(rig->saw, sizeof(rig->saw), "wc.status %d (%s)", wc.status,
		 ibv_wc_status_str(wc.status));
	if (wc.status != IBV_WC_SUCCESS)
		rig->why = explain_completion(qp, &wc, request);
	return wc.status == IBV_WC_SUCCESS;
}

void wait_send(struct rig *rig, int ms)
{
	const struct explain_request request = {
		.send = &rig->send,
		.polled = rig->a.send_cq,
		.local = rig->a.mrs,
		.n_local = rig->a.n_mrs,
		.remote = rig->b.mrs,
		.n_remote = rig->b.n_mrs,
		.peer_pd = rig->b.pd,
		.peer_recv = rig->recv.num_sge ? &rig->recv : NULL,
		.mine = &rig->a.side,
		.peer = &rig->b.side,
	};

	wait_for(rig, rig->a.qp, rig->a.send_cq, &request, ms);
}

void wait_recv(struct rig *rig, int ms)
{
	const struct explain_request request = {
		.recv = &rig->recv,
		.polled = rig->b.recv_cq,
		.local = rig->b.mrs,
		.n_local = rig->b.n_mrs,
		.remote = rig->a.mrs,
		.n_remote = rig->a.n_mrs,
		.peer_send = &rig->send,
		.mine = &rig->b.side,
		.peer = &rig->a.side,
	};

	wait_for(rig, rig->b.qp, rig->b.recv_cq, &request, ms);
}

void try_send(struct rig *rig)
{
	if (!try_post(rig))
		wait_send(rig, WAIT_MS);
}

void send_message(struct rig *rig, uint32_t length)
{
	post_recv(rig, length);
	prepare_send(rig, IBV_WR_SEND, length);
	try_send(rig);
}

bool become_nobody(void)
{
	return !setgroups(0, NULL) && !setgid(NOBODY) && !setuid(NOBODY);
}

void shell(const char *command)
{
	must(!system(command), command);
}

// SPDX-License-Identifier: MIT
/*
 * 第 3 课：QP 的状态机
 *
 * 让一个 QP 走完能走到的每个状态。每走一步，都从三个角度看它：
 *   - qp->state        libibverbs 的缓存
 *   - ibv_query_qp()   内核里的真实状态
 *   - rdma resource    旁观者（系统管理员）看到的
 *
 * 为了不依赖第 4 课的 TCP 交换，这里让 QP 与它自己相连：对端的 QPN、PSN、GID
 * 就是自己的。RC 允许这样做，包在 rxe 驱动里就折返了。
 */
#include "../lesson.h"
#include "base/report.h"
#include "explain/explain.h"
#include "explain/qp_table.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

/* 请 iproute2 的 rdma 工具来说：它不属于本进程，只看内核。*/
static void show_rdma_resource(const struct rdma_resources *res)
{
	char qpn[16];
	/*
	 * 只写设备名、不写 "/1"：QP 到 INIT 才属于某个 port，写了 port 就看不到
	 * 还在 RESET 的 QP。
	 */
	const char *device = ibv_get_device_name(res->context->device);
	char *const argv[] = { "rdma", "resource", "show",
			       "qp",   "link",	   (char *)(uintptr_t)device,
			       "lqpn", qpn,	   NULL };
	int status;
	pid_t pid;

	snprintf(qpn, sizeof(qpn), "%u", res->qp->qp_num);
	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ)) {
		report_fact("(no rdma tool here: apt install iproute2)");
		return;
	}
	waitpid(pid, &status, 0);
}

// region show-state
static int show_state(struct rdma_resources *res)
{
	enum ibv_qp_state cached = res->qp->state;
	struct ibv_qp_attr attr;
	int rc = query_qp(res, &attr);

	if (rc)
		return rc;
	report_fact("library cache %s, kernel %s", qp_state_name(cached),
		    qp_state_name(attr.qp_state));
	if (attr.qp_state == IBV_QPS_RTR || attr.qp_state == IBV_QPS_RTS)
		report_fact("dest QPN %u, rq_psn %u, sq_psn %u, path_mtu %u",
			    attr.dest_qp_num, attr.rq_psn, attr.sq_psn,
			    mtu_bytes(attr.path_mtu));
	show_rdma_resource(res);
	return 0;
}
// endregion show-state

// region itself
/* 对端就是自己：于是“对端的信息”全都现成。*/
static void connect_to_itself(struct rdma_resources *res)
{
	res->remote.qp_num = res->qp->qp_num;
	res->remote.psn = res->psn;
	res->remote.lid = res->port_attr.lid;
	res->remote.active_mtu = (uint8_t)res->port_attr.active_mtu;
	memcpy(res->remote.gid, res->gid.raw, sizeof(res->remote.gid));
}
// endregion itself

/* ---- --break --------------------------------------------------------------- */

static int wrong_modify(struct rdma_resources *res, struct ibv_qp_attr *attr,
			int mask, const char *what)
{
	int rc;

	report_step("break it: %s", what);
	rc = modify_qp(res, attr, mask);
	if (!rc)
		report_fact("accepted");
	return rc;
}

/* 下面四个错误，各自只改动正确的 INIT→RTR 中的一处。*/
#define RTR_MASK                                                        \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | \
	 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)

static int no_grh(void *res)
{
	struct ibv_qp_attr attr = rtr_attributes(res);

	attr.ah_attr.is_global = 0;
	return wrong_modify(res, &attr, RTR_MASK, "no-grh");
}

static int one_bit(void *res)
{
	struct ibv_qp_attr attr = rtr_attributes(res);

	return wrong_modify(res, &attr, RTR_MASK & ~IBV_QP_MIN_RNR_TIMER,
			    "one-bit");
}

static int empty_gid(void *res)
{
	struct ibv_qp_attr attr = rtr_attributes(res);

	attr.ah_attr.grh.sgid_index = 7;
	return wrong_modify(res, &attr, RTR_MASK, "empty-gid");
}

static int no_neighbour(void *res)
{
	struct ibv_qp_attr attr = rtr_attributes(res);

	attr.ah_attr.grh.dgid.raw[15] = 77;
	return wrong_modify(res, &attr, RTR_MASK, "no-neighbour");
}

static int skip_rtr(void *res)
{
	struct ibv_qp_attr attr = rts_attributes(res);

	return wrong_modify(res, &attr, RTS_MASK, "INIT to RTS");
}

static int err_to_init(void *res)
{
	int rc = modify_qp_to_error(res);

	report_step("break it: ERR to INIT");
	return rc ? rc : modify_qp_to_init(res);
}

static const struct lesson_break breaks[] = {
	{ "skip-rtr", "go from INIT to RTS directly", skip_rtr },
	{ "no-grh", "leave out the GRH (is_global = 0) on RoCE", no_grh },
	{ "one-bit", "forget MIN_RNR_TIMER in the mask of RTR", one_bit },
	{ "empty-gid", "use an empty slot of the GID table as sgid_index",
	  empty_gid },
	{ "no-neighbour", "name a peer that does not answer ARP",
	  no_neighbour },
	{ "err-to-init", "go from ERR to INIT without RESET", err_to_init },
	{ 0 },
};

/* ---- 从头到尾 --------------------------------------------------------------- */

static int to_sqd(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };

	return modify_qp(res, &attr, IBV_QP_STATE);
}

/* 一张“路线表”：每一行是一步，做完就看一眼。*/
static int walk(const struct lesson *lesson, struct rdma_resources *res)
{
	static const struct {
		const char *name;
		int (*go)(struct rdma_resources *res);
	} steps[] = {
		{ "INIT -> RTR: the peer's QPN, PSN, GID", modify_qp_to_rtr },
		{ "RTR -> RTS: my PSN, time-out, retries", modify_qp_to_rts },
		{ "RTS -> SQD: the send queue drains", to_sqd },
		{ "SQD -> ERR: what is outstanding is flushed",
		  modify_qp_to_error },
		{ "ERR -> RESET: the only way out", modify_qp_to_reset },
	};
	int rc;

	report_step("a new QP is in RESET");
	rc = show_state(res);
	if (rc)
		return rc;
	report_step("RESET -> INIT: port, P_Key index, access rights");
	rc = modify_qp_to_init(res);
	if (!rc)
		rc = show_state(res);
	if (rc)
		return rc;
	connect_to_itself(res);
	if (lesson->broken)
		return lesson->broken->plant(res);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && !rc; i++) {
		report_step("%s", steps[i].name);
		rc = steps[i].go(res);
		if (!rc)
			rc = show_state(res);
	}
	return rc;
}

int main(int argc, char *argv[])
{
	struct rdma_resources res = { 0 };
	struct lesson lesson;
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	rc = init_rdma_resources(&res, &lesson.config);
	if (rc)
		return 1;
	rc = walk(&lesson, &res);
	rc |= destroy_rdma_resources(&res);
	return rc ? 1 : 0;
}

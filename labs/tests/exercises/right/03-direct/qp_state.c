// SPDX-License-Identifier: MIT
/* Right, in another hand: a memset, assignments, and rand() for the PSN. */
#include "rdma_common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int modify_qp(struct rdma_resources *res, struct ibv_qp_attr *attr, int mask)
{
	int ret = ibv_modify_qp(res->qp, attr, mask);

	if (ret)
		return modify_qp_failed(res->qp, attr, mask, ret);
	return 0;
}

static uint8_t at_most(const struct rdma_resources *res, int device)
{
	int most = res->max_reads;

	if (most == 0)
		most = 16;
	return most > device ? device : most;
}

int modify_qp_to_init(struct rdma_resources *res)
{
	struct timespec now;
	struct ibv_qp_attr attr;
	int flags;

	clock_gettime(CLOCK_REALTIME, &now);
	srand((unsigned int)(now.tv_nsec ^ now.tv_sec ^ getpid()));
	res->psn = (uint32_t)rand() % (1 << 24);

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = res->ib_port;
	attr.pkey_index = 0;
	attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			       IBV_ACCESS_REMOTE_WRITE;
	flags = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		IBV_QP_ACCESS_FLAGS;
	return modify_qp(res, &attr, flags);
}

enum ibv_mtu path_mtu(const struct rdma_resources *res)
{
	if (res->remote.active_mtu < res->port_attr.active_mtu)
		return (enum ibv_mtu)res->remote.active_mtu;
	return res->port_attr.active_mtu;
}

struct ibv_qp_attr rtr_attributes(const struct rdma_resources *res)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = path_mtu(res);
	attr.dest_qp_num = res->remote.qp_num;
	attr.rq_psn = res->remote.psn;
	attr.max_dest_rd_atomic = at_most(res, res->device_attr.max_qp_rd_atom);
	attr.min_rnr_timer = 0x12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.dlid = res->remote.lid;
	attr.ah_attr.sl = 0;
	attr.ah_attr.src_path_bits = 0;
	attr.ah_attr.port_num = res->ib_port;
	memcpy(&attr.ah_attr.grh.dgid, res->remote.gid, 16);
	attr.ah_attr.grh.hop_limit = 255;
	attr.ah_attr.grh.sgid_index = res->gid_index;
	attr.ah_attr.grh.traffic_class = 0;
	return attr;
}

int modify_qp_to_rtr(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = rtr_attributes(res);
	int flags;

	flags = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER;
	return modify_qp(res, &attr, flags);
}

struct ibv_qp_attr rts_attributes(const struct rdma_resources *res)
{
	struct ibv_qp_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 0x12;
	attr.retry_cnt = 6;
	attr.rnr_retry = 6;
	attr.sq_psn = res->psn;
	attr.max_rd_atomic = at_most(res, res->device_attr.max_qp_init_rd_atom);
	return attr;
}

int modify_qp_to_rts(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = rts_attributes(res);
	int flags;

	flags = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	return modify_qp(res, &attr, flags);
}

static int only_state(struct rdma_resources *res, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return modify_qp(res, &attr, IBV_QP_STATE);
}

int modify_qp_to_error(struct rdma_resources *res)
{
	return only_state(res, IBV_QPS_ERR);
}

int modify_qp_to_reset(struct rdma_resources *res)
{
	return only_state(res, IBV_QPS_RESET);
}

int query_qp(struct rdma_resources *res, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init_attr;
	int ret = ibv_query_qp(res->qp, attr, 0x1fffff, &init_attr);

	if (ret)
		return call_failed(ret, "ibv_query_qp()");
	return 0;
}

/* SPDX-License-Identifier: MIT */
/*
 * world.h - stand-ins for libibverbs' ibv_query_*: they answer what is in world, where
 * the arguments of the call that failed are as well. A case is a world in which all is
 * right, and what is changed in it.
 */
#ifndef TESTS_EXPLAIN_WORLD_H
#define TESTS_EXPLAIN_WORLD_H

#include "explain/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_query_port

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static struct world {
	/* what the kernel and the device say */
	unsigned int asked; /* how often anybody was */
	bool qp_unknown, no_device;
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr made;
	struct ibv_srq_attr srq_now;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	/* what is asked about */
	struct ibv_context context;
	struct ibv_pd pd, other_pd;
	struct ibv_cq cq, other_cq;
	struct ibv_srq srq;
	struct ibv_qp qp;
	int err;
	struct ibv_qp_attr attr; /* ibv_modify_qp */
	int mask;
	struct ibv_qp_init_attr init; /* ibv_create_qp */
	int cqe, vector, fd, access;  /* ibv_create_cq, ibv_reg_*mr */
	uint64_t addr, length;	      /* ibv_reg_mr */
	struct ibv_send_wr send;      /* ibv_post_send */
	struct ibv_recv_wr recv;      /* ibv_post_recv */
	struct ibv_sge sges[3], rsges[3];
	enum ibv_wc_status status; /* a completion */
	struct explain_mr near, far;
	struct explain_side mine, peer;
	struct explain_request request;
	int64_t ms;
	const char *call; /* librdmacm */
	int event;
	bool again, foreign;
	unsigned int bytes;
} world;
static const char *device_name = "none0";

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	world.asked++;
	if (world.qp_unknown)
		return EINVAL;
	*init = world.made;
	*attr = world.now;
	/* The real one changes its copy here. */
	if (mask & IBV_QP_STATE)
		qp->state = world.now.qp_state;
	return 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	(void)srq;
	world.asked++;
	*attr = world.srq_now;
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	world.asked++;
	*attr = world.device;
	errno = ENOTTY; /* any system call may */
	return world.no_device ? ENOTTY : 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port,
		   struct _compat_ibv_port_attr *attr)
{
	(void)context;
	(void)port;
	world.asked++;
	memcpy(attr, &world.port, sizeof(world.port));
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
		  union ibv_gid *gid)
{
	(void)context;
	(void)port;
	(void)index;
	world.asked++;
	*gid = world.gid.gid;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
		      uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	(void)context;
	(void)port;
	(void)index;
	(void)flags;
	(void)size;
	world.asked++;
	*entry = world.gid;
	return 0;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	(void)device;
	return device_name;
}

/* An ordinary RoCE v2 device, no rxe; and an RC QP on it, in @state. */
static inline void ordinary_world(enum ibv_qp_state state)
{
	memset(&world, 0, sizeof(world));
	world.now.qp_state = state;
	world.now.port_num = 1;
	world.device.vendor_id = 0x2c9;
	world.device.phys_port_cnt = 1;
	world.device.max_qp_init_rd_atom = 16;
	world.device.max_qp_rd_atom = 16;
	world.port.link_layer = IBV_LINK_LAYER_ETHERNET;
	world.port.max_mtu = IBV_MTU_4096;
	world.port.active_mtu = IBV_MTU_1024;
	world.gid.gid_type = IBV_GID_TYPE_ROCE_V2;
	memset(world.gid.gid.raw + 10, 0xff, 2);
	world.gid.gid.raw[15] = 1;
	world.pd.context = &world.context;
	world.qp.context = &world.context;
	world.qp.pd = &world.pd;
	world.qp.send_cq = &world.cq;
	world.qp.recv_cq = &world.other_cq;
	world.qp.qp_type = IBV_QPT_RC;
	world.qp.state = state;
	world.qp.qp_num = 0x11;
	world.err = EINVAL;
}

/* And the call that is about to bring it to @to: all is right. */
static inline void ordinary_step(enum ibv_qp_state from, enum ibv_qp_state to)
{
	static const int bits[] = {
		[IBV_QPS_INIT] =
			IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC,
	};

	ordinary_world(from);
	world.mask = IBV_QP_STATE | bits[to];
	world.attr = (struct ibv_qp_attr){
		.qp_state = to,
		.port_num = 1,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 0x12,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.timeout = 14,
		.retry_cnt = 6,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = world.gid.gid } },
	};
}

#endif

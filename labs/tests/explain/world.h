/* SPDX-License-Identifier: MIT */
/*
 * world.h - stand-ins for libibverbs' ibv_query_*: what they answer is in world; and
 * a QP to be asked about.
 */
#ifndef TESTS_EXPLAIN_WORLD_H
#define TESTS_EXPLAIN_WORLD_H

#include "explain/explain.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#undef ibv_query_port

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- stand-ins ------------------------------------------------------------- */

static struct {
	bool qp_unknown;
	struct ibv_qp_attr qp;
	uint32_t psn_step; /* sq_psn grows by that with each look */
	struct ibv_qp_init_attr init;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	struct ibv_gid_entry table[256];
	ssize_t slots; /* of table */
	bool no_device;
	unsigned int asked; /* how often anybody was */
} world;
static const char *device_name = "none0";

int ibv_query_qp(struct ibv_qp *the_qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	world.asked++;
	if (world.qp_unknown)
		return EINVAL;
	*init = world.init;
	*attr = world.qp;
	world.qp.sq_psn += world.psn_step;
	/* The real one changes its copy here. */
	if (mask & IBV_QP_STATE)
		the_qp->state = world.qp.qp_state;
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

ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t most,
			     uint32_t flags, size_t size)
{
	(void)context;
	(void)most;
	(void)flags;
	world.asked++;
	if (world.slots > 0)
		memcpy(entries, world.table, (size_t)world.slots * size);
	return world.slots;
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	(void)device;
	return device_name;
}

/* ---- what is asked about --------------------------------------------------- */

static struct ibv_context context;
static struct ibv_pd pd = { .context = &context };
static struct ibv_qp qp = { .context = &context, .pd = &pd };
static int failures;

static inline void expect(const char *what, const struct explanation *why,
			  const char *id)
{
	bool good = id ? why->id && !strcmp(why->id, id) : !why->id;

	if (good && id)
		good = why->cause[0] && why->next[0];
	if (!good)
		failures++;
	printf("%s %s: %s%s%s\n", good ? "ok" : "not ok", what,
	       why->id ? why->id : "nothing", good ? "" : ", expected ",
	       good ? ""
	       : id ? id
		    : "nothing");
}

/* That, and its cause has this word in it. */
static inline void expect_word(const char *what, const struct explanation *why,
			       const char *id, const char *word)
{
	expect(what, why, id);
	if (id && !strstr(why->cause, word)) {
		failures++;
		printf("not ok %s: \"%s\" is not in: %s\n", what, word,
		       why->cause);
	}
}

static inline void expect_true(const char *what, bool good)
{
	if (!good)
		failures++;
	printf("%s %s\n", good ? "ok" : "not ok", what);
}

/* An ordinary RoCE v2 device, no rxe; the QP is RC. */
static inline void ordinary_world(enum ibv_qp_state state)
{
	memset(&world, 0, sizeof(world));
	world.qp.qp_state = state;
	world.qp.port_num = 1;
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
	qp.qp_type = IBV_QPT_RC;
	qp.state = state;
	qp.qp_num = 0x11;
}

/* What an RC QP needs to get to RTR in it. */
static const int rtr_bits = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
/* And to RTS. */
static const int rts_bits = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC;

static inline struct ibv_qp_attr good_attr(enum ibv_qp_state state)
{
	return (struct ibv_qp_attr){
		.qp_state = state,
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

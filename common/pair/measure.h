/* SPDX-License-Identifier: MIT */
/*
 * measure.h - stage 5 many times over: ping-pong latency and one-way
 * bandwidth, with every message checked.
 */
#ifndef PAIR_MEASURE_H
#define PAIR_MEASURE_H

#include "base/laps.h"
#include "rdma_common.h"

enum measure_mode {
	MODE_ONCE,	/* one message each way */
	MODE_PINGPONG,	/* iters round trips */
	MODE_BANDWIDTH, /* iters messages from client to server */
};

struct measure_plan {
	enum measure_mode mode;
	uint64_t iters;	 /* 1 ... 100 million */
	uint32_t window; /* MODE_BANDWIDTH: sends outstanding at most */
};

struct measure_result {
	struct lap_summary half_us; /* MODE_PINGPONG: half round trips */
	/* payload per second of wall time, 10^6 bytes; ping-pong: both ways */
	double mb_per_s;
	double seconds;
};

/*
 * Set recv_slots and send_slots of @config so that @plan's messages fit, at
 * most some 64 MiB in all but never fewer than two of each when measuring.
 */
void measure_slots(struct rdma_config *config, const struct measure_plan *plan);

/*
 * Compare @plan with the peer's over @sock. @size: bytes of my messages. In
 * MODE_ONCE the sizes may differ, but each must fit the other's buffer. -EPROTO
 * if the plans differ, -EMSGSIZE if a message does not fit; both sides fail.
 */
int agree_on_plan(const struct rdma_resources *res,
		  const struct measure_plan *plan, uint32_t size, int sock,
		  int64_t deadline);

/* The same in two steps; the message is as on the wire. */
struct plan_msg {
	uint32_t mode;
	uint32_t size;
	uint64_t iters;
} __attribute__((packed));
struct plan_msg plan_msg_of(const struct measure_plan *plan, uint32_t size);
int compare_plans(const struct rdma_resources *res,
		  const struct measure_plan *plan, uint32_t size,
		  struct plan_msg peers);

/* "once", "pingpong", "bandwidth", or "unknown". */
const char *mode_name(uint32_t mode);

/*
 * Run @plan on a connected QP whose receive slots are all posted. @first: this
 * side sends first (ping-pong) or at all (bandwidth). @timeout_ms limits each
 * wait for a completion. @result is filled on the side that is @first only.
 * -EBADMSG: a message arrived with the wrong content or length.
 */
int measure_run(struct rdma_resources *res, const struct measure_plan *plan,
		bool first, int timeout_ms, struct measure_result *result);

#endif

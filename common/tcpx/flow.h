/* SPDX-License-Identifier: MIT */
/*
 * flow.h - move messages over connections of stage 6: many at once, on
 * several channels, each one checked.
 */
#ifndef TCPX_FLOW_H
#define TCPX_FLOW_H

#include "base/laps.h"
#include "exchange.h"

#define TCPX_TEXT_SPACE 4096 /* posted by a receiver of text, bytes */

/* One direction of one channel. Zero it before use. */
struct tcpx_flow {
	struct tcpx_comm *comm; /* NULL after tcpx_flow_close() */
	unsigned int channel;
	bool sends;
	const struct tcpx_plan *plan;
	size_t room;	      /* bytes of one buffer */
	unsigned int window;  /* buffers */
	unsigned char *arena; /* the buffers, each between two guards */
	size_t arena_size;
	void *mhandle;
	bool registered;
	uint64_t prepared, posted, done; /* messages */
	struct tcpx_request *requests[TCPX_MAX_RECVS];
	/* Messages whose size the plugin reported wrong, and how the first one. */
	uint64_t odd_sizes;
	int odd_size;
};

/*
 * Make the buffers of @flow, one of @flows in this process, and register them
 * as @mem_type. Undone by tcpx_flow_close(), which closes the comm, too, before
 * the buffers go: until then the plugin may use them. -ENOMEM: more than this
 * machine has.
 */
int tcpx_flow_open(struct tcpx_flow *flow, const struct tcpx_plan *plan,
		   unsigned int flows, int mem_type);
int tcpx_flow_close(struct tcpx_flow *flow);

/* Move all messages of all @n flows. -EBADMSG: one arrived wrong. */
int tcpx_move(struct tcpx_flow *flows, unsigned int n,
	      const struct tcpx_wait *wait);

/*
 * There and back again plan->iters times. @first: this side sends first, and
 * @laps gets the time of each round (else NULL).
 */
int tcpx_ping_pong(struct tcpx_flow *out, struct tcpx_flow *back,
		   const struct tcpx_wait *wait, bool first, struct laps *laps);

/* The last text that arrived, made safe to print. */
const char *tcpx_flow_text(const struct tcpx_flow *flow, char *out,
			   size_t size);

#endif

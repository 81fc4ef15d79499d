/* SPDX-License-Identifier: MIT */
/*
 * exchange.h - the bootstrap connection of stage 6: what goes over TCP
 * before the plugin can connect. All integers big-endian, packed:
 *
 *	server -> client  handles  magic(4) "TCPX", version(2), API(2),
 *				   count(2), handle size(2), then count handles
 *	client -> server  plan     magic(4) "PLAN", version(2), mode(2), size(8),
 *				   iters(8), text(1)
 *	client -> server  handles  in TCPX_PING_PONG only: the way back
 *
 * After that come the READY and DONE messages of sock_sync_step().
 */
#ifndef TCPX_EXCHANGE_H
#define TCPX_EXCHANGE_H

#include "calls.h"

#define TCPX_MAX_CHANNELS 64
#define TCPX_MAX_SIZE	  (1u << 30) /* bytes of one message */
#define TCPX_TEXT	  "Hello from TCPX client!"

enum tcpx_mode {
	TCPX_CHECK,	/* client to server, each message checked */
	TCPX_BANDWIDTH, /* client to server, the last ones checked */
	TCPX_PING_PONG, /* there and back, the last ones checked */
};

/* What will be sent. The client decides. */
struct tcpx_plan {
	enum tcpx_mode mode;
	uint64_t size;	/* bytes of one message, 0 ... TCPX_MAX_SIZE */
	uint64_t iters; /* messages on each channel */
	bool text;	/* messages are TCPX_TEXT; in TCPX_CHECK, of its size */
};

/*
 * Accept the first who answers @count (1 ... TCPX_MAX_CHANNELS) handles, made by
 * the listen of API version @api, with a plan; strangers get them, too, and are
 * turned away (tcp_accept_client()). Returns the socket, before the plan.
 */
int tcpx_accept_client(int listen_sock, int api,
		       const struct tcpx_handle *handles, unsigned int count,
		       int64_t deadline);

/* Send handles over @sock in the same way: the client's, in TCPX_PING_PONG. */
int tcpx_send_handles(int sock, int api, const struct tcpx_handle *handles,
		      unsigned int count, int64_t deadline);

/*
 * Receive handles into @handles (room for TCPX_MAX_CHANNELS). -EPROTO: the peer
 * speaks something else, its count or size cannot be, or its listen was not of
 * version @api (0: no matter).
 */
int tcpx_receive_handles(int sock, int api, struct tcpx_handle *handles,
			 unsigned int *count, int64_t deadline);

int tcpx_send_plan(int sock, const struct tcpx_plan *plan, int64_t deadline);
int tcpx_receive_plan(int sock, struct tcpx_plan *plan, int64_t deadline);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * session.h - the whole of stage 6, as server or as client: listen, hand the
 * handle over, connect, register, move the messages, confirm, close.
 * build/test_connection and lesson 06 are this function.
 */
#ifndef TCPX_SESSION_H
#define TCPX_SESSION_H

#include "flow.h"

#define TCPX_DEFAULT_PORT 12345

struct tcpx_test {
	const char *server;    /* client: host name or address; server: NULL */
	uint16_t port;	       /* of the bootstrap server, host byte order */
	const char *plugin;    /* NULL: as tcpx_load_plugin() */
	int api;	       /* of connect and accept, or TCPX_NEWEST */
	int listen_api;	       /* another version to listen with, 0: @api */
	int dev;	       /* the plugin's device, from 0 */
	int mem_type;	       /* NCCL_PTR_HOST */
	unsigned int channels; /* 0: 1 on a server, any on a client */
	int timeout_ms;	       /* of each wait, 0: the default of each */
	/* The client decides; the server's are compared if it has any. */
	struct tcpx_plan plan;
	bool plan_given;
};

struct tcpx_outcome {
	int api;
	unsigned int channels;
	struct tcpx_plan plan;
	double seconds;		    /* from the first message to DONE */
	double mb_per_s;	    /* payload, 10^6 bytes per second */
	struct lap_summary half_us; /* TCPX_PING_PONG, on the client */
};

/*
 * Serve one client, or be one if @test names a server. 0, or the negative errno of
 * the first failure, which has been reported; nothing is left open in either case.
 */
int tcpx_run_test(const struct tcpx_test *test, struct tcpx_outcome *out);

#endif

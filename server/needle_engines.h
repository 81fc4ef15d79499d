/* SPDX-License-Identifier: MIT */
/*
 * needle_engines.h - what a storage node does for its engines: a QP and the
 * catalogue for each (peers.h).
 */
#ifndef SERVER_NEEDLE_ENGINES_H
#define SERVER_NEEDLE_ENGINES_H

#include "needle/catalog.h"
#include "peers.h"

struct needle_service {
	const struct rdma_resources *owner;   /* device and PD */
	const struct needle_catalog *catalog; /* what each engine is told */
	unsigned int most;		      /* engines at once */
	int handshake_ms;		      /* limit of one handshake */
};

/*
 * Accept engines on @listen_sock until the user stops the program; then end
 * every connection and return 0. A connection that fails is reported and does
 * not end the others. A negative errno: nothing can be served.
 */
int needle_serve(const struct needle_service *service, int listen_sock);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * peers.h - serve many peers: one thread, one TCP connection and one QP for each.
 * What ends is the TCP connection, and the QP goes with it.
 */
#ifndef SERVER_PEERS_H
#define SERVER_PEERS_H

#include "rdma_common.h"

#include <pthread.h>
#include <stdatomic.h>

#define PEERS_MOST 4096

/* One that has connected. Its thread has it to itself. */
struct peer {
	const struct peer_service *service;
	unsigned int number; /* 1, 2, ...: never twice */
	int sock;
	char name[64];		   /* address and port */
	struct rdma_resources res; /* what meet() makes; zero before */
	/* the rest is peers.c's */
	pthread_t thread;
	atomic_uint *places; /* that are taken, of all */
	bool used;	     /* for the main thread only */
	atomic_bool known;   /* it has a place */
	atomic_bool ended;   /* its thread can be joined */
};

/* What is done for each peer, in its thread. */
struct peer_service {
	const char *who; /* "engine", to name them in reports */
	const char
		*more; /* "raise --max-engines": what to do if all are there */
	unsigned int most; /* at once */
	int handshake_ms;  /* limit of meet() */
	/*
	 * Make the peer's objects in @peer->res, hear its QPN and tell ours, then
	 * peer_connect(). -errno: reported, and the peer is not served.
	 */
	int (*meet)(struct peer *peer, int64_t deadline);
	/* Serve it until it is gone (peer_wait()) or has to go. */
	void (*serve)(struct peer *peer);
	/* Destroy what meet() made, however far it came. */
	void (*part)(struct peer *peer);
	void *context; /* theirs */
};

/*
 * Take one of the places, bring the QP from INIT to RTS, and meet the peer there;
 * a failure of this side is told to it. -EUSERS (reported): there is no place.
 */
int peer_connect(struct peer *peer, int64_t deadline);

/*
 * See for @ms milliseconds whether the peer goes. 0: it is still there. A negative
 * errno: it is gone, or talks where it has nothing to say (reported), or the program
 * has to stop.
 */
int peer_wait(struct peer *peer, int ms);

/*
 * Accept peers on TCP @port until the user stops the program; then end every
 * connection and return 0. A connection that fails is reported and does not end
 * the others. A negative errno: nothing can be served.
 */
int serve_peers(const struct peer_service *service, uint16_t port);

#endif

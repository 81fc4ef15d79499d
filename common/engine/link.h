/* SPDX-License-Identifier: MIT */
/*
 * link.h - the engine's connection to its storage node, which comes and
 * goes: TCP for the catalogue and for telling that the node is there, a QP for
 * the READs.
 *
 * Stages 3 and 4 wait (for the node, and RTR for the peer's MAC address), so they
 * run in a thread of their own while the event loop serves on; between the
 * start of that thread and its end, device, QP and catalogue are the thread's.
 * When a link breaks, every read on it ends, and it is made again: with a new
 * catalogue, since a node that was restarted has its needles elsewhere. What
 * fails again waits longer each time, up to five seconds.
 */
#ifndef ENGINE_LINK_H
#define ENGINE_LINK_H

#include "base/event_loop.h"
#include "needle/catalog.h"
#include "remote_read.h"

#include <pthread.h>

#define ENGINE_LINK_STALL_MS 10000 /* no completion for so long: it is broken */

struct engine_link {
	/* fill before engine_link_open() */
	const char *host;
	uint16_t port;
	struct event_loop *loop;
	struct rdma_resources *res; /* of remote_reader_config() */
	uint32_t chunk_size;	    /* 0: the default */
	void (*up)(void *context);  /* reads can be submitted */
	void *context;
	/* to look at */
	bool is_up;
	struct needle_catalog catalog; /* of the last time that it was up */
	/* the implementation's */
	struct remote_reader reader;
	int sock;   /* to the node, -1: none */
	int result; /* of the thread */
	int wakeup; /* eventfd: the thread has ended */
	pthread_t thread;
	bool connecting;
	int patience_ms; /* of the next tcp_connect() */
	int backoff_ms;	 /* before the next attempt */
	struct event_source sock_source, cq_source, wakeup_source;
	struct timer retry, check;
};

/* Begin to connect; returns at once. -errno (reported). */
int engine_link_open(struct engine_link *link);

/*
 * Wait for the thread (which ends soon when a stop was requested), end all
 * reads, disconnect.
 */
void engine_link_close(struct engine_link *link);

/* As remote_reader_submit(); the link must be up. */
void engine_link_submit(struct engine_link *link, struct remote_read *read);

#endif

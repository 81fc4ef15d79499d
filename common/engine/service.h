/* SPDX-License-Identifier: MIT */
/*
 * service.h - what an engine does with each request.
 *
 * StartRead: the token, the needle (it must be in the storage node's catalogue),
 * the cookie, the range; then a session, memory, and the READ itself. The answer
 * leaves when the bytes are there, with their CRC-32C; for a whole needle that
 * is also compared with the catalogue's. If the link to the node is down, or
 * breaks, the request waits for it, and a READ that was lost is made once more
 * with what the new catalogue says; all within the read's time limit.
 *
 * remote_addr and remote_key of a request are used if they name bytes of that
 * needle; anything else is an address of yesterday (a restarted node has other
 * ones) or made up, and the catalogue's are used. A request can so neither read
 * what its cookie does not open, nor break the QP, which all clients share.
 *
 * CompleteRead ends the session in every case, and says whether both sides agree
 * about success, length and CRC.
 */
#ifndef ENGINE_SERVICE_H
#define ENGINE_SERVICE_H

#include "auth.h"
#include "ipc/clients.h"
#include "link.h"
#include "session.h"

#define ENGINE_VERSION "1.0.0"

struct engine_service {
	/* fill before engine_service_open() */
	struct event_loop *loop;
	struct engine_link *link;
	struct engine_auth auth;
	size_t max_sessions;
	uint64_t session_secs; /* default time-out of a session */
	struct budget *budget; /* of all memory that clients cause */
	uint64_t max_bytes;    /* of one read: a client's share of it */
	int read_ms;	       /* limit of one StartRead */
	/* the implementation's */
	struct engine_pool pool;
	struct engine_sessions sessions;
	TAILQ_HEAD(engine_reads, engine_read) waiting; /* for the link */
};

/* -errno (reported). Undone by engine_service_close(), when no client is left. */
int engine_service_open(struct engine_service *service);
void engine_service_close(struct engine_service *service);

/* To be called by struct engine_ipc; @context is the service. */
void engine_service_request(struct ipc_client *client,
			    const struct engine_message *message,
			    void *context);
void engine_service_gone(struct ipc_client *client, void *context);

/* To be called by struct engine_link; @context is the service. */
void engine_service_link_up(void *context);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * answer.h - one StartRead, from the request to its answer: the part of
 * service.h that takes time. Only service.c includes it.
 */
#ifndef ENGINE_ANSWER_H
#define ENGINE_ANSWER_H

#include "service.h"

struct engine_read {
	struct remote_read remote;
	struct engine_service *service;
	struct ipc_client *client;	/* NULL: nobody waits for it any more */
	struct engine_session *session; /* NULL: not begun yet, or over */
	struct engine_buffer *buffer;	/* a reference of its own */
	struct engine_start_read request;
	struct needle_entry needle; /* as the catalogue had it */
	uint64_t size;		    /* bytes to read */
	uint32_t crc;		    /* of what has arrived */
	int64_t began;
	int64_t next_progress;
	struct timer timer; /* nothing has arrived for too long */
	bool in_flight, waiting, retried;
	TAILQ_ENTRY(engine_read) entry;
};

/* Answer @client's StartRead, now or later. */
void engine_read_start(struct engine_service *service,
		       struct ipc_client *client,
		       const struct engine_start_read *request);

/* The link is up: make @read, which waited for it. */
void engine_read_go_on(struct engine_read *read);

/*
 * Nobody waits for it any more; its session is ended by the caller. It is freed
 * when the device is done with its memory.
 */
void engine_read_abandon(struct engine_read *read);

/* Memory came back: if no session is left, keep none. */
void engine_reads_idle(struct engine_service *service);

/* Its session's time is over: tell the client, and abandon it. */
void engine_read_expire(struct engine_read *read);

#endif

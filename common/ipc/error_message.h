/* SPDX-License-Identifier: MIT */
/*
 * error_message.h - why a request failed, as an Error message says it: the
 * codes, categories and texts that clients of the original engine know.
 *
 * Categories: hardware, resource, rdma, session, ipc, request, capacity,
 * security, network, io, internal. Recoverable: the same request may succeed
 * later or on another session.
 */
#ifndef IPC_ERROR_MESSAGE_H
#define IPC_ERROR_MESSAGE_H

#include "proto.h"

struct engine_failure {
	char code[320]; /* "TooManySessions { max_sessions: 2 }" */
	char message[320];
	const char *category;
	bool recoverable;
};

/* The kinds whose code is NAME { FIELD: "TEXT" } and whose message ends so. */
enum engine_failure_kind {
	ENGINE_INVALID_REQUEST,	    /* request: it cannot be served */
	ENGINE_SERIALIZATION_ERROR, /* ipc: it cannot be read */
	ENGINE_IPC_ERROR,	    /* ipc: the framing is lost */
	ENGINE_PERMISSION_DENIED,   /* security */
	ENGINE_RESOURCE_EXHAUSTED,  /* capacity: try again later */
	ENGINE_MEMORY_REG_FAILED,   /* resource */
	ENGINE_IO_ERROR,	    /* io: the data are damaged */
	ENGINE_INTERNAL,	    /* internal */
};

struct engine_failure engine_failure_of(enum engine_failure_kind kind,
					const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The others have values of their own. */
struct engine_failure engine_unsupported(struct engine_text name);
struct engine_failure engine_session_unknown(struct engine_text id);
struct engine_failure engine_session_expired(struct engine_text id);
struct engine_failure engine_too_many_sessions(size_t most);
struct engine_failure engine_buffer_too_small(uint64_t requested,
					      uint64_t available);
struct engine_failure engine_network_timeout(int64_t ms);
struct engine_failure engine_read_failed(int status);

/* The message; its texts point into @failure. */
struct engine_message
engine_failure_message(const struct engine_failure *failure);

#endif

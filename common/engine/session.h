/* SPDX-License-Identifier: MIT */
/*
 * session.h - one session for each read: from StartRead to CompleteRead,
 * to its time-out, or to the end of the client that began it.
 *
 * A session is known by its id, a random UUID that only its client is told. There
 * are never more than a set number of them: whether there is room is asked and
 * the session counted in one step.
 *
 * Time-outs: a session lives for the seconds that its request names; 0 names
 * none, and stands for the engine's default. (Taken literally, 0 would be a
 * session that is over before its answer leaves.) Whatever a request names, times
 * saturate and never wrap: 2^63 - 1 seconds is for ever. They are measured with
 * the monotonic clock, so that a clock that is set ends no session; only
 * expires_at_ns is of the wall clock, because it is told to the client.
 */
#ifndef ENGINE_SESSION_H
#define ENGINE_SESSION_H

#include "base/timers.h"
#include "buffer.h"
#include "ipc/owner.h"
#include "ipc/proto.h"

#include <sys/queue.h>
#include <uuid/uuid.h>

#define ENGINE_GONE_MOST     1024 /* expired ids that are remembered */
#define ENGINE_SESSION_BYTES 512  /* of memory, without its buffer */
#define ENGINE_TIMEOUT_SECS  300  /* default of a session */

struct engine_sessions;

struct engine_session {
	char id[ENGINE_ID_SIZE]; /* lower case */
	struct engine_sessions *all;
	struct engine_owner *owner;
	LIST_ENTRY(engine_session) next; /* of the owner's */
	struct timer timer;
	uint64_t expires_at_ns;	      /* Unix, at most INT64_MAX */
	struct engine_buffer *buffer; /* NULL until the caller sets it */
	uint64_t size;		      /* bytes of the read */
	uint32_t crc;		      /* CRC-32C of them */
	bool ready;		      /* the bytes are there */
	void *read; /* the caller's, while they are on their way */
};

struct engine_sessions {
	size_t most, count;
	uint64_t default_secs;
	struct timers *timers;
	struct engine_pool *pool;
	/* A session's time is over; it is ended after this call. */
	void (*expired)(struct engine_session *session, void *context);
	void *context;
	/* the implementation's */
	void *tree;
	char (*gone)[ENGINE_ID_SIZE]; /* a ring of ENGINE_GONE_MOST */
	size_t gone_next;
	uuid_t random[64]; /* those below random_left are not used yet */
	size_t random_left;
};

/*
 * Zero it, and fill most, default_secs, timers, pool, expired and context before.
 * -ENOMEM (reported). Undone by engine_sessions_close(), when all owners are gone.
 */
int engine_sessions_open(struct engine_sessions *all);
void engine_sessions_close(struct engine_sessions *all);

/*
 * Begin a session of @owner that ends after @timeout_secs. -EAGAIN: there are as
 * many as may be; -EDQUOT: the pool's budget has no room; -ENOMEM.
 */
int engine_session_begin(struct engine_sessions *all,
			 struct engine_owner *owner, uint64_t timeout_secs,
			 struct engine_session **session);

/*
 * The session named @id. -ENOENT: there is and was none; -ETIME: its time was
 * over (the last ENGINE_GONE_MOST such are remembered).
 */
int engine_session_find(struct engine_sessions *all, struct engine_text id,
			struct engine_session **session);

/*
 * Give it a buffer of at least @size bytes. As engine_pool_get(); -EDQUOT: over its
 * owner's share, too. Undone by _put_buffer(), or when it ends.
 */
int engine_session_take_buffer(struct engine_session *session, size_t size);
void engine_session_put_buffer(struct engine_session *session);

/* End it: its buffer goes back to the pool, its id is forgotten. */
void engine_session_end(struct engine_session *session);

/* End all of @owner's, who is gone. */
void engine_owner_end(struct engine_owner *owner);

/* Unix time now, nanoseconds. */
uint64_t engine_unix_ns(void);

#endif

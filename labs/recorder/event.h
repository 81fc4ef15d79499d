/* SPDX-License-Identifier: MIT */
/*
 * event.h - one recorded call of the control path, and how its real function
 * is found.
 *
 *	REAL(ibv_alloc_pd, "IBVERBS_1.1", NULL);	finds `real`
 *	RECORD_MADE(&e, "alloc_pd", pd, real(context));
 *	EXPLAIN_ERR(&e, explain..., "ibv_alloc_pd()");
 *	writer_lock();
 *	LINE_NUMBER(&e.line, "pd", ...);
 *	event_end(&e);			adds err, dur; unlocks; restores errno
 *	return pd;
 */
#ifndef RECORDER_EVENT_H
#define RECORDER_EVENT_H

#include "explain/explain.h"
#include "line.h"
#include "objects.h"
#include "recorder.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct event {
	uint64_t stamp; /* when it was called */
	uint64_t end;	/* when it returned */
	int err;	/* 0, or the error number */
	int saved_errno;
	bool tells;	   /* the watcher is to be told */
	const char *outer; /* the call that this one is in, or NULL */
	struct explanation why;
	struct line line;
};

/* False: call the real function and nothing else. */
bool event_begin(struct event *event, const char *name);

/* It is not worth a line. Without the lock. */
void event_drop(struct event *event);

/* The real function has returned @made, or an error number. */
void event_made(struct event *event, const void *made);
void event_returned(struct event *event, int err);

/*
 * Record why event->err (0: what @fmt says), and tell the watcher. @fmt: the call with its
 * arguments. Without the lock.
 */
void event_explain(struct event *event, struct explanation why, const char *fmt,
		   ...) __attribute__((format(printf, 3, 4)));

/* If it failed. What explains it is not asked if it did not. */
#define EXPLAIN_ERR(event, why, ...)                            \
	do {                                                    \
		if ((event)->err)                               \
			event_explain(event, why, __VA_ARGS__); \
	} while (0)
#define UNKNOWN ((struct explanation){ 0 })

/* What may hurt later was seen of @pointer (NULL: of no object). Without the lock. */
void event_warn(enum object_kind kind, const void *pointer,
		struct explanation why);

/* With the lock, which it gives up; event_ends_of() takes it, and adds the object. */
void event_end(struct event *event);
void event_ends_of(struct event *event, enum object_kind kind,
		   const void *pointer);

/*
 * dl.c: the symbol of the next library behind this one; of libibverbs if that
 * was loaded by dlopen() and nobody sees it. NULL: there is none (errno ENOSYS).
 */
void *real_symbol(const char *name, const char *version);

/* An object pointer is not a function pointer in ISO C: hence the memcpy. */
#define REAL(name, version, failure)                                       \
	static __typeof__(&name) real;                                     \
	do {                                                               \
		__typeof__(real) found =                                   \
			__atomic_load_n(&real, __ATOMIC_RELAXED);          \
		void *symbol = found ? NULL : real_symbol(#name, version); \
		if (symbol) {                                              \
			memcpy(&found, &symbol, sizeof(found));            \
			__atomic_store_n(&real, found, __ATOMIC_RELAXED);  \
		}                                                          \
		if (!found)                                                \
			return failure;                                    \
	} while (0)

/*
 * @result = @call, between event_begin() and event_made() (an error number:
 * event_returned()). Returns what @call returns if it is not to be recorded.
 */
#define RECORD(event, name, result, call, returned) \
	do {                                        \
		if (!event_begin(event, name))      \
			return call;                \
		result = call;                      \
		returned(event, result);            \
	} while (0)
#define RECORD_MADE(event, name, result, call) \
	RECORD(event, name, result, call, event_made)
#define RECORD_ERR(event, name, result, call) \
	RECORD(event, name, result, call, event_returned)

/*
 * The beginning of a wrapper that is ibv_@name and no more: `real`, the event `e`, and
 * @result, a pointer.
 */
#define MADE(type, result, name, version, ...)      \
	REAL(ibv_##name, "IBVERBS_" version, NULL); \
	struct event e;                             \
	type result;                                \
	RECORD_MADE(&e, #name, result, real(__VA_ARGS__))

/* The interposed name comes out of the library in spite of its visibility. */
#define EXPORTED __attribute__((visibility("default")))

/* ---- start.c ---- */

/*
 * Open the recording, if that is not done yet. False: there is none (not asked for,
 * or the file cannot be written, which was said).
 */
bool recorder_ready(void);

#endif

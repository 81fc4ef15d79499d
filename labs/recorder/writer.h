/* SPDX-License-Identifier: MIT */
/*
 * writer.h - the recording: one file, one lock, one background thread.
 *
 * Whoever holds the lock may read and change the objects (objects.h) and add
 * lines. Nothing here uses malloc or stdio.
 */
#ifndef RECORDER_WRITER_H
#define RECORDER_WRITER_H

#include "line.h"

#include <stdbool.h>
#include <stdint.h>

/* What labs/qptrace was told; read once from the environment. */
struct recorder_config {
	char file[4096];   /* QPTRACE_FILE; "": do not record */
	bool control_only; /* QPTRACE_CONTROL_ONLY */
	bool quiet;	   /* QPTRACE_QUIET: explain nothing on stderr */
	uint64_t stall_ns; /* QPTRACE_STALL seconds; 0: never */
};
extern struct recorder_config recorder;

/*
 * Open the recording and start the thread, if that is not done yet. False: no
 * recording (not asked for, or the file cannot be written, which was said).
 */
bool writer_ready(void);
bool writer_started(void);

/* The calling process is the one that is recorded, and no child of vfork(). */
bool writer_owns_process(void);

/* Take the lock; all records up to now have become lines. */
void writer_lock(void);
void writer_unlock(void);

/* writer_unlock(), and have what was added written: soon, or @now. */
void writer_commit(bool now);

/* With the lock: add a line that happened at @stamp. */
void writer_add(uint64_t stamp, const struct line *line);

/* With the lock: CLOCK_MONOTONIC in ns of @stamp, and of now. */
uint64_t writer_time(uint64_t stamp);
uint64_t writer_now(void);

/* Lock, write out all there is, unlock. */
void writer_flush(void);

/* Have the thread flush soon. From any context, signal handlers too. */
void writer_wake(void);

/* Have the thread explain what the process waits for. From any context. */
void writer_ask_why(void);

/*
 * writer_flush() from a signal handler: gives up after 0.2 s. @last: one more
 * line, or NULL.
 */
void writer_last_words(const struct line *last);

/* Write "qptrace: TEXT" lines to stderr with one write(2). */
void writer_say(const char *text, size_t len);

#endif

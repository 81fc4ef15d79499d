/* SPDX-License-Identifier: MIT */
/*
 * writer.h - events into the recording, and who waits for what: one lock, one
 * background thread.
 *
 * Whoever holds the lock may read and change the objects (objects.h) and add
 * events. Nothing here uses malloc or stdio.
 */
#ifndef RECORDER_WRITER_H
#define RECORDER_WRITER_H

#include "line.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Take the lock; all records up to now have been booked (objects.h). */
void writer_lock(void);
bool writer_try_lock(void); /* False: somebody else has it, or this thread */
void writer_unlock(void);

/* Book what there is. Without the lock. */
void writer_book(void);

/* With the lock: add an event that began at @stamp and was over at @end. */
void writer_add(uint64_t stamp, uint64_t end, const struct line *line);

/* One that happens now. */
void writer_add_now(const struct line *line);

/* With the lock: CLOCK_MONOTONIC in ns of @stamp, and of now. */
uint64_t writer_time(uint64_t stamp);
uint64_t writer_now(void);

/* Have the thread look soon. From any context, signal handlers too. */
void writer_wake(void);

/* Add one more event from a signal handler: gives up after 0.2 s. */
void writer_last_words(const struct line *last);

/*
 * True: the calling thread holds the lock, and @sig will come again as soon as it gives it
 * up. For the handler of a signal that can wait.
 */
bool writer_puts_off(int sig);

/* The thread runs @body, which sleeps until it is woken, or for a tick at most. */
void writer_start_thread(void *(*body)(void *));
bool writer_has_thread(void);
void writer_wait(const atomic_bool *urgent); /* not at all if that is set */

/*
 * The recording of this process (@child: it was forked) gets its file. Returns 0 or
 * a negative errno, which it has said.
 */
int writer_open(bool child);

/* The calling process is the one that is recorded, and no child of vfork(). */
bool writer_owns_process(void);

/* Around fork(). */
void writer_before_fork(void);
void writer_after_fork(void);
void writer_after_fork_child(void);

#endif

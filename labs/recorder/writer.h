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
#include "ring.h"

#include <stdbool.h>
#include <stdint.h>

/* Take the lock; all records up to now have become lines. */
void writer_lock(void);
bool writer_try_lock(void); /* False: somebody else has it, or this thread */
void writer_unlock(void);

/* writer_unlock(), and have what was added written: soon, or @now. */
void writer_commit(bool now);

/* The thread's: write, and give up the lock before. */
void writer_write_behind(void);

/* With the lock: add a line that happened at @stamp. */
void writer_add(uint64_t stamp, const struct line *line);

/* With the lock: CLOCK_MONOTONIC in ns of @stamp, and of now. */
uint64_t writer_time(uint64_t stamp);
uint64_t writer_now(void);

/* Lock, write out all there is, unlock. */
void writer_flush(void);

/* Have the thread flush soon. From any context, signal handlers too. */
void writer_wake(void);

/* For writer_put(): write until there is room in the calling thread's ring. */
void writer_make_room(struct ring *ring);

/* One more record; half a ring of them wakes the writer. */
static inline void writer_put(struct ring *ring, struct record record)
{
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);

	if (__builtin_expect(head - ring->tail_seen >= RING_RECORDS, 0))
		writer_make_room(ring);
	ring->records[head++ % RING_RECORDS] = record;
	atomic_store_explicit(&ring->head, head, memory_order_release);
	if (__builtin_expect(head % (RING_RECORDS / 2) == 0, 0))
		writer_wake();
}

/*
 * writer_flush() from a signal handler: gives up after 0.2 s. @last: one more
 * line, or NULL.
 */
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

/* Around fork(); what the parent has not written yet is none of the child's. */
void writer_before_fork(void);
void writer_after_fork(void);
void writer_after_fork_child(void);

#endif

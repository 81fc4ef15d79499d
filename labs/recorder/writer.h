/* SPDX-License-Identifier: MIT */
/*
 * writer.h - events into the recording: one lock; and who wakes the watcher.
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

void writer_lock(void);
void writer_unlock(void);

/* With the lock: add an event that began at @stamp and was over at @end. */
void writer_add(uint64_t stamp, uint64_t end, const struct line *line);

/* One that happens now; writer_put() takes the lock. */
void writer_add_now(const struct line *line);
void writer_put(const struct line *line);

/* What the watcher (qptrace-report --watch) is to be told of. */
enum told {
	TOLD_FAILURE,
	TOLD_ASKED, /* SIGQUIT */
	TOLD_OVER, /* the process ends; @badly: wait for some seconds until it is judged */
};
void writer_tell(enum told what, bool badly); /* from any context */

/* Add one more event from a signal handler: gives up after 0.2 s. */
void writer_last_words(const struct line *last);

/*
 * True: the calling thread holds the lock, and @sig will come again as soon as it gives it
 * up. For the handler of a signal that can wait.
 */
bool writer_puts_off(int sig);

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

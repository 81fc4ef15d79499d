/* SPDX-License-Identifier: MIT */
/*
 * timers.h - many deadlines, the nearest one first: a binary heap, so that ten
 * thousand sessions cost one comparison to ask and fourteen to change.
 *
 * A timer is part of what it belongs to. Times are those of deadline.h.
 */
#ifndef BASE_TIMERS_H
#define BASE_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero it before use, and fill fire and owner. */
struct timer {
	void (*fire)(void *owner); /* it is not set any more then */
	void *owner;
	int64_t deadline;
	size_t place; /* in the heap, from 1; 0: not set */
};

/* Zero it before use. */
struct timers {
	struct timer **heap; /* heap[0] is the nearest */
	size_t count;
};

void timers_free(struct timers *timers);

/* Set or move @timer. -ENOMEM (not reported): it is as it was. */
int timer_set(struct timers *timers, struct timer *timer, int64_t deadline);

/* Unset it, if it is set. */
void timer_cancel(struct timers *timers, struct timer *timer);

/* Milliseconds until the nearest one, rounded up, at most @most; -1: none. */
int timers_wait_ms(const struct timers *timers, int64_t now, int most);

/* Fire what is due at @now, and what that sets to a time before @now. */
void timers_fire(struct timers *timers, int64_t now);

#endif

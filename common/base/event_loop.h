/* SPDX-License-Identifier: MIT */
/*
 * event_loop.h - one thread that waits for many descriptors and many deadlines at
 * once (epoll(7)), until SIGINT or SIGTERM.
 */
#ifndef BASE_EVENT_LOOP_H
#define BASE_EVENT_LOOP_H

#include "timers.h"

#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>

/*
 * A descriptor that is waited for, part of what it belongs to. Fill ready and
 * owner; the rest is the loop's.
 */
struct event_source {
	void (*ready)(void *owner, uint32_t events); /* EPOLLIN, ... */
	void *owner;
	int fd;		 /* -1: not in the loop */
	uint32_t events; /* waited for */
};

struct event_loop {
	int epoll;
	struct timers timers;
	struct event_source stop;
	sigset_t mask_outside; /* as it was before event_loop_open() */
	struct epoll_event *batch;
	int batch_count; /* events being dispatched */
	bool done;
};

/*
 * Make a loop. From now on SIGINT and SIGTERM are blocked in this thread, and
 * event_loop_run() sees them as an event like any other, so that none is missed
 * between a look and a sleep; call catch_stop_signals() first. -errno (reported).
 * Undone by event_loop_close().
 */
int event_loop_open(struct event_loop *loop);
void event_loop_close(struct event_loop *loop);

/* Wait for @events of @fd. -errno (not reported). */
int event_loop_add(struct event_loop *loop, struct event_source *source, int fd,
		   uint32_t events);

/* From now on, wait for @events (0: for errors and the peer's end only). */
void event_loop_change(struct event_loop *loop, struct event_source *source,
		       uint32_t events);

/*
 * Wait no longer, if it does; what has been seen of it but not told yet is
 * forgotten, so that @source may be freed at once. Before the descriptor is
 * closed.
 */
void event_loop_remove(struct event_loop *loop, struct event_source *source);

/*
 * Dispatch until a stop is requested, or event_loop_end() is called by what is
 * dispatched. 0, or -errno (reported).
 */
int event_loop_run(struct event_loop *loop);

/* Wait once, @most_ms at most, and dispatch; also after a stop. 0, or -errno (reported). */
int event_loop_turn(struct event_loop *loop, int most_ms);

void event_loop_end(struct event_loop *loop);

#endif

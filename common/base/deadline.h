/* SPDX-License-Identifier: MIT */
/*
 * deadline.h - every wait in this project ends: by success, by a deadline, or
 * by the user's Ctrl-C.
 *
 * A deadline is a point of CLOCK_MONOTONIC in nanoseconds, so several waits
 * in a row share one limit ("the whole exchange within 10 s") and a clock
 * that is set by NTP moves nothing. clock_gettime(2), poll(2), signal(7).
 */
#ifndef BASE_DEADLINE_H
#define BASE_DEADLINE_H

#include <stdbool.h>
#include <stdint.h>

/* CLOCK_MONOTONIC now, in nanoseconds. */
int64_t now_ns(void);

/* The deadline that lies @ms milliseconds ahead (0 or less: already over). */
int64_t deadline_in_ms(int64_t ms);

bool deadline_passed(int64_t deadline);

/*
 * Sleep until @deadline or for @ms milliseconds, whichever ends first.
 * Returns 0, or -EINTR if the user asked the program to stop.
 */
int deadline_sleep_ms(int ms, int64_t deadline);

/*
 * Between two polls of something that has no file descriptor: give the CPU away
 * at first, then nap, so that a quick answer is seen at once and a slow one
 * costs no CPU. Zero @pause before the first poll and whenever one succeeded.
 * Ends at @deadline, and when there was nothing for @stall_ms (0: no matter).
 * Returns 0, -ETIMEDOUT, or -EINTR (stop requested). @napped: it slept.
 */
struct poll_pause {
	unsigned int polls;
	int64_t began; /* ns */
	bool napped;
};
int pause_between_polls(struct poll_pause *pause, int64_t deadline,
			int64_t stall_ms);

/*
 * Make SIGINT and SIGTERM ask the program to stop instead of killing it, so
 * that every QP, MR, CQ and socket is taken down in order. A second signal
 * kills at once. Also ignores SIGPIPE (a lost peer is an error code here).
 */
void catch_stop_signals(void);

/* True after SIGINT or SIGTERM. */
bool stop_requested(void);

/*
 * This program serves until it is stopped: a stop that cuts a transfer short is
 * no failure. Who reports waits asks stop_is_expected() first, and then only
 * returns -EINTR.
 */
void expect_stop(void);
bool stop_is_expected(void);

/*
 * Wait until @fd has one of @events (POLLIN, POLLOUT), the deadline passes or
 * a stop is requested. Returns 0, -ETIMEDOUT, -EINTR (stop requested), or
 * another -errno of poll(2). Signals that are no stop request are waited over.
 */
int wait_fd(int fd, short events, int64_t deadline);

#endif

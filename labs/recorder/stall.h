/* SPDX-License-Identifier: MIT */
/*
 * stall.h - what the process waits for.
 */
#ifndef RECORDER_STALL_H
#define RECORDER_STALL_H

#include <stdbool.h>

/*
 * With the writer's lock, every tick: explain all outstanding work requests if
 * @asked (SIGQUIT), or once for each pause that is longer than --stall.
 */
void stall_look(bool asked);

/* With the lock: the process ends; what it stands in from here on is no wait. */
void stall_over(void);

/* Without the lock: put what it found on stderr. */
void stall_say(void);

#endif

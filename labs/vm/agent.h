// SPDX-License-Identifier: MIT
/*
 * agent.h - the two halves of the guest agent.
 *
 * agent.c is the guest's process 1: it answers the control port, mounts the
 * host's file systems and waits for sessions. session.c runs one command for
 * one client; the master forks a process for it.
 */
#ifndef RDMA_LAB_AGENT_H
#define RDMA_LAB_AGENT_H

#include <stdbool.h>

/* How a session's process ends, as the master sees it. */
enum session_end {
	SESSION_DONE = 0,   /* the command ended and the client was told */
	SESSION_HUNG_UP = 1 /* the client vanished; its command was ended */
};

/*
 * Serve the session port, a nonblocking descriptor of /dev/vportNpM, from its
 * W_START to its W_EXIT. keep_clock: never set the guest's clock (in a VM
 * that counts instructions time does not follow the host's).
 */
enum session_end session_serve(int port, bool keep_clock);

/* Set the guest's clock to "seconds.fraction" if it is off by over 0.2 s. */
void clock_follow(const char *host_time);

/* How readily the kernel kills this process when memory runs out. */
void oom_score(const char *score);

/* A nonblocking signalfd that becomes readable when a child ends, or -1. */
int watch_children(void);

#endif

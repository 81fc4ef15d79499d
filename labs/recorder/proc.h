/* SPDX-License-Identifier: MIT */
/*
 * proc.h - what /proc tells: where the threads of this process are.
 */
#ifndef RECORDER_PROC_H
#define RECORDER_PROC_H

#include <stddef.h>
#include <sys/types.h>

/* At most @size - 1 bytes of a file, and a NUL. Returns how many; 0: none. */
size_t read_text(const char *path, char *out, size_t size);

struct blocked {
	char call[24]; /* "read", "clock_nanosleep", a number, or "running" */
	char on[24];   /* what it waits on: "socket", "rdma_cm", ...; or "" */
};

/* At most @most of them, without the calling one; returns how many. */
size_t threads_of_process(pid_t *threads, size_t most);

/* @out->call is "" if /proc does not tell. */
void thread_blocked(pid_t tid, struct blocked *out);

/*
 * Whether one of its TCP connections (of the first 256 descriptors) gets no answer:
 * "SYN_SENT" or "retransmitting", or NULL.
 */
const char *unanswered_tcp(void);

#endif

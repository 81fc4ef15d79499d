/* SPDX-License-Identifier: MIT */
/*
 * proc.h - what /proc tells of another process: needs the right to trace it.
 */
#ifndef REPORT_PROC_H
#define REPORT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct blocked {
	char call[32]; /* "read", "syscall 34", or "running" */
	char on[24];   /* what it waits on: "socket", "rdma_cm", ...; or "" */
};

/* The process of this pidfd. */
bool proc_ended(int pidfd);

/* At most @most of them; returns how many. */
size_t proc_threads(pid_t pid, pid_t *threads, size_t most);

/* @out->call is "" if /proc does not tell. */
void proc_blocked(pid_t pid, pid_t tid, struct blocked *out);

/*
 * Whether one of its TCP connections (of the first 256 descriptors) gets no answer:
 * "SYN_SENT" or "retransmitting", or NULL.
 */
const char *proc_unanswered_tcp(pid_t pid);

/* Its descriptor can be read from. False, too, if that cannot be told. */
bool proc_readable(pid_t pid, int fd);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * ring.h - what a thread leaves behind on the fast path: records of 64 bytes in a
 * block of the recording that is its own (recording.h), one store each, no lock and
 * no system call. A full block is followed by another one; when all that --last
 * allows are in use, the oldest is taken again.
 *
 * One producer (the thread), one consumer (whoever holds the writer's lock, and
 * books them).
 */
#ifndef RECORDER_RING_H
#define RECORDER_RING_H

#include "recording.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

struct ring {
	/* producer */
	struct block *block; /* NULL: there is none, and nothing is recorded */
	uint64_t used;	     /* of its records */
	_Atomic uint64_t head; /* records ever published */
	/* what the thread did without leaving a record, for explanations */
	const void *_Atomic polled; /* the CQ it polled last */
	_Atomic uint64_t polls;	    /* how often it polled and got nothing */
	const void *_Atomic sleeps; /* the channel it sleeps on, or NULL */
	const char *_Atomic in; /* the recorded call that it is in, or NULL */
	/* consumer */
	_Alignas(64) uint64_t tail; /* records ever booked */
	uint64_t limit;		    /* of this drain */
	struct block *booking;	    /* the block that the next one is in */
	uint64_t booked;	    /* of its records */
	uint64_t last_time;	    /* time never goes back within a thread */
	uint64_t polls_seen;	    /* polls, when last looked at */
	uint64_t polls_time;	    /* when that last changed, ns */
	struct ring *next;	    /* of all rings; never unlinked */
	pid_t tid;
	atomic_bool orphan; /* its thread has ended */
};

extern __thread struct ring *ring_of_thread
	__attribute__((tls_model("initial-exec")));

/* All rings of the process; new ones are put in front. */
extern struct ring *_Atomic all_rings;

/* Who books, and the one who prepares blocks: the writer says, before it opens a file. */
extern struct ring_hooks {
	void (*book)(void);
	void (*wake)(void);
} ring_hooks;

/* The calling thread gets a ring. NULL: no memory; it is then not recorded. */
struct ring *ring_new(void);

/* The next block of @ring, the calling thread's. False: there is none. */
bool ring_next_block(struct ring *ring);

/* The next record to be booked, or NULL; and go on behind it. With the writer's lock. */
const struct record *ring_oldest(struct ring *ring);
void ring_advance(struct ring *ring);

/* The background thread's: have blocks at hand before they are needed. */
void ring_prepare(void);

/* A block for events, with the writer's lock. NULL: there is none. */
struct block *ring_control_block(void);

/* Around fork; in the child, before that is over: all blocks are the parent's. */
void ring_before_fork(void);
void ring_after_fork(void);
void ring_fork_is_over(void);

/*
 * A time that costs next to nothing: where the kernel does not trust the TSC,
 * clock_gettime() is a system call and reads a slow timer. Each event has it beside
 * CLOCK_MONOTONIC, so that the reader can turn one into the other.
 */
static inline uint64_t ring_stamp(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#elif defined(__aarch64__)
	uint64_t value;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

/* The thread has polled @cq; in vain: and got nothing. */
static inline void ring_polled(struct ring *ring, const void *cq, bool in_vain)
{
	uint64_t polls =
		atomic_load_explicit(&ring->polls, memory_order_relaxed);

	atomic_store_explicit(&ring->polled, cq, memory_order_relaxed);
	atomic_store_explicit(&ring->polls, polls + in_vain,
			      memory_order_relaxed);
}

static inline struct ring *ring_mine(void)
{
	struct ring *ring = ring_of_thread;

	return __builtin_expect(ring != NULL, 1) ? ring : ring_new();
}

/* One more record. */
static inline void ring_put(struct ring *ring, struct record record)
{
	uint64_t head;

	if (__builtin_expect(ring->used == BLOCK_RECORDS || !ring->block, 0) &&
	    !ring_next_block(ring))
		return;
	((struct record *)(ring->block + 1))[ring->used++] = record;
	atomic_store_explicit(&ring->block->used, ring->used,
			      memory_order_release);
	head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

#endif

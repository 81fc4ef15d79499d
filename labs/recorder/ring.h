/* SPDX-License-Identifier: MIT */
/*
 * ring.h - what a thread leaves behind on the fast path: records of 64 bytes in a
 * block of the recording that is its own (recording.h), one store each, no lock and
 * no system call. A full block is followed by another one; when all that --last
 * allows are in use, the oldest is taken again.
 *
 * What a thread does without leaving a record (it polls in vain, it sleeps) stands in
 * its slot of the recording.
 */
#ifndef RECORDER_RING_H
#define RECORDER_RING_H

#include "recording.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct ring {
	struct block *block;
	uint64_t used; /* of its records */
	struct thread_slot *slot;
	const char *in; /* the recorded call that it is in, or NULL */
	pid_t tid;	/* 0: it has not begun */
};

extern __thread struct ring ring_of_thread
	__attribute__((tls_model("initial-exec")));

/* The calling thread begins. */
void ring_begin(void);

/*
 * The next block of @ring, the calling thread's. If there is none, what the thread does
 * is not recorded until this one would be full.
 */
void ring_next_block(struct ring *ring);

/* The thread is in the recorded call @name; NULL: in none. */
void ring_enters(struct ring *ring, const char *name);

/* The thread sleeps in get_cq_event() on @channel; NULL: it does not. */
void ring_sleeps(struct ring *ring, const void *channel);

/* The thread is between two calls of a pair (enum slot_open), or no more. */
void ring_opens(struct ring *ring, uint32_t pair, bool begins);

/* A block for events, with the writer's lock. NULL: there is none, or enough. */
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
	return __builtin_ia32_rdtsc();
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
	struct thread_slot *slot = ring->slot;
	uint64_t polls =
		atomic_load_explicit(&slot->polls, memory_order_relaxed);

	atomic_store_explicit(&slot->polled, (uintptr_t)cq,
			      memory_order_relaxed);
	atomic_store_explicit(&slot->polls, polls + in_vain,
			      memory_order_relaxed);
}

static inline struct ring *ring_mine(void)
{
	if (__builtin_expect(!ring_of_thread.tid, 0))
		ring_begin();
	return &ring_of_thread;
}

/* One more record; what else it has to say is set before ring_publish(). */
static inline struct record *ring_add(struct ring *ring, enum record_kind kind,
				      const void *object, uint64_t stamp)
{
	struct record *record;

	if (__builtin_expect(ring->used == BLOCK_RECORDS, 0))
		ring_next_block(ring);
	record = (struct record *)(ring->block + 1) + ring->used++;
	*record = (struct record){ .stamp = stamp,
				   .object = (uintptr_t)object,
				   .kind = (uint8_t)kind };
	return record;
}

static inline void ring_publish(struct ring *ring)
{
	atomic_store_explicit(&ring->block->used, ring->used,
			      memory_order_release);
}

#endif

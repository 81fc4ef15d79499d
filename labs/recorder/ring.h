/* SPDX-License-Identifier: MIT */
/*
 * ring.h - what a thread leaves behind on the fast path: records of 64 bytes
 * in a ring of its own, one store each, no lock and no system call. The writer
 * (writer.h) turns them into lines later.
 *
 * One producer (the thread), one consumer (whoever holds the writer's lock).
 */
#ifndef RECORDER_RING_H
#define RECORDER_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

enum record_kind {
	RECORD_POST_SEND,
	RECORD_POST_RECV,
	RECORD_POST_SRQ_RECV,
	RECORD_POST_FAILED, /* wr_id and n of the WR that was refused */
	RECORD_COMPLETION,
	RECORD_ARM, /* req_notify_cq */
	RECORD_CQ_EVENT,
	RECORD_ACK, /* a thread slept in get_cq_event and got one */
};

/* What is not said of a completion: the caller did not ask the CQ for it. */
#define RECORD_NO_LENGTH UINT32_MAX
#define RECORD_NO_QPN	 UINT32_MAX

/*
 * Every member is set, 0 if it has nothing to say. The first half is what
 * differs from one message to the next, the second what mostly does not.
 */
struct record {
	uint64_t stamp; /* ring_stamp() */
	uint64_t wr_id;
	uint64_t addr; /* first SGE, or inline data */
	uint64_t remote_addr;
	const void *object; /* the QP, SRQ, CQ that was called */
	uint32_t qpn;	    /* completions; posts: lkey of the first SGE */
	uint32_t length;    /* bytes, all SGEs together */
	uint32_t rkey;	    /* UD: the peer's Q_Key; completions: vendor_err */
	uint32_t remote;    /* UD: the peer's QPN */
	uint16_t flags;	    /* enum ibv_send_flags, enum ibv_wc_flags */
	uint8_t kind;	    /* enum record_kind */
	uint8_t opcode;	    /* enum ibv_wr_opcode, enum ibv_wc_opcode */
	uint8_t status;	    /* enum ibv_wc_status; failed post: errno */
	uint8_t num_sge;
	uint16_t unused;
};

#define RING_RECORDS 2048u /* a power of two; 128 KiB */

struct ring {
	/* producer */
	_Atomic uint64_t head; /* records ever published */
	uint64_t tail_seen;    /* tail as the producer last saw it */
	/* what the thread did without leaving a record, for explanations */
	const void *_Atomic polled; /* the CQ it polled last */
	_Atomic uint64_t polls;	    /* how often it polled and got nothing */
	const void *_Atomic sleeps; /* the channel it sleeps on, or NULL */
	const char *_Atomic in; /* the recorded call that it is in, or NULL */
	/* consumer */
	_Alignas(64) _Atomic uint64_t tail;
	uint64_t limit;	     /* of this drain */
	uint64_t last_time;  /* time never goes back within a thread */
	uint64_t polls_seen; /* polls, when last looked at */
	uint64_t polls_time; /* when that last changed, ns */
	struct ring *next;   /* of all rings; never unlinked */
	pid_t tid;
	atomic_bool orphan; /* its thread has ended */
	struct record records[RING_RECORDS];
};

extern __thread struct ring *ring_of_thread
	__attribute__((tls_model("initial-exec")));

/* All rings of the process; new ones are put in front. */
extern struct ring *_Atomic all_rings;

/* The calling thread gets a ring. NULL: no memory; it is then not recorded. */
struct ring *ring_new(void);

/* After fork, in the child: only the calling thread's ring stays, empty. */
void ring_after_fork(void);

/*
 * A time that costs next to nothing: where the kernel does not trust the TSC,
 * clock_gettime() is a system call and reads a slow timer. The writer turns it
 * into CLOCK_MONOTONIC.
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

#endif

/* SPDX-License-Identifier: MIT */
/*
 * memory.h - memory that a server lends, and in which only its clients work: cells
 * of equal size that begin with a lock word. What both sides are told, and the
 * client's side: stage 8's requests, each waited for, and locks.
 *
 * The server's program takes no part until a client is gone or keeps a lock longer
 * than its lease: then it destroys that client's QP, so that nothing of it can
 * arrive any more, and after that frees the lock, marked LOCK_ORPHANED.
 *
 * Every function that returns int returns 0 or a negative errno, and has reported
 * the failure when it is not 0.
 */
#ifndef REMOTE_MEMORY_H
#define REMOTE_MEMORY_H

#include "pair/options.h"
#include "rdma_common.h"

#define MEMORY_MAGIC	  0x4d454d32u /* "MEM2" */
#define MEMORY_CELL_LEAST 256u	      /* bytes */
#define MEMORY_CELL_MOST  (256u << 10)

/*
 * What a client is told over TCP after SYNC_READY; big-endian, but for the order.
 * The lock words and what clients write are in the order of the server's host,
 * because atomics are.
 */
struct memory_plan {
	uint32_t magic;
	uint32_t order;	 /* MEMORY_ORDER as it lies in the server's memory */
	uint32_t number; /* the client's, not 0, never twice: in its locks */
	uint32_t cells;	 /* that there are */
	uint32_t cell_bytes; /* a multiple of 64 */
} __attribute__((packed));
#define MEMORY_ORDER 0x01020304u

/*
 * A lock word: in its upper half a count that each holder may raise when it frees the
 * word; whether a holder was lost and nobody has held it since; who holds it, 0: nobody.
 */
#define LOCK_HOLDER(word)   ((uint32_t)(UINT32_C(0xffffff) & (word)))
#define LOCK_ORPHANED	    (UINT64_C(1) << 24)
#define LOCK_COUNT(word)    ((uint32_t)((word) >> 32))
#define LOCK_FREE_AT(count) ((uint64_t)(count) << 32)

/* One client's view of it. Zero it before use. */
struct remote_memory {
	struct rdma_resources res;
	int sock;
	uint32_t number; /* mine */
	uint32_t cells;
	uint32_t cell_bytes;
	int timeout_ms;	     /* of each wait, and of a lock */
	uint64_t lock_waits; /* locks that somebody else had */
};

/*
 * Connect to the server that @opt names, with slots of a cell's size if it says
 * none. Undone by memory_close(), also after a failure. -EUSERS, -EPROTO, ...
 */
int memory_open(struct remote_memory *memory, const struct rdma_options *opt);
int memory_close(struct remote_memory *memory);

/* READ @length bytes at @offset of @cell; they are in memory_buffer() then. */
int memory_read(struct remote_memory *memory, uint32_t cell, uint32_t offset,
		uint32_t length);
char *memory_buffer(const struct remote_memory *memory);

/*
 * WRITE the first @length bytes of memory_buffer() there. Not waited for: it is done
 * when a later request of this client is, and before that request. At most two in
 * between.
 */
int memory_write(struct remote_memory *memory, uint32_t cell, uint32_t offset,
		 uint32_t length);

/* FETCH_ADD on the 8 bytes at @offset; what was there before is in @before. */
int memory_add(struct remote_memory *memory, uint32_t cell, uint32_t offset,
	       uint64_t add, uint64_t *before);

/*
 * Take the lock of @cell; @before: its word until now, whose LOCK_ORPHANED says that
 * what it guards may be half done. -ETIMEDOUT: another client has it. A client may
 * hold one lock at a time.
 */
int memory_lock(struct remote_memory *memory, uint32_t cell, uint64_t *before);

/* Free it, at @count: in the same step, whoever reads the word sees the new count. */
int memory_unlock(struct remote_memory *memory, uint32_t cell, uint64_t before,
		  uint32_t count);

#endif

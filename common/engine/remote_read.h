/* SPDX-License-Identifier: MIT */
/*
 * remote_read.h - many RDMA READs at once over one RC QP, each of any length.
 *
 * A read is divided into chunks, one work request each. Chunks of different
 * reads take turns, so that a long read does not hold up a short one. Each work
 * request has a wr_id of its own, never used before, and a completion counts for
 * the chunk that has its wr_id and for nothing else.
 *
 * Limits that are kept: the port's max_msg_sz (of a chunk), the depth of the send
 * queue (chunks posted at once; the rest wait here), and max_rd_atomic, which
 * the QP itself keeps of what is posted.
 *
 * One bad completion and the QP is in ERR: nothing on it will succeed any more.
 * Then remote_reader_abort() takes the QP back to RESET, from where stages 3 and
 * 4 connect it again, and every read ends: with -EIO if it was the one at fault,
 * else with -ECONNRESET (worth another try).
 */
#ifndef ENGINE_REMOTE_READ_H
#define ENGINE_REMOTE_READ_H

#include "rdma_common.h"

#include <sys/queue.h>

#define REMOTE_READ_DEPTH 32	      /* work requests at once, default */
#define REMOTE_READ_CHUNK (64u << 10) /* bytes of a work request, default */

/* One read. Zero it, fill the first part; it must stay until done() is called. */
struct remote_read {
	uint64_t remote_addr;
	uint32_t rkey;
	char *local; /* memory of an MR with LOCAL_WRITE */
	uint32_t lkey;
	uint64_t size; /* bytes, at least 1 */
	/* Bytes @from ... @upto - 1 are there now, in ascending order. Or NULL. */
	void (*arrived)(struct remote_read *read, uint64_t from, uint64_t upto);
	/* 0, -EIO, -ECONNRESET, -ECANCELED: the device is done with the memory. */
	void (*done)(struct remote_read *read, int status);
	/* the reader's */
	uint64_t posted, completed; /* bytes */
	int status;
	bool queued; /* has bytes that are not posted */
	TAILQ_ENTRY(remote_read) in_all, in_queue;
};

/* A work request under way. */
struct remote_chunk {
	uint64_t wr_id;
	struct remote_read *read; /* NULL: this place is free */
	uint64_t upto;		  /* bytes of the read, with this chunk */
};

TAILQ_HEAD(remote_reads, remote_read);

struct remote_reader {
	struct rdma_resources *res;
	uint32_t depth, chunk_size;
	uint32_t next_slot;	     /* over all connections */
	struct remote_chunk *chunks; /* a ring: wr_id % depth */
	struct remote_reads all;     /* that are not done */
	struct remote_reads queue;   /* that have bytes to post */
	uint32_t in_flight;	     /* chunks */
	bool broken;		     /* remote_reader_abort() is due */
	int64_t last_completion;     /* ns, of base/deadline.h */
};

/* The config of a reader's resources, for init_rdma_resources(). */
struct rdma_config remote_reader_config(const char *device, int gid_index,
					uint32_t depth);

/*
 * Begin with @res, made with that config; its QP may be in RESET still. @chunk:
 * bytes at most of a work request; 0: the default. -errno (reported).
 */
int remote_reader_open(struct remote_reader *reader, struct rdma_resources *res,
		       uint32_t chunk_size);

/* All reads must be done, or aborted. */
void remote_reader_close(struct remote_reader *reader);

/* Put @read into the queue, and post what there is room for. */
void remote_reader_submit(struct remote_reader *reader,
			  struct remote_read *read);

/*
 * Post no more of @read; it is done (-ECANCELED) when what is posted has come
 * back, which may be now.
 */
void remote_reader_cancel(struct remote_reader *reader,
			  struct remote_read *read);

/*
 * The completion channel's descriptor (res->channel->fd) is readable: take the
 * completions that are there (then it may be readable again), post more, call
 * arrived() and done(). Returns 0, or -EIO: the reader is broken (reported) and
 * remote_reader_abort() is due.
 */
int remote_reader_poll(struct remote_reader *reader);

/* True if a read could not be posted, or came back bad. */
bool remote_reader_is_broken(const struct remote_reader *reader);

/*
 * Take the QP to RESET, so that the device leaves all memory alone, forget what
 * the CQ holds, and end all reads. done() may not submit anything.
 */
int remote_reader_abort(struct remote_reader *reader);

#endif

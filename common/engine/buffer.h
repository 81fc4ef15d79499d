/* SPDX-License-Identifier: MIT */
/*
 * buffer.h - the memory that reads arrive in: a memfd, mapped and
 * registered, so that the same pages are written by the RDMA device and can be
 * mapped by a client in another process.
 *
 * A pool keeps buffers for reuse, since to register memory takes longer than to
 * read a needle. A buffer that a client was given is never used for another one:
 * that client may look at it as long as it likes. All buffers, the idle ones too, are
 * counted in the budget; the idle ones go when somebody needs the room.
 *
 * memfd_create(2), fcntl(2) (file sealing), ibv_reg_mr(3).
 */
#ifndef ENGINE_BUFFER_H
#define ENGINE_BUFFER_H

#include "base/room.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct engine_buffer {
	struct engine_pool *pool;
	int fd;		   /* the memfd: cannot grow or shrink */
	void *addr;	   /* all of it, readable and writable here */
	size_t size;	   /* bytes, whole pages */
	struct ibv_mr *mr; /* covers all of it; NULL: the pool has no PD */
	unsigned int refs;
	bool given;			/* a client has it */
	struct engine_buffer **own;	/* where that client keeps it, idle */
	LIST_ENTRY(engine_buffer) idle; /* of a list below */
};

LIST_HEAD(engine_buffers, engine_buffer);

struct engine_pool {
	struct ibv_pd *pd;     /* NULL: nothing is registered (tests) */
	struct budget *budget; /* of all buffers, and of more than those */
	size_t kept;	       /* bytes of the unused ones */
	size_t kept_fds;       /* how many they are */
	struct engine_buffers unused[64]; /* by the logarithm of their size */
	struct engine_buffers owned;	  /* idle: a client keeps them */
};

/* So much stays for clients and messages, when reads take what they can get. */
#define ENGINE_SPARE(budget) ((budget)->most / 8)

void engine_pool_init(struct engine_pool *pool, struct ibv_pd *pd,
		      struct budget *budget);

/*
 * Free the unused buffers. To end with the pool, those in use must be back, and the
 * owned ones dropped.
 */
void engine_pool_trim(struct engine_pool *pool);

/*
 * A buffer of at least @size bytes, with one reference: *@own, if that is large
 * enough (then it becomes NULL), or one of the pool's. What stands in it is
 * somebody's old data: engine_buffer_give() clears what is not read over.
 * -EDQUOT: over the budget; -ENOMEM, -EMFILE, ...: reported if it is not memory or
 * descriptors that ran out.
 */
int engine_pool_get(struct engine_pool *pool, size_t size,
		    struct engine_buffer **own, struct engine_buffer **buffer);

struct engine_buffer *engine_buffer_ref(struct engine_buffer *buffer);

/*
 * Drop a reference; with the last one the buffer is the pool's again, or, if a
 * client was given it, stays in *@own (when that is NULL, and @own is not) for
 * the next read of the same client.
 */
void engine_buffer_put(struct engine_pool *pool, struct engine_buffer *buffer,
		       struct engine_buffer **own);

/* Free *@own, if there is one. */
void engine_buffer_drop(struct engine_buffer **own);

/*
 * Make it ready to be given to a client that may see its first @used bytes:
 * clear the rest, and let nobody map it for writing or write to it any more.
 * Returns the memfd, which stays the buffer's, or -errno (reported).
 */
int engine_buffer_give(struct engine_buffer *buffer, size_t used);

#endif

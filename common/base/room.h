/* SPDX-License-Identifier: MIT */
/*
 * room.h - memory that a peer can make us take: for an object whose length it has
 * named, and a count of it all.
 */
#ifndef BASE_ROOM_H
#define BASE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero it before use. */
struct room {
	void *data;
	uint64_t size; /* bytes that are there */
};

/*
 * Have at least @size bytes; what was there before is lost. @peer: who wants to
 * send them, for the report. -EMSGSIZE: more than @limit; -ENOMEM.
 */
int room_for(struct room *room, uint64_t size, uint64_t limit,
	     const char *peer);

void room_free(struct room *room);

/* Bytes that are counted before they are taken. */
struct budget {
	size_t most, used;		/* used <= most */
	void (*reclaim)(void *context); /* give back what is idle. Or NULL. */
	void *context;
};

static inline bool budget_has(const struct budget *budget, size_t bytes)
{
	return budget->most - budget->used >= bytes;
}

/*
 * Count @bytes, if @spare are free after that; if not, count nothing: false. A
 * @budget that is NULL has no end.
 */
static inline bool budget_take(struct budget *budget, size_t bytes,
			       size_t spare)
{
	if (!budget)
		return true;
	if (spare > budget->most || bytes > budget->most - spare)
		return false;
	if (!budget_has(budget, bytes + spare) && budget->reclaim)
		budget->reclaim(budget->context);
	if (!budget_has(budget, bytes + spare))
		return false;
	budget->used += bytes;
	return true;
}

static inline void budget_return(struct budget *budget, size_t bytes)
{
	if (budget)
		budget->used -= bytes;
}

#endif

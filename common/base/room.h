/* SPDX-License-Identifier: MIT */
/*
 * room.h - memory for an object whose length a peer has named.
 */
#ifndef BASE_ROOM_H
#define BASE_ROOM_H

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

#endif

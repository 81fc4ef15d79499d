/* SPDX-License-Identifier: MIT */
/*
 * owner.h - what the engine keeps for one client, and ends with it. Here it only lies
 * in the client, and its share is counted; engine/session.h has the rest.
 */
#ifndef IPC_OWNER_H
#define IPC_OWNER_H

#include "base/room.h"

#include <sys/queue.h>

struct engine_session;
struct engine_buffer;

/* Zero it before use, but for share.most. */
struct engine_owner {
	LIST_HEAD(, engine_session) sessions;
	struct engine_buffer *buffer; /* that it was given once */
	struct budget share; /* of its sessions' buffers, and its messages */
};

#endif

/* SPDX-License-Identifier: MIT */
/*
 * clients.h - the clients of an engine: accept them, take their requests one
 * at a time, send the answers, and cut off those that cheat or sleep.
 *
 * A client's next request is taken when its last one is answered, unless many
 * answers wait to be sent; until then the kernel holds it back. So a client that
 * never reads costs a few answers, and is cut after stall_ms. So is one whose message,
 * or whose first one, is not there after that time, however its bytes trickle in. A
 * message that cannot be read gets an Error; if its length cannot be believed, or
 * there is no memory for it, the connection ends after that. Who is turned away is
 * told why, too.
 *
 * Memory: each client counts IPC_CLIENT_BYTES in the budget; what else it makes the
 * engine take is counted in it, and in its own share.
 */
#ifndef IPC_CLIENTS_H
#define IPC_CLIENTS_H

#include "base/event_loop.h"
#include "error_message.h"
#include "owner.h"
#include "proto.h"
#include "socket.h"

#include <sys/queue.h>

#define IPC_CLIENT_BYTES \
	(3 * ENGINE_STREAM_SIZE) /* two buffers, and the rest */

struct engine_ipc;

/* The engine's end of one connection; the other end is call.h's. */
struct ipc_client {
	struct engine_ipc *ipc;
	struct engine_stream stream;
	struct engine_owner owner; /* its sessions */
	void *read;		   /* the service's: the StartRead under way */
	/* the implementation's */
	bool busy;	    /* a request is not answered yet */
	bool taking;	    /* requests are being taken, further up the stack */
	bool held;	    /* it has sent more than it may: not waited for */
	bool at_end;	    /* it will send no more */
	bool greeted;	    /* a whole message has come */
	bool turned_away;   /* it is none of those counted */
	bool refused;	    /* what it sends makes no sense any more */
	bool broken;	    /* to be closed */
	int64_t patience;   /* what it owes must have come then; 0: nothing */
	uint64_t read_upto; /* bytes sent that it must have read by then */
	struct event_source source;
	struct timer timer;
	TAILQ_ENTRY(ipc_client) entry;
};

struct engine_ipc {
	/* fill before engine_ipc_open() */
	struct event_loop *loop;
	unsigned int most;     /* clients at once */
	struct budget *budget; /* of all their memory */
	size_t share;	       /* of it that one may have */
	int stall_ms;
	/*
	 * Answer @message with engine_ipc_answer(), now or later. Its texts are
	 * gone when this returns.
	 */
	void (*request)(struct ipc_client *client,
			const struct engine_message *message, void *context);
	/* The client is gone; it is freed after this call. */
	void (*gone)(struct ipc_client *client, void *context);
	void *context;
	/* the implementation's */
	struct engine_socket listener;
	struct event_source source;
	struct timer again; /* accept again */
	TAILQ_HEAD(ipc_clients, ipc_client) clients;
	unsigned int count, turned_away;
};

/* Listen at @path. -errno (reported). Undone by engine_ipc_close(). */
int engine_ipc_open(struct engine_ipc *ipc, const char *path);

/* Close the socket, and every client. */
void engine_ipc_close(struct engine_ipc *ipc);

/*
 * Answer the request that @client waits for; @fd goes along (-1: none; it stays
 * the caller's). The client is not closed in this call, but it may be asked for
 * its next request.
 */
void engine_ipc_answer(struct ipc_client *client,
		       const struct engine_message *message, int fd);

/* Answer it with an Error. */
void engine_ipc_fail(struct ipc_client *client, struct engine_failure failure);

/* Send @message before the answer; dropped if the client does not read. */
void engine_ipc_tell(struct ipc_client *client,
		     const struct engine_message *message);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * message.h - one side of a UCX connection, and single messages on it: post,
 * wait, count. What UCX-Py's Endpoint.send() and recv() are.
 *
 * Functions that return int return 0 or a negative errno, and have reported the
 * failure unless it says otherwise. After a failure the endpoint is of no use but
 * to close_endpoint() (endpoint.h).
 */
#ifndef UCX_MESSAGE_H
#define UCX_MESSAGE_H

#include "base/room.h"
#include "base/task.h"
#include "peer_info.h"
#include "worker.h"

/* How long to wait and how much to take. */
struct ucx_limits {
	int info_ms;	     /* the whole exchange of peer info */
	int idle_ms;	     /* for the next object to begin */
	int timeout_ms;	     /* every other wait; a second more for 8 MiB */
	uint64_t max_object; /* bytes of one object */
};

/* One thing that UCX was asked to do. Zero: nothing. */
struct ucx_op {
	bool pending;	     /* UCX has it, and the memory that it is about */
	void *request;	     /* UCX's name for it, while pending */
	ucs_status_t status; /* how it ended */
	size_t length;	     /* bytes received */
	struct task *task;   /* to wake when it ends; NULL: none */
};

/* Opcode 1, the only one: close after so many messages of mine. */
struct ucx_ctrl_msg {
	uint64_t opcode; /* UCX_CTRL_CLOSE */
	uint64_t close_after_n_recv;
};
#define UCX_CTRL_CLOSE 1

/* On the heap, because UCX keeps pointers into it (the ops and what follows). */
struct ucx_endpoint {
	struct ucx_worker *worker;
	struct task *task; /* that waits here; NULL: the caller drives UCX */
	struct ucx_limits limits;
	ucp_ep_h ep;
	bool listener;	   /* made from a connection request */
	char peer[64];	   /* "127.0.0.1:13337", for messages to the user */
	ucs_status_t lost; /* what the error handler was told; UCS_OK */
	/* create_endpoint(): each side receives on its own tags. */
	struct ucx_peer_info info_in, info_out;
	struct ucx_tags tags; /* mine */
	bool have_tags;
	uint64_t msg_tag_send, msg_tag_recv;
	uint64_t ctrl_tag_send, ctrl_tag_recv;
	/* Messages (an object is two). */
	uint64_t send_count, recv_count, finished_recv_count;
	/* Outstanding, at most one of each. */
	struct ucx_op sending, receiving, control;
	struct ucx_ctrl_msg ctrl_in, ctrl_out;
	uint64_t length_in, length_out;
	struct room object; /* that recv_obj() received last */
};

/*
 * Send @size bytes with the peer's tag, or receive exactly @size with mine.
 * @type: what they are, for the debug line. @data is UCX's until the matching
 * ucx_sent() or ucx_received() has returned 0, or the endpoint is closed.
 */
int ucx_post_send(struct ucx_endpoint *ep, const void *data, size_t size,
		  const char *type);
int ucx_post_recv(struct ucx_endpoint *ep, void *data, size_t size,
		  const char *type);

/*
 * Wait for the end of it. @what names it in a report ("the payload"). -EPROTO:
 * the message had another length. ucx_received() reports neither -ESHUTDOWN (the
 * peer has closed in order) nor -ECONNRESET (it is gone): the caller knows
 * whether that matters.
 */
int ucx_sent(struct ucx_endpoint *ep, int64_t deadline, const char *what);
int ucx_received(struct ucx_endpoint *ep, size_t size, int64_t deadline,
		 const char *what);

/*
 * The same for control messages: @op is ep->control or ep->sending. Not counted.
 */
int ucx_post_ctrl_recv(struct ucx_endpoint *ep);
int ucx_post_ctrl_send(struct ucx_endpoint *ep);

/* Has the peer's control message come, and all that it announced? */
bool ucx_peer_closes(const struct ucx_endpoint *ep);

/*
 * Send or receive exactly @size bytes of the UCP stream before @deadline.
 * @got: bytes received so far, also on failure.
 */
int ucx_stream_send(struct ucx_endpoint *ep, const void *data, size_t size,
		    int64_t deadline, const char *what);
int ucx_stream_recv(struct ucx_endpoint *ep, void *data, size_t size,
		    size_t *got, int64_t deadline, const char *what);

/* Send all that waits in this side's queues; -EIO etc. are not reported. */
int ucx_flush(struct ucx_endpoint *ep, int64_t deadline);

/*
 * Let others work until something has happened to @ep or @deadline passes. 0,
 * -ETIMEDOUT, or -EINTR (stop requested); not reported.
 */
int ucx_pause(struct ucx_endpoint *ep, int64_t deadline);

/* The deadline for a message of @size bytes that begins now. */
int64_t ucx_deadline_for(const struct ucx_endpoint *ep, uint64_t size);

/* Report what became of "@what" on @ep, @rc as await gave it. Returns @rc. */
int ucx_report(const struct ucx_endpoint *ep, int rc, const char *what);

#endif

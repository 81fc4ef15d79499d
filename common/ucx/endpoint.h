/* SPDX-License-Identifier: MIT */
/*
 * endpoint.h - a conversation over UCX, call by call as UCX-Py has it and
 * source document 003 shows it. client/sock_echo.c is the same over a socket.
 *
 *	server: create_listener(), for each request accept_endpoint()
 *	client: connect_endpoint()
 *	both:   create_endpoint(), then send_obj() and recv_obj(),
 *	        close_endpoint()
 *
 * Functions that return int return 0 or a negative errno, and have reported the
 * failure unless it says otherwise. Outputs are set only on success.
 *
 * Interoperates with UCX-Py of 2021 and later (not with UCXX).
 */
#ifndef UCX_ENDPOINT_H
#define UCX_ENDPOINT_H

#include "message.h"

#define UCX_DEFAULT_PORT    13337
#define UCX_INFO_TIMEOUT_MS 5000 /* UCX-Py's limit of the exchange */

/*
 * Listen on TCP port @port of all addresses. @on_request is called from within
 * ucx_progress() for each client that comes: it must not do more than remember
 * the request. -EBUSY: another process listens there. Undone by
 * ucp_listener_destroy().
 */
int create_listener(struct ucx_worker *w, uint16_t port,
		    ucp_listener_conn_callback_t on_request, void *arg,
		    ucp_listener_h *listener);

/* Answer @request; @task is the one that will wait on the new endpoint. */
int accept_endpoint(struct ucx_worker *w, ucp_conn_request_h request,
		    const struct ucx_limits *limits, struct task *task,
		    struct ucx_endpoint **ep);

/*
 * Connect to @server (a name or an address), trying again until @deadline while
 * nobody listens there. The caller drives UCX.
 */
int connect_endpoint(struct ucx_worker *w, const char *server, uint16_t port,
		     const struct ucx_limits *limits, int64_t deadline,
		     struct ucx_endpoint **ep);

/* Agree with the peer upon tags. After this both may send. */
int create_endpoint(struct ucx_endpoint *ep);

/* Send @size bytes as an object: a message with its length, then the bytes. */
int send_obj(struct ucx_endpoint *ep, const void *data, uint64_t size);

/*
 * Receive an object; *@data is valid until the next one. -ESHUTDOWN (not
 * reported): there is none, the peer has closed in order; it also returns this
 * (with a warning) if the peer left without saying so when all was answered.
 * -EMSGSIZE: longer than limits.max_object.
 */
int recv_obj(struct ucx_endpoint *ep, void **data, uint64_t *size);

/*
 * Close and free @ep (NULL: nothing to do), whatever state it is in. @rc: how the
 * conversation ended. If it ended well, the peer is told by a control message.
 */
void close_endpoint(struct ucx_endpoint *ep, int rc);

/* "tcp/lo", "rc_verbs/rxe0:1": what @ep's messages go through. Returns @out. */
const char *endpoint_transport(const struct ucx_endpoint *ep, char *out,
			       size_t size);

#endif

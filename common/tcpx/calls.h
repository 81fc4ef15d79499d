/* SPDX-License-Identifier: MIT */
/*
 * calls.h - stage 6: drive an NCCL net plugin (GPUDirect-TCPX, or the teaching
 * plugin of this project) without NCCL.
 *
 * One set of calls for the plugin interfaces v5 to v8 (nccl_net.h). The names
 * are those of UCCL's TCPX code; the "_v5" of connect and accept is history, all
 * of them use the version that tcpx_load_plugin() took. The plugin's contract is
 * kept in here, so that a caller cannot break it. net_plugin.h loads a plugin.
 *
 * Functions that return int return 0 or a negative errno and have reported the
 * failure when it is not 0: -EIO, or -EREMOTEIO where the plugin blames the
 * peer. Outputs are set only on success. One thread per struct tcpx_comm.
 */
#ifndef TCPX_CALLS_H
#define TCPX_CALLS_H

#include "base/deadline.h"
#include "net_plugin.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TCPX_MAX_RECVS 16 /* irecvs outstanding in one comm */
#define TCPX_MAX_SENDS 12 /* isends outstanding in one comm */

/* Opaque: only the plugin that filled it may read it. Goes to the peer as is. */
struct tcpx_handle {
	unsigned char bytes[NCCL_NET_HANDLE_MAXSIZE];
};

struct tcpx_listener {
	void *comm; /* the plugin's */
	int dev;
};

struct tcpx_comm;
struct tcpx_request; /* an isend or irecv under way; belongs to its comm */

/* What ends a wait that does not succeed. */
struct tcpx_wait {
	int64_t deadline; /* base/deadline.h */
	int64_t stall_ms; /* no progress for so long, 0: no matter */
	int peer_sock;	  /* as for sock_check_peer(), -1: none */
	int peer_step;	  /* enum sync_step that the peer is on its way to */
};

/* Listen on @dev and fill @handle, to be given to one connecting peer. */
int tcpx_listen(struct tcpx_net *net, int dev, struct tcpx_handle *handle,
		struct tcpx_listener *listener);
int tcpx_close_listen(struct tcpx_net *net, struct tcpx_listener *listener);

/*
 * Connect to @handle, or accept one connection, within @wait. Polls the plugin,
 * which does not block. Undone by tcpx_close_send() and tcpx_close_recv().
 */
int tcpx_connect_v5(struct tcpx_net *net, int dev,
		    const struct tcpx_handle *handle, struct tcpx_wait wait,
		    struct tcpx_comm **send_comm);
int tcpx_accept_v5(struct tcpx_net *net, struct tcpx_listener *listener,
		   struct tcpx_wait wait, struct tcpx_comm **recv_comm);

/* Close *@comm if there is one, and set it to NULL. */
int tcpx_close_send(struct tcpx_comm **comm);
int tcpx_close_recv(struct tcpx_comm **comm);

/*
 * Register memory of @type (NCCL_PTR_HOST). *@mhandle may be NULL on success.
 * -E2BIG: more than v5 to v7 can say (INT_MAX bytes).
 */
int tcpx_reg_mr(struct tcpx_comm *comm, void *data, size_t size, int type,
		void **mhandle);
int tcpx_dereg_mr(struct tcpx_comm *comm, void *mhandle);

/*
 * Begin to send, or to receive into @n buffers (one message each, with its tag;
 * a plugin may ignore the tag if @n is 1). *@request is NULL if there is no
 * room now: test older ones and try again. Buffers stay untouched until
 * tcpx_test() says done.
 */
int tcpx_isend(struct tcpx_comm *comm, void *data, int size, int tag,
	       void *mhandle, struct tcpx_request **request);
int tcpx_irecv(struct tcpx_comm *comm, int n, void **data, int *sizes,
	       int *tags, void **mhandles, struct tcpx_request **request);

/*
 * Make progress; *@done tells whether @request is complete. Requests of a comm
 * complete in the order in which they were begun. @sizes (may be NULL): what
 * the plugin said about each buffer, -1 if it said nothing; for a send the
 * number of bytes that were given to tcpx_isend(). A completed send is over
 * here; a completed receive is kept until tcpx_irecv_consumed().
 */
int tcpx_test(struct tcpx_request *request, bool *done, int *sizes);
int tcpx_irecv_consumed(struct tcpx_comm *comm, int n,
			struct tcpx_request *request);

/*
 * Between two polls that brought nothing, for who waits for several requests at
 * once. @what is named if the wait ends. As pause_between_polls().
 */
int tcpx_pause(struct poll_pause *pause, const struct tcpx_wait *wait,
	       const char *what, const char *next);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * rdma_common.h - the stages of an RDMA connection, in the order in which a
 * program needs them. Read this header first: each block below is one file of
 * common/ and one lesson.
 *
 *	stage 1  device.c     open a device, choose a port and a GID
 *	stage 2  resources.c  PD, MR, CQ, QP - and taking them down
 *	stage 3  qp_state.c   RESET -> INIT -> RTR -> RTS
 *	stage 4  tcp_sync.c   what both sides must tell each other, over TCP
 *	stage 5  transfer.c   post a receive, post a send, poll the completion
 *	stage 8  one_sided.c  READ, WRITE, atomics, memory windows
 *	stage 10 many_peers.c one SRQ and one CQ for many QPs, events
 *		 datagram.c   UD: no connection, one QP for all peers
 *	stage 11 cm_event.c   librdmacm: its events; a server waits for a client
 *		 cm_connect.c librdmacm does what stages 3 and 4 do
 *
 * Every function that returns int returns 0 or a negative errno, and has
 * reported the failure (base/report.h) when it is not 0. Outputs are set only on
 * success. A deadline is a point of CLOCK_MONOTONIC in nanoseconds (base/deadline.h).
 * One thread per struct rdma_resources.
 */
#ifndef COMMON_RDMA_COMMON_H
#define COMMON_RDMA_COMMON_H

#include "base/handshake.h"
#include "base/sock.h"
#include "base/verbs_names.h"
#include "explain/failed.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEFAULT_MSG_SIZE    4096	  /* bytes */
#define MAX_MSG_SIZE	    (1024u << 20) /* bytes; a device may allow less */
#define DEFAULT_TCP_PORT    18515
#define GID_INDEX_AUTO	    (-1)
#define EXCHANGE_TIMEOUT_MS 10000 /* the whole of one TCP exchange */
#define POLL_TIMEOUT_MS	    5000  /* one completion */

/* What the user asked for. All zero but gid_index and msg_size will do. */
struct rdma_config {
	const char *device_name; /* NULL: first device with a usable port */
	int gid_index;		 /* GID_INDEX_AUTO, or 0 ... 255 */
	uint32_t msg_size;	 /* bytes of one message, 1 ... MAX_MSG_SIZE */
	uint32_t recv_slots;	 /* receives that can be posted, 0: 1 */
	uint32_t send_slots;	 /* sends that can be outstanding, 0: 1 */
	uint32_t max_inline;	 /* bytes to take inline, 0: what is free */
	bool events;		 /* sleep on a completion channel, not poll */
};

/*
 * All RDMA objects of one side of one connection. Zero it before use; a
 * member that is NULL has not been made yet.
 */
struct rdma_resources {
	/* stage 1 */
	struct ibv_context *context; /* the opened device */
	struct ibv_device_attr device_attr;
	struct ibv_port_attr port_attr;
	uint8_t ib_port;   /* counts from 1 */
	uint8_t gid_index; /* slot in the port's GID table */
	union ibv_gid gid; /* what stands in that slot */
	/* stage 2 */
	struct ibv_pd *pd;
	char *buf;			  /* receive slots, then send slots */
	size_t buf_size;		  /* bytes */
	struct ibv_mr *mr;		  /* covers all of buf */
	uint32_t msg_size;		  /* bytes used of each slot */
	size_t slot_size;		  /* bytes from slot to slot */
	uint32_t recv_slots;		  /* slots that receive */
	uint32_t send_slots;		  /* slots that are sent from */
	struct ibv_comp_channel *channel; /* NULL: completions are polled */
	struct ibv_cq *cq;		  /* of both queues of the QP */
	struct ibv_qp *qp;
	uint32_t max_inline;   /* bytes the QP takes inline */
	struct posted *posted; /* last request of each slot, to explain it */
	/* stage 3 */
	uint32_t psn;	   /* my sq_psn, random, 24 bits */
	uint8_t max_reads; /* READs at once, each way, if the device can; 0: 16 */
	/* stage 4 */
	struct cm_con_data_t remote; /* the peer's, host byte order */
	bool more_rkeys;	     /* the peer tells of further MRs later */
	/* stage 5 */
	bool armed;		 /* the CQ will raise an event */
	unsigned int event_debt; /* events received, not yet acknowledged */
	bool have_early; /* a completion came before it was waited for */
	struct ibv_wc early;
};

/* ---- stage 1: device.c -------------------------------------------------- */

/*
 * Open the device that @config names, or the first one that has an active
 * port, and choose a GID of that port. Fills the stage 1 members.
 * -ENODEV: no (such) device; -ENETDOWN: no active port; -EADDRNOTAVAIL: no
 * usable GID. Undone by close_device().
 */
int open_device(struct rdma_resources *res, const struct rdma_config *config);

/* Close the device; nothing to do if it is not open. */
int close_device(struct rdma_resources *res);

/*
 * Choose from the port's GID table: with @wanted GID_INDEX_AUTO the RoCE v2
 * entry that is best reached (IPv4-mapped, then global IPv6, then link-local);
 * else exactly @wanted, refused if it is empty or not RoCE v2. Sets gid_index
 * and gid. Source: ibv_query_gid_ex(3), IBTA annex A17 (RoCEv2).
 */
int choose_gid(struct rdma_resources *res, int wanted);

/* ---- stage 2: resources.c ----------------------------------------------- */

/*
 * Make PD, buffer, MR, CQ and QP (RC, still in RESET) on the opened device.
 * Makes all or nothing. Undone by destroy_objects().
 */
int create_objects(struct rdma_resources *res,
		   const struct rdma_config *config);

/* The same without the QP, for those who make it in another way; what was made stays. */
int create_objects_but_qp(struct rdma_resources *res,
			  const struct rdma_config *config);

/*
 * Destroy QP, CQ, channel, MR, buffer and PD in this order, whichever exist.
 * Goes on after a failure and returns the first.
 */
int destroy_objects(struct rdma_resources *res);

/* Stages 1 and 2 together: all or nothing. */
int init_rdma_resources(struct rdma_resources *res,
			const struct rdma_config *config);

/* Undo init_rdma_resources() and all that came after it; @res is all zero then. */
int destroy_rdma_resources(struct rdma_resources *res);

/*
 * The parts of create_objects(), for those who share a PD and its MRs among
 * many QPs: a PD; a CQ for recv_slots + send_slots completions, with a channel if
 * @events; a QP in res->pd. What was made before a failure stays.
 */
int create_pd(struct rdma_resources *res);
int create_cq(struct rdma_resources *res, bool events);
int create_qp(struct rdma_resources *res, uint32_t max_inline);

/* Receive slot @slot (0 ... recv_slots - 1) and send slot @slot of buf. */
static inline char *recv_slot(const struct rdma_resources *res, uint32_t slot)
{
	return res->buf + slot * res->slot_size;
}

static inline char *send_slot(const struct rdma_resources *res, uint32_t slot)
{
	return recv_slot(res, res->recv_slots + slot);
}

/* ---- stage 3: qp_state.c ------------------------------------------------ */

/* RESET -> INIT: port, P_Key and access rights. */
int modify_qp_to_init(struct rdma_resources *res);

/*
 * INIT -> RTR: where the peer is and which PSN comes first, from res->remote.
 * Takes up to a second: the kernel resolves the peer's MAC address here.
 */
int modify_qp_to_rtr(struct rdma_resources *res);

/* RTR -> RTS: my first PSN, time-out and retry counts. */
int modify_qp_to_rts(struct rdma_resources *res);

/* What these two steps set, for who changes one value and calls modify_qp(). */
struct ibv_qp_attr rtr_attributes(const struct rdma_resources *res);
struct ibv_qp_attr rts_attributes(const struct rdma_resources *res);

/*
 * One ibv_modify_qp() of the caller's own; @mask: IBV_QP_... of what is set in
 * @attr. A failure is explained. Returns 0 or -errno.
 */
int modify_qp(struct rdma_resources *res, struct ibv_qp_attr *attr, int mask);

/* Any state but RESET -> ERR: flushes all outstanding work requests. */
int modify_qp_to_error(struct rdma_resources *res);

/* Any state -> RESET: the only way out of ERR. */
int modify_qp_to_reset(struct rdma_resources *res);

/* The QP as the kernel has it now, not as the library remembers it. */
int query_qp(struct rdma_resources *res, struct ibv_qp_attr *attr);

/* The lower of both sides' active_mtu. */
enum ibv_mtu path_mtu(const struct rdma_resources *res);

/* ---- stage 4: tcp_sync.c ------------------------------------------------ */

/* Send @size bytes of mine and receive @size bytes of the peer's. */
int sock_sync_data(int sock, size_t size, const void *local, void *remote,
		   int64_t deadline, const char *what);

/*
 * Meet the peer at point @step ("QP is in RTS", ...) and learn whether it got
 * there. @status: 0, or the negative errno this side failed with, which is
 * passed on and returned. -EREMOTEIO: the peer failed. -EPROTO: it is elsewhere.
 */
int sock_sync_step(int sock, enum sync_step step, int status, int64_t deadline);

/* What this side's resources look like to a peer. */
struct cm_con_data_t cm_con_data_of(const struct rdma_resources *res);

/* Host byte order to wire byte order; and back: a swap undoes itself. */
struct cm_con_data_t cm_con_data_to_wire(struct cm_con_data_t data);

/*
 * Exchange hello (magic, version, length) and cm_con_data_t; fills
 * res->remote. -EPROTO: the peer speaks something else or its data cannot be.
 */
int exchange_cm_con_data(struct rdma_resources *res, int sock,
			 int64_t deadline);

/*
 * From INIT to connected in one call: what rdma_client and rdma_server do step by
 * step, for programs whose subject is another. Post receives before it: when it
 * returns 0 the peer may send.
 */
int connect_qp(struct rdma_resources *res, int sock, int64_t deadline);

/* ---- stage 5: transfer.c ------------------------------------------------ */

/* wr_id of the receive into, or the send from, a slot. */
#define WR_ID_RECV(slot)  (UINT64_C(0x7265637600000000) | (slot)) /* "recv" */
#define WR_ID_SEND(slot)  (UINT64_C(0x73656e6400000000) | (slot)) /* "send" */
#define WR_ID_READ(slot)  (UINT64_C(0x7265616400000000) | (slot)) /* "read" */
#define WR_ID_WRITE(slot) (UINT64_C(0x7772697400000000) | (slot)) /* "writ" */
#define WR_ID_SWAP(slot)  (UINT64_C(0x7377617000000000) | (slot)) /* "swap" */
#define WR_ID_ADD(slot)	  (UINT64_C(0x6661646400000000) | (slot)) /* "fadd" */
#define WR_ID_BIND(slot)  (UINT64_C(0x62696e6400000000) | (slot)) /* "bind" */
#define WR_ID_INVALIDATE(slot) \
	(UINT64_C(0x6c696e7600000000) | (slot)) /* "linv" */
#define WR_ID_SLOT(wr_id) ((uint32_t)(wr_id))

/* Give receive slot @slot to the QP. The slot is the QP's until it completes. */
int post_receive(struct rdma_resources *res, uint32_t slot);

/* The same with every receive slot, 0 first: messages come into them in this order. */
int post_all_receives(struct rdma_resources *res);

/*
 * Send @length bytes (at most msg_size) of send slot @slot, with a completion
 * if @signaled. The slot is the QP's until this or a later send completes.
 */
int post_send(struct rdma_resources *res, uint32_t slot, uint32_t length,
	      bool signaled);

/*
 * Any other request, as the caller has filled @wr: its wr_id is one of the above,
 * and it has one SGE if data goes with it. Made inline if it is short enough, and
 * kept, to be explained.
 */
int post_request(struct rdma_resources *res, struct ibv_send_wr *wr);

/*
 * A completion if there is one now, checked as await_completion() does. Returns
 * 1, 0 (none) or a negative errno. For those who have more to do than to wait.
 */
int try_completion(struct rdma_resources *res, struct ibv_wc *wc);

/*
 * Have the CQ raise an event on its channel with the next completion; and take
 * one that was raised (0, too, if the channel does not block and there is none).
 * Between the two, poll once more: a completion may have come before.
 */
int arm_cq(struct rdma_resources *res);
int take_cq_event(struct rdma_resources *res);

/*
 * The next completion, whichever it is, good and with a wr_id of ours, before
 * @timeout_ms have passed without one. @wr_id: the one that is hoped for, to say
 * why it did not come; 0: any. Returns 0, -ETIMEDOUT, -EINTR, or -EIO for a bad
 * completion (explained once; later ones are only flushes).
 */
int await_completion(struct rdma_resources *res, uint64_t wr_id,
		     struct ibv_wc *wc, int timeout_ms);

/*
 * Wait for the completion of @wr_id; status, opcode and wr_id of what comes are
 * all checked. One completion of the QP's other queue may come first (send and
 * receive queue are not ordered against each other): it is kept for the next
 * call. @wc may be NULL.
 */
int poll_completion(struct rdma_resources *res, uint64_t wr_id,
		    struct ibv_wc *wc, int timeout_ms);

/* ---- stage 8: one_sided.c ----------------------------------------------- */

/*
 * One-sided requests: @addr is the peer's virtual address and @rkey the key of the
 * MR or window that it lies in. The peer's program takes no part and learns nothing.
 * @slot: a send slot, which is the QP's until the completion. @flags:
 * IBV_SEND_SIGNALED for a completion, IBV_SEND_FENCE to begin only when all READs
 * and atomics before it are done. What the peer refuses comes back as status 9 (its
 * QP) or 10 (its memory), and both QPs are in ERR.
 */

/* The first gate: register @size bytes at @addr; @access: IBV_ACCESS_REMOTE_... or
 * IBV_ACCESS_MW_BIND, and LOCAL_WRITE is added. Undo: ibv_dereg_mr(). */
int expose_memory(struct rdma_resources *res, void *addr, size_t size,
		  int access, struct ibv_mr **mr);

/*
 * The second gate: what the peer may do through this QP, in INIT or in RTS.
 * @access: IBV_ACCESS_REMOTE_...; modify_qp_to_init() allows READ and WRITE.
 */
int allow_remote(struct rdma_resources *res, unsigned int access);

/*
 * READ: bring @into->length bytes into @into, any memory of a local MR. Always
 * with a completion, WR_ID_READ. Waits for ever if max_rd_atomic is 0.
 */
int post_read(struct rdma_resources *res, uint32_t slot, struct ibv_sge *into,
	      uint64_t addr, uint32_t rkey);

/* WRITE: put @length bytes of send slot @slot there. WR_ID_WRITE. */
int post_write(struct rdma_resources *res, uint32_t slot, uint32_t length,
	       uint64_t addr, uint32_t rkey, unsigned int flags);

/*
 * The same, and take one receive of the peer, whose completion has @imm
 * (received_imm()) and the length. Its buffer is not touched.
 */
int post_write_imm(struct rdma_resources *res, uint32_t slot, uint32_t length,
		   uint64_t addr, uint32_t rkey, uint32_t imm,
		   unsigned int flags);
uint32_t received_imm(const struct ibv_wc *wc);

/*
 * Atomics on 8 bytes at @addr, a multiple of 8: if they are @expected, make them
 * @desired; or add @add. Always with a completion, WR_ID_SWAP or WR_ID_ADD; what
 * was there before is atomic_result() then. In the byte order of the peer's host.
 */
int post_compare_swap(struct rdma_resources *res, uint32_t slot, uint64_t addr,
		      uint32_t rkey, uint64_t expected, uint64_t desired);
int post_fetch_add(struct rdma_resources *res, uint32_t slot, uint64_t addr,
		   uint32_t rkey, uint64_t add);
uint64_t atomic_result(const struct rdma_resources *res, uint32_t slot);

/*
 * Memory windows of type 2: a key of their own to a part of an MR that was exposed
 * with IBV_ACCESS_MW_BIND. Binding and invalidating are requests like others:
 * WR_ID_BIND, WR_ID_INVALIDATE. -EOPNOTSUPP: the device has none. Free a window
 * with ibv_dealloc_mw(), before its MR.
 */
int alloc_window(struct rdma_resources *res, struct ibv_mw **mw);

/* @part: MR, address, length and rights. The window's new key is mw->rkey. */
int post_bind_window(struct rdma_resources *res, uint32_t slot,
		     struct ibv_mw *mw, const struct ibv_mw_bind_info *part);
int post_invalidate(struct rdma_resources *res, uint32_t slot, uint32_t rkey);

/*
 * SEND, which invalidates @rkey, a window of the peer's, when it arrives.
 * WR_ID_SEND. -EOPNOTSUPP: the device does not know it. invalidated_rkey(): the
 * key that the completion of the peer's receive names; 0: it was another SEND.
 */
int post_send_invalidate(struct rdma_resources *res, uint32_t slot,
			 uint32_t length, uint32_t rkey);
uint32_t invalidated_rkey(const struct ibv_wc *wc);

/* ---- stage 10: many_peers.c --------------------------------------------- */

/*
 * What many RC connections share, for one thread with epoll(7). Their memory is
 * res.recv_slots slots; each is in one place at a time: posted (in the SRQ or as an
 * answer), completed (in the CQ), or with the caller.
 */
struct shared_queues {
	struct rdma_resources res; /* device, PD, slots, CQ; no QP */
	struct ibv_srq *srq;
	bool tells_last_wqe; /* the device says LAST_WQE_REACHED */
	void *by_qpn;	     /* the QPs, for tsearch(3) */
};

/*
 * Open the device of @config and make PD, CQ, SRQ and recv_slots slots of msg_size
 * bytes; no receive is posted. @q is zero. The descriptors to wait for, both of them
 * non-blocking: res.channel->fd, whose CQ is armed, and res.context->async_fd.
 * -EINVAL, -ENOMEM: more than the device or the system has. All or nothing; undone by
 * close_shared_queues(), when the QPs are gone.
 */
int open_shared_queues(struct shared_queues *q,
		       const struct rdma_config *config);
int close_shared_queues(struct shared_queues *q);

/* Replace the SRQ by a new, empty one, when no QP uses it. */
int renew_srq(struct shared_queues *q);

/* Post receive slot @slot to the SRQ: the next message takes it, whichever QP it is for. */
int post_shared_receive(struct shared_queues *q, uint32_t slot);

/*
 * Ask for one IBV_EVENT_SRQ_LIMIT_REACHED, when a message leaves fewer than @low
 * receives in the SRQ. Post receives first: an empty SRQ raises no event.
 */
int arm_srq_limit(struct shared_queues *q, uint32_t low);

/*
 * A QP (RC, in RESET) that takes its receives from the SRQ and completes into the
 * CQ, for stages 3 and 4; at most @sends requests outstanding. @owner comes with each
 * of its completions. Undone by destroy_peer_qp(), after modify_qp_to_error() and, if
 * tells_last_wqe, IBV_EVENT_QP_LAST_WQE_REACHED: @peer is all zero then.
 */
int create_peer_qp(struct shared_queues *q, struct rdma_resources *peer,
		   uint32_t sends, void *owner);
int destroy_peer_qp(struct shared_queues *q, struct rdma_resources *peer);

/*
 * The channel is readable, or completions may be there: take its event, arm the CQ,
 * and call @deliver for each completion, good or bad, until the CQ is empty. @owner is
 * that of its QP, or NULL if the QP is gone.
 */
typedef void deliver_function(void *context, void *owner,
			      const struct ibv_wc *wc);
int dispatch_completions(struct shared_queues *q, deliver_function *deliver,
			 void *context);

/*
 * An asynchronous event, already acknowledged, if there is one: 1, 0 or -errno.
 * Look at the object that it names before the next call that destroys one.
 */
int take_async_event(struct rdma_resources *res, struct ibv_async_event *event);

/*
 * A buffer and its MR for recv_slots and send_slots of msg_size bytes, in res->pd,
 * without rights for peers. Undone by destroy_objects().
 */
int create_slots(struct rdma_resources *res);

/* ---- stage 10: datagram.c ----------------------------------------------- */

/*
 * UD: one QP for all peers. @res: with a PD, slots, and a CQ; msg_size is GRH_BYTES
 * more than the longest message, because each receive begins with them. What does not
 * arrive (a wrong Q_Key or QPN, no receive) is lost, and the sender sees status 0.
 */
#define GRH_BYTES     40
#define MULTICAST_QPN 0xffffff /* all QPs of the group */

/* A UD QP in RTS that accepts datagrams with @qkey. Undone by destroy_objects(). */
int create_datagram_qp(struct rdma_resources *res, uint32_t qkey);

/*
 * An address handle for @gid, or for the sender of the datagram that @wc is about: make
 * it before the slot is posted again. Undone by ibv_destroy_ah(), when no request uses it.
 */
int create_ah(struct rdma_resources *res, const uint8_t gid[16],
	      struct ibv_ah **ah);
int answer_datagram(struct rdma_resources *res, const struct ibv_wc *wc,
		    struct ibv_ah **ah);

/*
 * Send @length bytes of send slot @slot; WR_ID_SEND. -EMSGSIZE: more than the port's
 * active MTU, which rxe would drop in silence.
 */
int post_datagram(struct rdma_resources *res, uint32_t slot, uint32_t length,
		  struct ibv_ah *ah, uint32_t qpn, uint32_t qkey);

/*
 * The data that @wc is about, and its @length. It follows the 40 bytes, which byte_len
 * includes. NULL: there are not even those.
 */
char *datagram_of(const struct rdma_resources *res, const struct ibv_wc *wc,
		  uint32_t *length);

/* ---- stage 11: cm_event.c, cm_connect.c --------------------------------- */

/*
 * A connection by librdmacm. An IP address chooses the device; QPN, PSN, GID and the QP's
 * states are librdmacm's; the rest of cm_con_data_t goes along as private data. @res is
 * zero before, stages 2, 5 and 8 work on it, and close_connection() destroys it:
 *
 *	server				client
 *	listen_for_requests		resolve_server
 *	await_cm_request
 *	create_objects_on_id, post_all_receives: both
 *	accept_request			request_connection
 *	disconnect_cm, close_connection: both
 */
struct rdma_cm_id;
struct rdma_event_channel;

struct cm_connection {
	struct rdma_event_channel *channel; /* its descriptor does not block */
	struct rdma_cm_id *listener; /* server, until its client has come */
	struct rdma_cm_id *id;	     /* of this connection */
	char peer[64];		     /* "ADDRESS port PORT" */
	bool more;		     /* other addresses of the name are left */
	char extra[CM_EXTRA_SIZE];   /* the peer's */
};

/* A copy of an event, which has been acknowledged. */
struct cm_event {
	unsigned int type; /* enum rdma_cm_event_type */
	int status;
	struct rdma_cm_id *id, *listen_id;
	char data[256]; /* private data, then zeros */
};

/*
 * Wait for the event @wanted of @id (of a listener: the CONNECT_REQUEST of a new id). Any
 * other is a failure, but for notices. -EAGAIN, not reported: nobody listens there, and
 * @deadline is ahead. -ETIMEDOUT, -ECONNREFUSED, ...
 */
int await_cm_event(struct cm_connection *cm, struct rdma_cm_id *id,
		   unsigned int wanted, int64_t deadline, struct cm_event *out);

/* Make cm->channel, if there is none. */
int open_cm_channel(struct cm_connection *cm);

/* rdma_@call has failed and set errno. Returns it, negative. */
int cm_failed(const struct cm_connection *cm, const char *call);

/* Fills stage 1 of @res, by the device of cm->id, and cm->peer. */
int learn_device_of_id(struct cm_connection *cm, struct rdma_resources *res);

/* Listen on @port (of librdmacm, not of TCP) of all addresses of all RDMA devices. */
int listen_for_requests(struct cm_connection *cm, uint16_t port);

/*
 * Wait for a client whose private data is ours, and stop listening; others are rejected
 * and reported. Fills stage 1 of @res by the device that the request came to, what
 * res->remote has of memory, and cm->extra.
 */
int await_cm_request(struct cm_connection *cm, struct rdma_resources *res,
		     int64_t deadline);

/*
 * Find device and route to @server, an address or a name; of several addresses the first
 * that has both. Fills stage 1 of @res.
 */
int resolve_server(struct cm_connection *cm, struct rdma_resources *res,
		   const char *server, uint16_t port, int64_t deadline);

/*
 * Stage 2 on that device, with a QP made by librdmacm: it is in INIT, so post receives.
 * -ENODEV: @config names another device. What was made stays.
 */
int create_objects_on_id(struct cm_connection *cm, struct rdma_resources *res,
			 const struct rdma_config *config);

/*
 * Connect; 0: this side's QP is in RTS, and the peer has accepted (accept_request() does
 * when its receives are posted). @extra: for the peer. -EAGAIN: as above;
 * close_connection() and begin again. -EREMOTEIO: the server failed, and its reject says how.
 */
int request_connection(struct cm_connection *cm, struct rdma_resources *res,
		       const char extra[CM_EXTRA_SIZE], int64_t deadline);
int accept_request(struct cm_connection *cm, struct rdma_resources *res,
		   const char extra[CM_EXTRA_SIZE], int64_t deadline);

/* Reject the client of await_cm_request(), and tell it @why, a negative errno. Returns @why. */
int reject_request(struct cm_connection *cm, int why);

/*
 * End a connection; the QP is in ERR then. @first: this side disconnects, and the other one
 * waits for that. It is the side that knows that the peer has received everything.
 */
int disconnect_cm(struct cm_connection *cm, bool first, int64_t deadline);

/* Undo all of the above, whatever exists; @cm and @res are zero then. */
int close_connection(struct cm_connection *cm, struct rdma_resources *res);

#endif

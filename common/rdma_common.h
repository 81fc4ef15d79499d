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
 *
 * Every function that returns int returns 0 or a negative errno, and has
 * reported the failure (base/report.h) when it is not 0. Outputs are set only on
 * success. A deadline is a point of CLOCK_MONOTONIC in nanoseconds (base/deadline.h).
 * One thread per struct rdma_resources.
 */
#ifndef COMMON_RDMA_COMMON_H
#define COMMON_RDMA_COMMON_H

#include "base/verbs_names.h"

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
 * Sent over TCP, once in each direction: all that the peer must know to bring
 * its QP to RTR and to reach this side's memory. Packed; in memory all integers
 * are in host byte order, on the wire big-endian (cm_con_data_to_wire()).
 */
struct cm_con_data_t {
	uint32_t qp_num;    /* 24 bits */
	uint16_t lid;	    /* 0 on RoCE: there is no subnet manager */
	uint8_t gid[16];    /* as it stands in the GRH: an IPv6 address */
	uint32_t psn;	    /* 24 bits: the PSN of my first packet */
	uint8_t active_mtu; /* enum ibv_mtu, 1 ... 5 */
	uint64_t addr;	    /* my buffer, for RDMA READ and WRITE */
	uint32_t rkey;	    /* its key */
	uint32_t size;	    /* its length in bytes */
} __attribute__((packed));

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
	uint32_t max_inline; /* bytes the QP takes inline */
	/* stage 3 */
	uint32_t psn;	   /* my sq_psn, random, 24 bits */
	uint8_t max_reads; /* RDMA READs at once, each way; 0: 16 */
	/* stage 4 */
	struct cm_con_data_t remote; /* the peer's, host byte order */
	/* stage 5 */
	bool armed;		 /* the CQ will raise an event */
	unsigned int event_debt; /* events received, not yet acknowledged */
	bool have_early; /* a completion came before it was waited for */
	struct ibv_wc early;
};

/* ---- stage 1: device.c -------------------------------------------------- */

/*
 * Open the device that @config names, or the first one that has an active
 * port with a RoCE v2 GID, and choose the GID. Fills the stage 1 members.
 * -ENODEV: no (such) device; -ENETDOWN: no active port; -EADDRNOTAVAIL: no
 * usable GID. Undone by rdma_close_device().
 */
int rdma_open_device(struct rdma_resources *res,
		     const struct rdma_config *config);

/* Close the device; nothing to do if it is not open. */
int rdma_close_device(struct rdma_resources *res);

/*
 * Read all filled entries of the GID tables of all ports. Returns how many
 * there are; *@table is the caller's to free.
 */
int rdma_read_gid_table(struct ibv_context *context,
			struct ibv_gid_entry **table);

/*
 * Choose from the port's GID table: with @wanted GID_INDEX_AUTO the RoCE v2
 * entry that is best reached (IPv4-mapped, then global IPv6, then link-local);
 * else exactly @wanted, refused if it is empty or not RoCE v2. Sets gid_index
 * and gid. Source: ibv_query_gid_table(3), IBTA annex A17 (RoCEv2).
 */
int rdma_choose_gid(struct rdma_resources *res, int wanted);

/* "ROCE v2", ... for enum ibv_gid_type of an ibv_gid_entry. */
const char *gid_type_name(uint32_t gid_type);

/* ---- stage 2: resources.c ----------------------------------------------- */

/*
 * Make PD, buffer, MR, CQ and QP (RC, still in RESET) on the opened device.
 * Makes all or nothing. Undone by rdma_destroy_objects().
 */
int rdma_create_objects(struct rdma_resources *res,
			const struct rdma_config *config);

/*
 * Destroy QP, CQ, channel, MR, buffer and PD in this order, whichever exist.
 * Goes on after a failure and returns the first.
 */
int rdma_destroy_objects(struct rdma_resources *res);

/* Stages 1 and 2 together: all or nothing. */
int init_rdma_resources(struct rdma_resources *res,
			const struct rdma_config *config);

/* Undo init_rdma_resources() and all that came after it. */
int destroy_rdma_resources(struct rdma_resources *res);

/*
 * For one device and one memory, and many connections: first make a PD (only)
 * on @owner's opened device and register the memory in it. Then make a CQ and a
 * QP for each connection, in @owner's PD; @res has no buffer, for its QP only
 * serves the peer's READs and WRITEs. One thread for each @res, and none may
 * change @owner, which must outlive them all.
 */
int rdma_create_pd(struct rdma_resources *owner);
int rdma_create_serving_qp(struct rdma_resources *res,
			   const struct rdma_resources *owner);

/* Destroy them, and leave alone what is @owner's. */
int rdma_destroy_serving_qp(struct rdma_resources *res);

/* Receive slot @slot (0 ... recv_slots - 1) and send slot @slot of buf. */
char *recv_slot(const struct rdma_resources *res, uint32_t slot);
char *send_slot(const struct rdma_resources *res, uint32_t slot);

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

/*
 * One ibv_modify_qp() of the caller's own; @mask: IBV_QP_... of what is set in
 * @attr. A failure is explained. Returns 0 or -errno.
 */
int modify_qp(struct rdma_resources *res, struct ibv_qp_attr *attr, int mask);

/* Any state but RESET -> ERR: flushes all outstanding work requests. */
int modify_qp_to_error(struct rdma_resources *res);

/* Any state -> RESET: the only way out of ERR. */
int modify_qp_to_reset(struct rdma_resources *res);

/*
 * A QP in SQD: wait until its send queue is drained, at most @ms milliseconds.
 * Until then only ERR can be reached. Returns 0 or -errno (-ETIMEDOUT).
 */
int wait_for_drained_sq(struct rdma_resources *res, int ms);

/* The QP as the kernel has it now, not as the library remembers it. */
int query_qp(struct rdma_resources *res, struct ibv_qp_attr *attr);

/* The lower of both sides' active_mtu. */
enum ibv_mtu path_mtu(const struct rdma_resources *res);

/* ---- stage 4: tcp_sync.c ------------------------------------------------ */

/* Listen on @port, on all IPv4 and IPv6 addresses. Returns the socket. */
int tcp_listen(uint16_t port);

/* Accept one connection before @deadline. Returns the socket. */
int tcp_accept(int listen_sock, int64_t deadline);

/*
 * Connect to @server:@port, trying again until @deadline while nobody listens
 * there yet. Returns the socket.
 */
int tcp_connect(const char *server, uint16_t port, int64_t deadline);

/* Close *@sock if it is one, and set it to -1. */
void sock_close(int *sock);

/*
 * Read or write exactly @size bytes before @deadline. @what names them in the
 * failure report ("hello", ...). -ETIMEDOUT, -ECONNRESET (peer closed), -EINTR
 * (stop requested).
 */
int sock_read_exact(int sock, void *data, size_t size, int64_t deadline,
		    const char *what);
int sock_write_exact(int sock, const void *data, size_t size, int64_t deadline,
		     const char *what);

/* Send @size bytes of mine and receive @size bytes of the peer's. */
int sock_sync_data(int sock, size_t size, const void *local, void *remote,
		   int64_t deadline, const char *what);

/*
 * Meet the peer at point @step ("QP is in RTS", ...) and learn whether it got
 * there. @status: 0, or the negative errno this side failed with, which is
 * passed on and returned. -EREMOTEIO: the peer failed. -EPROTO: it is elsewhere.
 */
enum sync_step {
	SYNC_READY = 1,
	SYNC_DONE = 2
};
int sock_sync_step(int sock, enum sync_step step, int status, int64_t deadline);

/*
 * Look, without waiting or taking anything, whether the peer has failed on its
 * way to @step or is gone. 0: no sign of it; -EREMOTEIO, -ECONNRESET: reported.
 */
int sock_check_peer(int sock, enum sync_step step);

/* What this side's resources look like to a peer. */
struct cm_con_data_t cm_con_data_of(const struct rdma_resources *res);

/* Host byte order to wire byte order and back (the same swap). */
struct cm_con_data_t cm_con_data_to_wire(struct cm_con_data_t data);
struct cm_con_data_t cm_con_data_from_wire(struct cm_con_data_t data);

/*
 * Exchange hello (magic, version, length) and cm_con_data_t; fills
 * res->remote. -EPROTO: the peer speaks something else or its data cannot be.
 */
int exchange_cm_con_data(struct rdma_resources *res, int sock,
			 int64_t deadline);

/*
 * From INIT to connected: exchange, RTR, RTS, and SYNC_READY. Post receives
 * before calling: when it returns 0 the peer may send.
 */
int connect_qp(struct rdma_resources *res, int sock, int64_t deadline);

/* ---- stage 5: transfer.c ------------------------------------------------ */

/* wr_id of the receive into, or the send from, a slot. */
#define WR_ID_RECV(slot)  (UINT64_C(0x7265637600000000) | (slot)) /* "recv" */
#define WR_ID_SEND(slot)  (UINT64_C(0x73656e6400000000) | (slot)) /* "send" */
#define WR_ID_READ(slot)  (UINT64_C(0x7265616400000000) | (slot)) /* "read" */
#define WR_ID_WRITE(slot) (UINT64_C(0x7772697400000000) | (slot)) /* "writ" */
#define WR_ID_SLOT(wr_id) ((uint32_t)(wr_id))

/* Give receive slot @slot to the QP. The slot is the QP's until it completes. */
int post_receive(struct rdma_resources *res, uint32_t slot);

/*
 * Send @length bytes (at most msg_size) of send slot @slot, with a completion
 * if @signaled. The slot is the QP's until this or a later send completes.
 */
int post_send(struct rdma_resources *res, uint32_t slot, uint32_t length,
	      bool signaled);

/*
 * RDMA READ: bring @into->length bytes at @addr of the peer, whose key is @rkey,
 * into @into, any memory of a local MR. Always with a completion, WR_ID_READ.
 * Waits for ever if max_rd_atomic is 0.
 */
int post_read(struct rdma_resources *res, uint32_t slot, struct ibv_sge *into,
	      uint64_t addr, uint32_t rkey);

/* RDMA WRITE: put @length bytes of send slot @slot to @addr of the peer. */
int post_write(struct rdma_resources *res, uint32_t slot, uint32_t length,
	       uint64_t addr, uint32_t rkey, bool signaled);

/*
 * A completion if there is one now, checked as next_completion() does. Returns
 * 1, 0 (none) or a negative errno. For those who have more to do than to wait.
 */
int try_completion(struct rdma_resources *res, struct ibv_wc *wc);

/*
 * The next completion, good and with a wr_id of ours, before @timeout_ms have
 * passed without one. Returns 0, -ETIMEDOUT, -EINTR, or -EIO for a bad
 * completion (explained once; later ones are only flushes).
 */
int next_completion(struct rdma_resources *res, struct ibv_wc *wc,
		    int timeout_ms);

/*
 * Wait for the completion of @wr_id; status, opcode and wr_id of what comes are
 * all checked. One completion of the QP's other queue may come first (send and
 * receive queue are not ordered against each other): it is kept for the next
 * call. @wc may be NULL.
 */
int poll_completion(struct rdma_resources *res, uint64_t wr_id,
		    struct ibv_wc *wc, int timeout_ms);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * handshake.h - the three messages of stage 4, and what of them cannot be. On the
 * wire all of them are packed and big-endian.
 */
#ifndef BASE_HANDSHAKE_H
#define BASE_HANDSHAKE_H

#include <stdint.h>

#define HELLO_MAGIC   0x52434d45u /* "RCME" */
#define HELLO_VERSION 1
#define SYNC_MAGIC    0x53594e43u /* "SYNC" */
#define CM_EXTRA_SIZE 16	  /* bytes of private data for the caller */

struct hello {
	uint32_t magic;
	uint16_t version;
	uint16_t length; /* of the cm_con_data_t that follows, bytes */
} __attribute__((packed));

/*
 * Sent over TCP, once in each direction: all that the peer must know to bring
 * its QP to RTR and to reach this side's memory. In memory all integers are in
 * host byte order (cm_con_data_to_wire()).
 */
struct cm_con_data_t {
	uint32_t qp_num;    /* 24 bits */
	uint16_t lid;	    /* 0 on RoCE: there is no subnet manager */
	uint8_t gid[16];    /* as it stands in the GRH: an IPv6 address */
	uint32_t psn;	    /* 24 bits: the PSN of my first packet */
	uint8_t active_mtu; /* enum ibv_mtu, 1 ... 5 */
	uint64_t addr;	    /* my buffer, for RDMA READ and WRITE */
	uint32_t rkey;	    /* its key */
	uint32_t size;	    /* bytes of a message there at most: msg_size */
} __attribute__((packed));

/* Where both sides meet. */
enum sync_step {
	SYNC_READY = 1, /* my QP is in RTS, my receives are posted */
	SYNC_DONE = 2	/* I am done with the connection */
};

struct sync_msg {
	uint32_t magic;
	uint32_t step;
	uint32_t status; /* 0 or a positive errno */
} __attribute__((packed));

/*
 * Stage 11: what librdmacm does not tell by itself, in the private data of REQ (56 bytes
 * at most) and REP. All of it is as on the wire.
 */
struct private_data {
	struct hello hello;
	uint64_t addr;
	uint32_t rkey;
	uint32_t size;
	char extra[CM_EXTRA_SIZE];
} __attribute__((packed));

/* @status: 0 or a negative errno. */
struct sync_msg sync_msg_of(enum sync_step step, int status);
struct private_data private_data_of(struct cm_con_data_t mine,
				    const char extra[CM_EXTRA_SIZE]);

/* Take what came as private data. -EPROTO: it is not ours (reported). */
int take_private_data(const void *data, struct cm_con_data_t *peers,
		      char extra[CM_EXTRA_SIZE]);

/* 0, or -EPROTO (reported, with both sides' values). @peers as on the wire. */
int check_hello(const struct hello *peers);

/* The same of what cannot be; @peers in host byte order. */
int check_cm_con_data(const struct cm_con_data_t *peers);

/* @peers as on the wire. -EPROTO: the peer is elsewhere; -EREMOTEIO: it failed. */
int check_sync(const struct sync_msg *peers, enum sync_step step);

/*
 * Look, without waiting or taking anything, whether the peer has failed on its
 * way to @step or is gone. 0: no sign of it; -EREMOTEIO, -ECONNRESET: reported.
 */
int sock_check_peer(int sock, enum sync_step step);

/* Both sides next to each other, as facts. */
void show_both_sides(struct cm_con_data_t mine, struct cm_con_data_t peers);

#endif

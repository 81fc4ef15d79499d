/* SPDX-License-Identifier: MIT */
/*
 * channel.h - tagged messages over one RC connection: the matcher of
 * match.h on top of stage 5.
 *
 *	EAGER       up to eager_max bytes: header and payload in one SEND, into a
 *	            ring of posted receives, copied from there
 *	RENDEZVOUS  above: an RTS says where the message lies; the receiver, once
 *	            a receive has matched it, READs it into its buffer and sends
 *	            a FIN
 *
 * Flow control: a sender has TAG_DEPTH credits, one for each message that the
 * peer has room for, so a SEND never meets an empty receive queue (RNR). They
 * come back in the header of whatever the peer sends, or, if it sends nothing,
 * by an RDMA WRITE of one byte.
 *
 * A message that no receive waits for is copied to the heap, up to the limits;
 * beyond them it stays in the ring, and once the ring is full of such messages,
 * the sender has no credit left and waits. Nothing is lost, and memory is bounded.
 *
 * In the order of use: tag_channel_config(), init_rdma_resources(),
 * modify_qp_to_init(), tag_channel_open(), connect_qp(), tag_channel_agree(),
 * then send and receive, tag_channel_close(), destroy_rdma_resources().
 *
 * Completions are polled for (rdma_config.events must be false). Requests are
 * the caller's memory and the channel's until their status is no longer
 * -EINPROGRESS. Functions that return int return 0 or a negative errno and have
 * reported the failure; once one has failed, all others return the same and
 * every request has that status. One thread per channel.
 */
#ifndef TAG_CHANNEL_H
#define TAG_CHANNEL_H

#include "match.h"
#include "rdma_common.h"

#define TAG_EAGER_MAX  8192 /* bytes, by default */
#define TAG_DEPTH      64   /* messages that a sender may be ahead */
#define TAG_RENDEZVOUS 16   /* RTS without FIN, in each direction */
#define TAG_FRESH      16   /* receives that may wait to be posted again */
#define TAG_RING       (TAG_DEPTH + TAG_RENDEZVOUS + TAG_FRESH)

/* All 0 will do. */
struct tag_limits {
	uint32_t eager_max;	 /* bytes of payload, 0: TAG_EAGER_MAX */
	uint32_t max_unexpected; /* messages on the heap, 0: 1024 */
	uint64_t max_bytes;	 /* and their bytes, 0: 16 MiB */
};

TAILQ_HEAD(tag_queue, tag_request);

/* A send or a receive. The caller reads the first three members. */
struct tag_request {
	int status;	 /* -EINPROGRESS, then 0 or a negative errno */
	uint64_t tag;	 /* the message's */
	uint64_t length; /* the message's, bytes, even if it was truncated */
	/* the channel's own */
	struct tag_recv recv;
	TAILQ_ENTRY(tag_request) node; /* in one of the channel's queues */
	char *buf;
	struct ibv_mr *mr;  /* rendezvous: of buf */
	uint64_t asked;	    /* bytes that READs were posted for */
	uint64_t fetched;   /* bytes that READs have brought */
	uint64_t peer_addr; /* where the message lies at the peer */
	uint32_t peer_rkey;
	uint16_t id; /* its sender's name of this rendezvous */
	int outcome; /* what status becomes when the FIN is posted */
};

/* A message that came before its receive. */
struct tag_unexpected {
	struct tag_message message;
	const char *data;   /* eager: the payload */
	uint64_t peer_addr; /* rendezvous */
	uint32_t peer_rkey;
	uint16_t id;
	bool rendezvous;
	bool in_ring;  /* data is still in the receive slot */
	uint32_t slot; /* in_ring */
};

/* What has happened, for those who show it. */
struct tag_counts {
	uint64_t eager_sent, rendezvous_sent;
	uint64_t eager_received, rendezvous_received;
	uint64_t unexpected;	 /* messages nobody waited for */
	uint64_t left_in_ring;	 /* those of them over the limits */
	uint64_t credit_writes;	 /* credits that went back by RDMA WRITE */
	uint64_t reads;		 /* RDMA READs posted */
	uint64_t out_of_credits; /* sends that had to wait */
};

/* What a channel tells its peer; on the wire packed and big-endian. */
struct tag_plan {
	uint32_t magic;
	uint16_t version;
	uint16_t depth;
	uint16_t rendezvous;
	uint32_t eager_max;
	uint64_t credit_addr; /* where my credits are to be written: one byte */
	uint32_t credit_rkey;
} __attribute__((packed));

/* One side. Zero it before use. */
struct tag_channel {
	struct rdma_resources *res;
	struct tag_match match; /* both queues, to be looked at */
	struct tag_counts counts;
	int sock;   /* the TCP connection to the peer, -1: none */
	int failed; /* 0, or why everything fails now */
	uint32_t eager_max;
	uint32_t max_unexpected;
	struct tag_plan peer;
	/* the send queue */
	uint32_t posted;   /* requests given to it */
	uint32_t done;	   /* requests known to be complete */
	uint32_t unmarked; /* since the last signaled one */
	uint8_t sent;	   /* messages that took a credit, modulo 256 */
	uint8_t returned;  /* those of them that the peer has done with */
	struct tag_queue to_send; /* requests without credit, slot or id */
	struct tag_request *rendezvous[TAG_RENDEZVOUS];
	uint16_t next_id;
	struct ibv_mr *kept; /* of the last message that the peer has read */
	/* the receive queue */
	uint8_t consumed;	   /* messages done with, modulo 256 */
	uint8_t told;		   /* as far as the peer knows */
	uint8_t written;	   /* as far as the byte written there says */
	uint32_t fresh[TAG_FRESH]; /* slots to be posted again */
	uint32_t n_fresh;
	uint32_t n_in_ring; /* unexpected messages that stay in the ring */
	struct tag_unexpected in_ring[TAG_RING];
	struct tag_queue to_read;   /* requests whose message is fetched */
	struct tag_queue to_finish; /* requests that owe the peer a FIN */
	uint32_t reads;		    /* in flight */
};

/* Set msg_size, the slots and max_inline of @config as a channel needs them. */
void tag_channel_config(struct rdma_config *config,
			const struct tag_limits *limits);

/*
 * Make @channel on @res, whose QP is in INIT, and post its receives. @limits
 * as given to tag_channel_config(). Undone by tag_channel_close().
 */
int tag_channel_open(struct tag_channel *channel, struct rdma_resources *res,
		     const struct tag_limits *limits);

/*
 * After connect_qp(): tell the peer about this side over @sock and learn about
 * it. @sock is watched from then on: a peer that dies ends every wait. -EPROTO
 * if the two do not go together.
 */
int tag_channel_agree(struct tag_channel *channel, int sock, int64_t deadline);

/* The halves of tag_channel_agree(), for two channels in one process. */
struct tag_plan tag_channel_plan(const struct tag_channel *channel);
int tag_channel_meet(struct tag_channel *channel, const struct tag_plan *peers);

/*
 * Give back what the channel holds. Requests that are not done end with
 * -ECANCELED, and the QP goes to ERR if there are any. Does not wait: what was
 * sent last is safe only after tag_flush(). Nothing to do if it is not open.
 */
int tag_channel_close(struct tag_channel *channel);

/*
 * Send @length bytes (at most MAX_MSG_SIZE) of @buf with @tag. @buf may be used
 * again when @request is done: at once if the message was sent eagerly, after
 * the peer has fetched it if not. What was fetched stays registered until the
 * next such message is over, or the channel is closed.
 */
int tag_send(struct tag_channel *channel, struct tag_request *request,
	     const void *buf, uint64_t length, uint64_t tag);

/*
 * Receive a message that fits @tag and @mask into @size bytes of @buf. One that
 * is longer ends @request with -EMSGSIZE (reported by nobody) and is used up.
 */
int tag_recv(struct tag_channel *channel, struct tag_request *request,
	     void *buf, uint64_t size, uint64_t tag, uint64_t mask);

/* End a receive with -ECANCELED. False if a message has matched it already. */
bool tag_cancel(struct tag_channel *channel, struct tag_request *request);

/*
 * Is there an unexpected message that fits @tag and @mask? 1 fills @message with
 * a copy whose node means nothing; 0: not now.
 */
int tag_probe(struct tag_channel *channel, uint64_t tag, uint64_t mask,
	      struct tag_message *message);

/*
 * Do what can be done now: take a completion, match, send what waited. Never
 * waits. Returns 1 (something happened), 0 (nothing did) or a negative errno.
 */
int tag_progress(struct tag_channel *channel);

/*
 * Make progress until @request is done, and return its status. It is done in any
 * case: with -ETIMEDOUT (reported, with what it waits for), -EINTR or
 * -ECONNRESET if it could not be. A receive that nothing has matched and a send
 * that has not begun are withdrawn then, and the channel goes on; what the peer
 * already knows of cannot be withdrawn, so the channel fails.
 */
int tag_wait(struct tag_channel *channel, struct tag_request *request,
	     int timeout_ms);

/* Wait until the peer's device has acknowledged all that was sent. */
int tag_flush(struct tag_channel *channel, int timeout_ms);

#endif

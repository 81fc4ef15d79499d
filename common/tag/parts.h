/* SPDX-License-Identifier: MIT */
/*
 * parts.h - what the files of the tag channel share: the bytes on the wire,
 * and the functions of link.c, credit.c, rendezvous.c, eager.c and stall.c
 * that those above them use. Not for others.
 */
#ifndef TAG_PARTS_H
#define TAG_PARTS_H

#include "channel.h"

#define TAG_PLAN_MAGIC	 0x54414743u /* "TAGC" */
#define TAG_PLAN_VERSION 1

enum tag_protocol {
	TAG_EAGER = 1, /* header, then length bytes */
	TAG_RTS = 2,   /* struct tag_rts: I have length bytes for you */
	TAG_FIN = 3,   /* header: I have fetched them, or want no more */
};

/* In front of every message. Little-endian, so that x86 and ARM swap nothing. */
struct tag_header {
	uint64_t tag;
	uint32_t length;  /* of the message, bytes */
	uint16_t id;	  /* RTS, FIN: which rendezvous of its sender */
	uint8_t protocol; /* enum tag_protocol */
	uint8_t consumed; /* messages of yours that I am done with, modulo 256 */
} __attribute__((packed));

struct tag_rts {
	struct tag_header head;
	uint64_t addr; /* the message, to be read with RDMA READ */
	uint32_t rkey;
} __attribute__((packed));

/* ---- link.c --------------------------------------------------------- */

/* A slot of the send queue is free. */
bool tag_has_slot(const struct tag_channel *ch);

/* The slot that the next request uses. */
uint32_t tag_slot(const struct tag_channel *ch);

/* Count a request that is posted now; true if it must be signaled. */
bool tag_mark(struct tag_channel *ch, bool signaled);

/* The request in slot @last is complete, and all before it. */
void tag_reclaim_slots(struct tag_channel *ch, uint32_t last);

/*
 * SEND what stands in the next slot, @length bytes with the header, which is
 * completed here from @tag, @bytes, @id and @protocol. A slot must be free.
 */
int tag_post(struct tag_channel *ch, uint32_t length, uint64_t tag,
	     uint64_t bytes, uint16_t id, enum tag_protocol protocol);

/*
 * Receive slot @slot has been used up; @took_credit: by a message. It is posted
 * again by tag_repost(), at the latest when TAG_FRESH of them wait for it.
 */
int tag_free_slot(struct tag_channel *ch, uint32_t slot, bool took_credit);
int tag_repost(struct tag_channel *ch);

/* Deregister @*mr, if there is one. */
int tag_release(struct ibv_mr **mr);

bool tag_queue_holds(const struct tag_queue *queue,
		     const struct tag_request *request);

/* All requests end with @status, and the QP goes to ERR. */
void tag_end_requests(struct tag_channel *ch, int status);

/* Everything fails from now on, with @rc. Returns what it fails with. */
int tag_channel_fail(struct tag_channel *ch, int rc);

/* ---- credit.c ------------------------------------------------------ */

/* A credit is left for a message to the peer. */
bool tag_has_credit(struct tag_channel *ch);

/* The peer says that it is done with @consumed messages, modulo 256. */
void tag_take_credits(struct tag_channel *ch, uint8_t consumed);

/* It is time to tell the peer how far this side is, if no message will. */
bool tag_owes_credits(const struct tag_channel *ch);

/* Tell it by RDMA WRITE. A slot must be free. */
int tag_write_credits(struct tag_channel *ch, bool signaled);

/* It has to be written before anything else is sent. */
bool tag_credits_are_old(const struct tag_channel *ch);

/* ---- rendezvous.c --------------------------------------------------- */

/* Post the RTS of @request. 1: not now, there is no id free. */
int tag_rendezvous_send(struct tag_channel *ch, struct tag_request *request);

/* Fetch the message of @rts into @request, which has matched it. */
void tag_rendezvous_start(struct tag_channel *ch, struct tag_request *request,
			  const struct tag_unexpected *rts);

/* The oldest READ is complete. */
int tag_rendezvous_read_done(struct tag_channel *ch);

/* A FIN came. -EPROTO (not reported): of no rendezvous of ours. */
int tag_rendezvous_fin(struct tag_channel *ch, const struct tag_header *fin);

/* Post READs and FINs for which there is room now. */
int tag_rendezvous_push(struct tag_channel *ch);

/* ---- stall.c ------------------------------------------------------ */

/* Report that @request is still waiting after @timeout_ms, and for what. */
void tag_report_stall(struct tag_channel *ch, const struct tag_request *request,
		      int timeout_ms);

#endif

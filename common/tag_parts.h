/* SPDX-License-Identifier: MIT */
/*
 * tag_parts.h - what the files of the tag channel share: the bytes on the wire
 * and the functions between tag_channel.c, tag_flow.c, tag_rendezvous.c and
 * tag_silence.c. Not for others.
 */
#ifndef COMMON_TAG_PARTS_H
#define COMMON_TAG_PARTS_H

#include "tag_channel.h"

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

/* A slot of the send queue is free. */
bool tag_has_slot(const struct tag_channel *ch);

/* The slot that the next request uses, and to mark that it was posted. */
uint32_t tag_slot(const struct tag_channel *ch);
bool tag_mark(struct tag_channel *ch, bool signaled);

/*
 * SEND what stands in the next slot, @length bytes with the header, which is
 * completed here from @tag, @bytes, @id and @protocol. A slot must be free.
 */
int tag_post(struct tag_channel *ch, uint32_t length, uint64_t tag,
	     uint64_t bytes, uint16_t id, enum tag_protocol protocol);

/* A credit is left for a message to the peer. */
bool tag_has_credit(struct tag_channel *ch);

/* Tell the peer by RDMA WRITE how far this side is. A slot must be free. */
int tag_write_credits(struct tag_channel *ch, bool signaled);

/* The request is over. */
void tag_complete(struct tag_request *request, int status);

/* Put the bytes of a matched eager message into @request and complete it. */
void tag_deliver(struct tag_request *request, uint64_t tag, const void *data,
		 uint64_t length);

/* Fetch the message of @rts into @request, which has matched it. */
int tag_rendezvous_start(struct tag_channel *ch, struct tag_request *request,
			 const struct tag_unexpected *rts);

/* Post the RTS of @request. 1: not now, there is no id free. */
int tag_rendezvous_send(struct tag_channel *ch, struct tag_request *request);

/* A FIN came. -EPROTO (not reported): of no rendezvous of ours. */
int tag_rendezvous_fin(struct tag_channel *ch, const struct tag_header *fin);
int tag_rendezvous_read_done(struct tag_channel *ch);

/* Deregister what @request has registered, if anything. */
int tag_release_buffer(struct tag_request *request);

/* Post READs and FINs for which there is room now. */
int tag_rendezvous_push(struct tag_channel *ch);

/* Send what waited, as far as credits and slots go. */
int tag_push_sends(struct tag_channel *ch);

/* Everything fails from now on, with @rc. Returns @rc. */
int tag_channel_fail(struct tag_channel *ch, int rc);

/* Report that @request is still waiting after @timeout_ms, and for what. */
void tag_report_silence(struct tag_channel *ch,
			const struct tag_request *request, int timeout_ms);

#endif

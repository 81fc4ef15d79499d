/* SPDX-License-Identifier: MIT */
/*
 * ring.h - messages that a producer WRITEs into a ring in the consumer's memory, and
 * how the consumer, who only looks at that memory, knows that one has come.
 *
 * Message n (from 0) lies in place n % places. The consumer returns credit by a WRITE
 * of its own: how many it has taken. So no receive is ever posted.
 */
#ifndef REMOTE_RING_H
#define REMOTE_RING_H

#include <stdbool.h>
#include <stdint.h>

#define RING_MAGIC	  0x52494e47u /* "RING" */
#define RING_PLACES_MOST  65536u
#define RING_MESSAGE_MOST 4096u /* bytes of data */

/*
 * What the producer is told over TCP after SYNC_READY; big-endian. In the ring, all is
 * little-endian.
 */
struct ring_plan {
	uint32_t magic;
	uint32_t places;
	uint32_t
		place_bytes; /* a multiple of 64, a ring_message and its data */
} __attribute__((packed));

struct ring_message {
	uint32_t crc; /* CRC-32C of all that follows */
	uint32_t length;
	uint64_t number; /* n + 1: a ring that is all zero holds none */
	char data[];
};

/* The consumer's WRITE: twice, so that half of it is not taken for all. */
struct ring_credit {
	uint64_t taken;	    /* messages */
	uint64_t not_taken; /* ~taken */
};

/* Bytes of a place for @data bytes. */
uint32_t ring_place_bytes(uint32_t data);

/* Fill in the rest of @message, whose data is there. */
void ring_seal(struct ring_message *message, uint64_t n, uint32_t length);

/*
 * If message @n has come whole to @place, copy it to @copy (both @place_bytes) in host
 * byte order. False: not yet, or not all of it.
 */
bool ring_take(const void *place, uint32_t place_bytes, uint64_t n,
	       struct ring_message *copy);

/* Credit for @taken messages; and take what lies at @place: false if it is torn. */
struct ring_credit ring_credit_of(uint64_t taken);
bool ring_credit_take(const void *place, uint64_t *taken);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * catalog.h - what a storage node tells an engine about its needles, over
 * stage 4's TCP connection: where each one lies in the node's memory and which
 * key opens it. After that the node takes no part: all reads are one-sided.
 *
 * On the wire, right after connect_qp(), from the node to the engine, packed,
 * all integers big-endian:
 *
 *	magic u32 (0x4e44434c "NDCL"), version u16 (1), entry_size u16 (40),
 *	count u64
 *	count entries: volume_id u32, needle_id u64, cookie u32,
 *	               remote_addr u64, rkey u32, size u64, crc32c u32
 *	crc32c u32: of all entries' bytes
 *
 * Entries are strictly ascending by (volume_id, needle_id): none can be there
 * twice, and one is found by binary search. Then the connection is silent until
 * one side closes it.
 *
 * Every function that returns int returns 0 or a negative errno and has reported
 * the failure.
 */
#ifndef NEEDLE_CATALOG_H
#define NEEDLE_CATALOG_H

#include <stddef.h>
#include <stdint.h>

#define NEEDLE_CATALOG_MOST (1u << 24) /* entries */

/* One needle as an engine sees it, in host byte order; packed as on the wire. */
struct needle_entry {
	uint32_t volume_id;
	uint64_t needle_id;
	uint32_t cookie;      /* a reader must know it; the engine checks */
	uint64_t remote_addr; /* of the first byte, in the node's memory */
	uint32_t rkey;
	uint64_t size;	 /* bytes */
	uint32_t crc32c; /* of all of them */
} __attribute__((packed));

/* Zero it before use. */
struct needle_catalog {
	struct needle_entry *entries; /* ascending by volume, needle */
	size_t count;
};

/* Put @entry behind the others. -ENOMEM, -E2BIG (NEEDLE_CATALOG_MOST). */
int needle_catalog_add(struct needle_catalog *catalog,
		       const struct needle_entry *entry);

void needle_catalog_free(struct needle_catalog *catalog);

/* The entry, or NULL (not reported). */
const struct needle_entry *
needle_catalog_find(const struct needle_catalog *catalog, uint32_t volume_id,
		    uint64_t needle_id);

/* Send all entries, which must be in order, before @deadline. */
int needle_catalog_send(const struct needle_catalog *catalog, int sock,
			int64_t deadline);

/*
 * Receive a catalogue before @deadline into @catalog, to be freed. The peer is
 * not trusted: memory grows with what has come, not with what it announced.
 * -EPROTO: not a catalogue of this version, out of order, a needle twice, an
 * address range that wraps around, a wrong checksum.
 */
int needle_catalog_receive(struct needle_catalog *catalog, int sock,
			   int64_t deadline);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * peer_info.h - what UCX-Py's two sides tell each other before the first
 * message: 24 bytes on a UCP stream, and the tags that they carry.
 *
 * UCX-Py: ucp/core.py (exchange_peer_info), ucp/utils.py (hash64bits).
 */
#ifndef UCX_PEER_INFO_H
#define UCX_PEER_INFO_H

#include <stdint.h>

/*
 * Sent once in each direction, three unsigned 64-bit integers in the byte order
 * of the machine (Python's struct "QQQ"): both sides must have the same.
 */
struct ucx_peer_info {
	uint64_t msg_tag;  /* the sender receives messages with this tag, */
	uint64_t ctrl_tag; /* and control messages with this one */
	uint64_t checksum; /* hash64bits(msg_tag, ctrl_tag) */
};

/*
 * The first 64 bits of the SHA-1 of @text: the text that Python's repr() makes
 * of hash64bits' arguments. -EIO (reported): no SHA-1 in this libcrypto.
 */
int ucx_hash64bits(const char *text, uint64_t *hash);

/* checksum of two tags: hash64bits(msg_tag, ctrl_tag). */
int ucx_checksum(uint64_t msg_tag, uint64_t ctrl_tag, uint64_t *checksum);

/*
 * Two new tags, as UCX-Py makes them: hash64bits("msg_tag", 16 random bytes,
 * endpoint handle), likewise "ctrl_tag"; and the checksum of both.
 */
int ucx_generate_tags(const void *handle, struct ucx_peer_info *info);

/*
 * Is the peer's @info what a peer would send? -EPROTO (reported, @peer names it)
 * if its checksum is wrong.
 */
int ucx_check_peer_info(const struct ucx_peer_info *info, const char *peer);

#endif

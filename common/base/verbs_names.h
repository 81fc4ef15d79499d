/* SPDX-License-Identifier: MIT */
/*
 * verbs_names.h - verbs' numbers as a person reads them. The names of states,
 * types and attributes are in explain/qp_table.h.
 */
#ifndef BASE_VERBS_NAMES_H
#define BASE_VERBS_NAMES_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes of an enum ibv_mtu value, 0 if it is none. */
unsigned int mtu_bytes(enum ibv_mtu mtu);

/* @gid as "::ffff:10.99.0.1"; @out: GID_TEXT_SIZE bytes. Returns @out. */
#define GID_TEXT_SIZE 46
const char *gid_text(char *out, const uint8_t gid[16]);

/* "SEND", "RDMA_WRITE_WITH_IMM", ... of an enum ibv_wr_opcode, or "UNKNOWN". */
const char *wr_opcode_name(unsigned int opcode);

/* "RETRY_EXC_ERR", ... of an enum ibv_wc_status, or "UNKNOWN". */
const char *wc_status_name(unsigned int status);

/* "LOCAL_WRITE|REMOTE_READ" or "0" of enum ibv_access_flags. Returns @out. */
#define ACCESS_TEXT_SIZE 160
const char *access_text(char *out, size_t size, unsigned int flags);

/* "RoCE v2", ... for the gid_type of an ibv_gid_entry. */
const char *gid_type_name(uint32_t gid_type);

/* Does @opcode (enum ibv_wr_opcode) change 8 bytes of the peer's at once? */
static inline bool is_atomic(unsigned int opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

#endif

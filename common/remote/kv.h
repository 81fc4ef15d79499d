/* SPDX-License-Identifier: MIT */
/*
 * kv.h - a key-value store in the cells of a remote memory, one key each; cell 0 is
 * not used. The server's program knows nothing of it.
 *
 *	cell:  lock word  ...  half 0  half 1
 *
 * LOCK_COUNT is the version: how often the key was put; 0: never, the cell is
 * empty. Version v lies in half v & 1, so that who puts v + 1 leaves v whole until
 * the word is freed at v + 1. A key stays in its cell for ever.
 *
 * Every function that returns int returns 0 or a negative errno, and has reported
 * the failure when it is not 0, but for -ENOENT.
 */
#ifndef REMOTE_KV_H
#define REMOTE_KV_H

#include "memory.h"

#define KV_KEY_MOST 31 /* bytes, without the NUL */

/* Zero it before use, but for memory, which is open. */
struct kv {
	struct remote_memory *memory;
	uint64_t torn;	    /* READs that met a WRITE: a wrong checksum */
	uint64_t overtaken; /* READs that came too late: another version */
};

/* Bytes of the longest value. */
uint32_t kv_value_most(const struct kv *kv);

/*
 * The value of @key into @value (kv_value_most() bytes), its bytes into @length and its
 * version into @version. -ENOENT: there is none.
 */
int kv_get(struct kv *kv, const char *key, void *value, uint32_t *length,
	   uint32_t *version);

/* Put @length bytes. -EMSGSIZE: too many; -ENOSPC: no cell is left for a new key. */
int kv_put(struct kv *kv, const char *key, const void *value, uint32_t length,
	   uint32_t *version);

/* Count the keys, and all puts that there have been, by looking at each cell. */
int kv_count(struct kv *kv, uint64_t *keys, uint64_t *puts);

#endif

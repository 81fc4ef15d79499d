/* SPDX-License-Identifier: MIT */
/*
 * needle_memory.h - all volumes of a store in memory that engines may read: the
 * mappings, their memory regions, and the catalogue that tells where each needle
 * lies.
 *
 * Every function that returns int returns 0 or a negative errno and has reported
 * the failure.
 */
#ifndef SERVER_NEEDLE_MEMORY_H
#define SERVER_NEEDLE_MEMORY_H

#include "needle/catalog.h"
#include "needle/store.h"
#include "rdma_common.h"

/* Zero it before use. */
struct needle_memory {
	struct needle_volume *volumes;
	size_t n_volumes;
	struct ibv_mr **mrs; /* each is a run of whole records */
	size_t n_mrs;
	struct needle_catalog catalog;
};

/* Map all volumes of folder @dir; if one of them is damaged, none. */
int needle_memory_open(struct needle_memory *memory, const char *dir);

/*
 * Register all records in @pd, for REMOTE_READ only, in MRs of at most @most
 * bytes each, and fill the catalogue. -EFBIG: a needle is larger than that.
 */
int needle_memory_register(struct needle_memory *memory, struct ibv_pd *pd,
			   uint64_t most);

/* Undo both, whatever has been done. */
int needle_memory_close(struct needle_memory *memory);

#endif

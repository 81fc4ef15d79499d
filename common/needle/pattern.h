/* SPDX-License-Identifier: MIT */
/*
 * pattern.h - needles whose size, cookie and bytes follow from a seed, so
 * that a test or a benchmark can check any range of them without a copy.
 */
#ifndef NEEDLE_PATTERN_H
#define NEEDLE_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* How build/needle make fills a store. */
struct needle_pattern {
	uint64_t seed;
	uint64_t min, max; /* bytes of one needle, min <= max */
};

/* Size (min ... max) and cookie of a needle. */
uint64_t needle_pattern_size(const struct needle_pattern *pattern,
			     uint32_t volume_id, uint64_t needle_id);
uint32_t needle_pattern_cookie(const struct needle_pattern *pattern,
			       uint32_t volume_id, uint64_t needle_id);

/* Bytes @offset ... @offset + @size - 1 of the needle, to @out. */
void needle_pattern_bytes(const struct needle_pattern *pattern,
			  uint32_t volume_id, uint64_t needle_id,
			  uint64_t offset, void *out, size_t size);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * pattern.h - contents that tell a byte in the wrong place from the right one.
 */
#ifndef BASE_PATTERN_H
#define BASE_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Fill @size bytes with the pattern of @seed. */
void pattern_fill(void *data, size_t size, uint64_t seed);

/* Where the first byte is that is not the pattern's; @size if all are. */
size_t pattern_first_wrong(const void *data, size_t size, uint64_t seed);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * crc32c.h - CRC-32C (Castagnoli, RFC 3720 appendix B.4): the checksum of the
 * needles and of all that the needle store writes.
 */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * The CRC-32C of @size bytes that follow what @crc was computed of; @crc 0
 * begins. The nine bytes "123456789" give 0xe3069283.
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

#endif

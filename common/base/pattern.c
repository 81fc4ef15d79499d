// SPDX-License-Identifier: MIT
/*
 * pattern.c —— 发出去的内容，收到后能逐字节核对
 *
 * 第 k 个 8 字节是 (种子 + k) 乘一个大奇数：每条消息、每个位置都不同，于是错位、
 * 串号、漏写都看得出来。全零或“AAAA…”的消息整段错位也看不出来。
 */
#include "pattern.h"

#include <endian.h>
#include <string.h>

static uint64_t word(uint64_t seed, uint64_t k)
{
	return htole64((seed + k) * UINT64_C(0x9e3779b97f4a7c15));
}

void pattern_fill(void *data, size_t size, uint64_t seed)
{
	unsigned char *at = data;
	uint64_t k = 0, w;

	for (; size >= sizeof(w); size -= sizeof(w), at += sizeof(w)) {
		w = word(seed, k++);
		memcpy(at, &w, sizeof(w));
	}
	w = word(seed, k);
	memcpy(at, &w, size);
}

size_t pattern_first_wrong(const void *data, size_t size, uint64_t seed)
{
	const unsigned char *bytes = data;
	unsigned char expected[sizeof(uint64_t)];
	size_t at = 0;

	for (uint64_t k = 0; at < size; k++, at += sizeof(expected)) {
		size_t n = size - at < sizeof(expected) ? size - at
							: sizeof(expected);
		uint64_t w = word(seed, k);

		memcpy(expected, &w, sizeof(w));
		if (!memcmp(bytes + at, expected, n))
			continue;
		for (size_t i = 0; i < n; i++)
			if (bytes[at + i] != expected[i])
				return at + i;
	}
	return size;
}

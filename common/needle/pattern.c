// SPDX-License-Identifier: MIT
/*
 * pattern.c —— 由种子算出来的 needle：任何一段都能单独算，不必留一份原件来比对
 *
 * 如果数据是“全零”或“重复的 0,1,2…”，读错了偏移、串了 needle 都看不出来。所以每个
 * needle 有自己的一串 pattern（base/pattern.h），由 (seed, volume, needle) 混合出起点。
 */
#include "pattern.h"

#include "base/pattern.h"

#include <string.h>

enum {
	USE_SIZE = 1,
	USE_COOKIE,
	USE_BYTES
};

/* splitmix64 的最后一步：相邻的输入给出毫不相关的输出。*/
static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t key_of(const struct needle_pattern *pattern, uint32_t volume_id,
		       uint64_t needle_id, unsigned int use)
{
	return mix(mix(mix(pattern->seed) ^ volume_id) ^ needle_id) + use;
}

uint64_t needle_pattern_size(const struct needle_pattern *pattern,
			     uint32_t volume_id, uint64_t needle_id)
{
	uint64_t span = pattern->max - pattern->min + 1;
	uint64_t r = mix(key_of(pattern, volume_id, needle_id, USE_SIZE));

	/* span 为 0：min 到 max 是全部 2^64 个值 */
	return span ? pattern->min + r % span : r;
}

uint32_t needle_pattern_cookie(const struct needle_pattern *pattern,
			       uint32_t volume_id, uint64_t needle_id)
{
	return (uint32_t)mix(key_of(pattern, volume_id, needle_id, USE_COOKIE));
}

void needle_pattern_bytes(const struct needle_pattern *pattern,
			  uint32_t volume_id, uint64_t needle_id,
			  uint64_t offset, void *out, size_t size)
{
	/* pattern_fill 的第 k 个 8 字节只由 seed + k 决定：从中间开始也算得出来。*/
	uint64_t seed = mix(key_of(pattern, volume_id, needle_id, USE_BYTES)) +
			offset / 8;
	size_t skip = offset % 8;

	if (skip) {
		unsigned char word[8];
		size_t part = size < 8 - skip ? size : 8 - skip;

		pattern_fill(word, sizeof(word), seed++);
		memcpy(out, word + skip, part);
		out = (char *)out + part;
		size -= part;
	}
	pattern_fill(out, size, seed);
}

// SPDX-License-Identifier: MIT
/*
 * scan.c —— 解码之前先量一遍：这些字节恰好是一个 MessagePack 值吗
 *
 * MessagePack 里每个容器先说自己有几个元素：5 个字节 dd ff ff ff ff 就声称有 42 亿个。
 * msgpack-c 信它，当场去要 96 GiB；嵌套则受限于它内部的栈。所以先用固定大小的栈、
 * 不分配一个字节地走一遍：声称的元素个数不能多过剩下的字节数，深度与总数各有上限。
 * 通过之后，解码要的内存就与消息的长度成正比。
 */
#include "parts.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int engine_refuse(struct engine_fault *fault, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(fault->text, sizeof(fault->text), fmt, ap);
	va_end(ap);
	return -EBADMSG;
}

/* 一个值的头：头之后还有几个字节的内容，以及几个子值。*/
struct head {
	size_t bytes; /* 头本身，含长度字段 */
	uint64_t payload;
	uint64_t children;
};

/* c4 ... df：长度字段的字节数、固定的内容、长度所指的是什么。*/
static const struct shape {
	uint8_t length; /* bytes of the length field */
	uint8_t fixed;	/* bytes of payload besides */
	uint8_t per;	/* children for each unit; 0: units are bytes */
} shapes[] = {
	[0xc0] = { 0, 0, 0 }, [0xc2] = { 0, 0, 0 }, [0xc3] = { 0, 0, 0 },
	[0xc4] = { 1, 0, 0 }, [0xc5] = { 2, 0, 0 }, [0xc6] = { 4, 0, 0 },
	[0xc7] = { 1, 1, 0 }, [0xc8] = { 2, 1, 0 }, [0xc9] = { 4, 1, 0 },
	[0xca] = { 0, 4, 0 }, [0xcb] = { 0, 8, 0 }, [0xcc] = { 0, 1, 0 },
	[0xcd] = { 0, 2, 0 }, [0xce] = { 0, 4, 0 }, [0xcf] = { 0, 8, 0 },
	[0xd0] = { 0, 1, 0 }, [0xd1] = { 0, 2, 0 }, [0xd2] = { 0, 4, 0 },
	[0xd3] = { 0, 8, 0 }, [0xd4] = { 0, 2, 0 }, [0xd5] = { 0, 3, 0 },
	[0xd6] = { 0, 5, 0 }, [0xd7] = { 0, 9, 0 }, [0xd8] = { 0, 17, 0 },
	[0xd9] = { 1, 0, 0 }, [0xda] = { 2, 0, 0 }, [0xdb] = { 4, 0, 0 },
	[0xdc] = { 2, 0, 1 }, [0xdd] = { 4, 0, 1 }, [0xde] = { 2, 0, 2 },
	[0xdf] = { 4, 0, 2 },
};

static void read_long_head(const uint8_t *at, size_t left, struct head *h)
{
	const struct shape *s = &shapes[at[0]];
	uint64_t n = 0;

	h->bytes = 1u + s->length;
	if (left < h->bytes)
		return; /* 头没有到齐：check_head 会看出来 */
	for (size_t i = 0; i < s->length; i++)
		n = n << 8 | at[1 + i]; /* MessagePack 的整数是 big-endian */
	h->children = n * s->per;
	h->payload = s->fixed + (s->per ? 0 : n);
}

static void read_head(const uint8_t *at, size_t left, struct head *h)
{
	const uint8_t byte = at[0];

	*h = (struct head){ .bytes = 1 };
	if (byte <= 0x7f || byte >= 0xe0) /* fixint：一个字节就是全部 */
		return;
	if (byte <= 0x8f)
		h->children = 2 * (byte & 0xfu);
	else if (byte <= 0x9f)
		h->children = byte & 0xfu;
	else if (byte <= 0xbf)
		h->payload = byte & 0x1fu;
	else
		read_long_head(at, left, h);
}

static int check_head(const struct head *h, uint64_t values, size_t left,
		      struct engine_fault *fault)
{
	if (h->bytes > left || h->payload > left - h->bytes ||
	    h->children > left - h->bytes)
		return engine_refuse(fault, "it ends in the middle of a value");
	if (values > ENGINE_VALUES_MAX)
		return engine_refuse(fault, "it has more than %d values",
				     ENGINE_VALUES_MAX);
	return 0;
}

// region scan
int engine_scan(const char *data, size_t size, struct engine_fault *fault)
{
	uint64_t waiting[ENGINE_DEPTH_MAX + 1] = { 1 }; /* 每层还差几个值 */
	size_t depth = 0, at = 0;
	uint64_t values = 0;
	struct head h;
	int rc;

	while (depth || waiting[0]) {
		if (at == size)
			return engine_refuse(
				fault, "it ends in the middle of a value");
		if ((uint8_t)data[at] == 0xc1)
			return engine_refuse(fault,
					     "byte %zu is 0xc1, which "
					     "MessagePack never uses",
					     at);
		read_head((const uint8_t *)data + at, size - at, &h);
		rc = check_head(&h, ++values, size - at, fault);
		if (rc)
			return rc;
		at += h.bytes + h.payload;
		waiting[depth]--;
		if (h.children) {
			if (depth == ENGINE_DEPTH_MAX)
				return engine_refuse(
					fault, "it is nested deeper than %d",
					ENGINE_DEPTH_MAX);
			waiting[++depth] = h.children;
		}
		while (depth && !waiting[depth])
			depth--;
	}
	if (at < size)
		return engine_refuse(fault, "%zu bytes follow the value",
				     size - at);
	return 0;
}
// endregion scan

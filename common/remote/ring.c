// SPDX-License-Identifier: MIT
/*
 * ring.c —— ring 里的一条消息：怎样封，怎样看出它来了、来全了
 *
 * 消费者没有 completion，只有内存。一条消息什么时候算“来了”？
 *
 *	看最后一个字节    靠的是“WRITE 按地址升序落下”，IBTA 没有保证
 *	看长度            长度可能先到，内容还没到
 *	核对 crc          内容不全就对不上，不靠任何人的保证
 *
 * 再加一个序号：ring 转过一圈，同一个位置上还躺着上一圈的消息，它的 crc 也是对的。
 */
#include "ring.h"

#include "base/crc32c.h"

#include <endian.h>
#include <stddef.h>
#include <string.h>

uint32_t ring_place_bytes(uint32_t data)
{
	/* 每个位置独占整数条 cache line：两条消息不在同一条上打架。*/
	return ((uint32_t)sizeof(struct ring_message) + data + 63) / 64 * 64;
}

static uint32_t checksum(const struct ring_message *message, uint32_t length)
{
	const size_t from = offsetof(struct ring_message, length);

	return crc32c(0, &message->length, sizeof(*message) - from + length);
}

// region ring-message
void ring_seal(struct ring_message *message, uint64_t n, uint32_t length)
{
	message->length = htole32(length);
	message->number = htole64(n + 1);
	message->crc = htole32(checksum(message, length));
}

bool ring_take(const void *place, uint32_t place_bytes, uint64_t n,
	       struct ring_message *copy)
{
	const struct ring_message *there = place;
	uint32_t length;

	/* 空闲时只读这一个字。volatile：编译器不知道网卡会修改这里。*/
	if (le64toh(*(const volatile uint64_t *)&there->number) != n + 1)
		return false;
	/*
	 * 先拷贝再检查：检查的和使用的必须是同一份。如果就地检查，检查之后内容
	 * 还可能变化，可能来自恶意的生产者，也可能来自迟到的重传。
	 */
	memcpy(copy, there, sizeof(*copy));
	length = le32toh(copy->length);
	if (le64toh(copy->number) != n + 1 ||
	    length > place_bytes - sizeof(*copy))
		return false;
	memcpy(copy->data, there->data, length);
	if (le32toh(copy->crc) != checksum(copy, length))
		return false;
	copy->length = length;
	copy->number = n + 1;
	return true;
}
// endregion ring-message

struct ring_credit ring_credit_of(uint64_t taken)
{
	return (struct ring_credit){ htole64(taken), htole64(~taken) };
}

bool ring_credit_take(const void *place, uint64_t *taken)
{
	const volatile struct ring_credit *there = place;
	const uint64_t value = le64toh(there->taken);

	if (value != ~le64toh(there->not_taken))
		return false; /* 还是全零，或者只到了一半：下次再看 */
	*taken = value;
	return true;
}

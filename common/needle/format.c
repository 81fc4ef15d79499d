// SPDX-License-Identifier: MIT
/*
 * format.c —— volume 文件里的字节：怎样写，怎样读回来并检查
 *
 * 磁盘上的东西和网络上来的一样不可信：可能是别的程序的文件，可能翻转了一位，可能被人
 * 截短。所以每个字段先查 CRC、再查范围，之后才能拿去做加减法。
 *
 * 为什么不直接把 struct 写进文件？编译器的填充（padding）和 CPU 的字节序都会跟着写进
 * 去，换一台机器就读不出来。这里逐个字段写明偏移与 little-endian。
 */
#include "format.h"

#include "base/crc32c.h"
#include "base/report.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define VOLUME_MAGIC "NEEDLES\n"
#define RECORD_MAGIC 0x4c44454eu /* 文件里是 "NEDL" 四个字节 */
/* 两种头的最后 4 个字节都是自己的 CRC。*/
#define CRC_AT 28

static const char restore[] = "restore the volume from a copy";

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	/* memcpy 而不是强转指针：未对齐的访问在一些 CPU 上会陷入，在 C 里是 UB。*/
	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static void put32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static void put64(uint8_t *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof(value));
}

int needle_volume_path(const char *dir, uint32_t volume_id, char **path)
{
	if (asprintf(path, "%s/volume-%u.needles", dir, volume_id) >= 0)
		return 0;
	return fail(-ENOMEM, NULL, "no memory for the path of volume %u",
		    volume_id);
}

uint64_t needle_record_bytes(uint64_t size)
{
	return NEEDLE_RECORD_HEADER + ((size + 7) & ~UINT64_C(7));
}

/*
 * record header 的 CRC 不只覆盖自己的 28 个字节，还把“我属于哪个 volume、在文件的
 * 哪个位置”算进去。磁盘把一块数据写错了地方（misdirected write）时，内容本身完好，
 * 只有位置不对；不算进位置，它就会被当成真的。
 */
static uint32_t record_crc(const uint8_t *header, uint32_t volume_id,
			   uint64_t offset)
{
	uint8_t place[12];

	put32(place, volume_id);
	put64(place + 4, offset);
	return crc32c(crc32c(0, place, sizeof(place)), header, CRC_AT);
}

void needle_write_record_header(uint8_t out[NEEDLE_RECORD_HEADER],
				uint32_t volume_id, const struct needle *needle)
{
	put32(out, RECORD_MAGIC);
	put32(out + 4, needle->cookie);
	put64(out + 8, needle->needle_id);
	put64(out + 16, needle->size);
	put32(out + 24, needle->crc32c);
	put32(out + CRC_AT, record_crc(out, volume_id, needle->offset));
}

void needle_write_volume_header(uint8_t out[NEEDLE_VOLUME_HEADER],
				uint32_t volume_id, uint64_t committed)
{
	memcpy(out, VOLUME_MAGIC, 8);
	put32(out + 8, NEEDLE_VERSION);
	put32(out + 12, volume_id);
	put64(out + 16, committed);
	put32(out + 24, 0);
	put32(out + CRC_AT, crc32c(0, out, CRC_AT));
}

bool needle_volume_header_is_whole(const uint8_t in[NEEDLE_VOLUME_HEADER])
{
	return get32(in + CRC_AT) == crc32c(0, in, CRC_AT);
}

/* CRC 对了，值也可能不合理：写它的程序可能有错，或者文件被人改过名、截短过。*/
static int check_volume_values(const uint8_t *in, const char *path,
			       uint32_t volume_id, uint64_t file_size)
{
	uint64_t committed = get64(in + 16);

	if (get32(in + 8) != NEEDLE_VERSION)
		return fail(-ENOTSUP, "read it with the program that wrote it",
			    "%s: format version %u, this program knows %d",
			    path, get32(in + 8), NEEDLE_VERSION);
	if (get32(in + 12) != volume_id)
		return fail(-EBADMSG, "give the file its own name back",
			    "%s: the file is of volume %u", path,
			    get32(in + 12));
	if (committed < NEEDLE_VOLUME_HEADER || committed % 8 || get32(in + 24))
		return fail(-EBADMSG, restore,
			    "%s: the header's values cannot be: committed "
			    "%ju, reserved %u",
			    path, committed, get32(in + 24));
	if (committed > file_size)
		return fail(-EBADMSG, restore,
			    "%s: %ju bytes were committed, the file has only "
			    "%ju: it was cut",
			    path, committed, file_size);
	return 0;
}

int needle_read_volume_header(const uint8_t in[NEEDLE_VOLUME_HEADER],
			      const char *path, uint32_t volume_id,
			      uint64_t file_size, uint64_t *committed)
{
	int rc;

	if (memcmp(in, VOLUME_MAGIC, 8))
		return fail(-EBADMSG, "is this a volume of this store?",
			    "%s: no volume: the file does not begin with "
			    "\"NEEDLES\"",
			    path);
	if (!needle_volume_header_is_whole(in))
		return fail(-EBADMSG, restore,
			    "%s: the header at offset 0 is damaged: its "
			    "CRC-32C says 0x%08x, its bytes give 0x%08x",
			    path, get32(in + CRC_AT), crc32c(0, in, CRC_AT));
	rc = check_volume_values(in, path, volume_id, file_size);
	if (!rc)
		*committed = get64(in + 16);
	return rc;
}

int needle_read_record_header(const uint8_t *in, const char *path,
			      uint32_t volume_id, uint64_t offset,
			      uint64_t room, struct needle *needle)
{
	uint32_t crc;

	/* committed 以内必有完整的 record；连头都放不下，就是被改坏了。*/
	if (room < NEEDLE_RECORD_HEADER)
		return fail(-EBADMSG, restore,
			    "%s: only %ju bytes are left for the record at "
			    "offset %ju",
			    path, room, offset);
	crc = record_crc(in, volume_id, offset);
	if (get32(in + CRC_AT) != crc)
		return fail(-EBADMSG, restore,
			    "%s: the record header at offset %ju is damaged: "
			    "its CRC-32C says 0x%08x, its bytes give 0x%08x",
			    path, offset, get32(in + CRC_AT), crc);
	*needle = (struct needle){ .needle_id = get64(in + 8),
				   .offset = offset,
				   .size = get64(in + 16),
				   .cookie = get32(in + 4),
				   .crc32c = get32(in + 24) };
	/*
	 * size 是 64 位的：先加后比（offset + 32 + size > 末尾）会溢出，2^64-8 就
	 * 变成了很小的数。减法不会：room 已知不小于 32。room 是 8 的倍数，所以补齐
	 * 之后也放得下。
	 */
	if (get32(in) == RECORD_MAGIC &&
	    needle->size <= room - NEEDLE_RECORD_HEADER)
		return 0;
	return fail(-EBADMSG, restore,
		    "%s: the record at offset %ju cannot be: magic 0x%08x, "
		    "%ju bytes of data where there is room for %ju",
		    path, offset, get32(in), needle->size,
		    room - NEEDLE_RECORD_HEADER);
}

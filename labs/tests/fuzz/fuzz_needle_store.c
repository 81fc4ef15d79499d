// SPDX-License-Identifier: MIT
/*
 * fuzz_needle_store.c - any bytes as the file of a volume. What the store takes
 * as good must be consistent, and nothing outside the bytes may be touched.
 *
 * No mutation guesses a CRC-32C, so each input is tried twice: as it is, and
 * with all checksums that can be reached put right.
 */
#include "needle/format.h"

#include <stdlib.h>
#include <string.h>

#define VOLUME_ID 7

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void check_needle(const struct needle_volume *volume,
			 const struct needle *needle)
{
	const struct needle *found = needle_find(volume, needle->needle_id);

	must(found && found->needle_id == needle->needle_id);
	must(found->offset >= needle->offset);
	/* Reads all data: whatever lies outside is the sanitizer's to find. */
	needle_check(volume, needle, "fuzz");
}

static void check_volume(const struct needle_volume *volume, size_t size)
{
	uint64_t end = volume->length ? NEEDLE_VOLUME_HEADER : 0;

	must(volume->length + volume->tail == size);
	for (size_t i = 0; i < volume->n_records; i++) {
		const struct needle *needle = &volume->records[i];

		must(needle->offset == end);
		end += needle_record_bytes(needle->size);
		check_needle(volume, needle);
	}
	must(end == volume->length);
	must(volume->n_live <= volume->n_records);
	for (size_t i = 1; i < volume->n_live; i++)
		must(volume->live[i - 1]->needle_id <
		     volume->live[i]->needle_id);
}

static void parse(const uint8_t *bytes, size_t size)
{
	struct needle_volume volume;

	if (needle_volume_parse(&volume, bytes, size, VOLUME_ID, "fuzz")) {
		must(!volume.records && !volume.live);
		return;
	}
	check_volume(&volume, size);
	needle_volume_forget(&volume);
}

static uint64_t get(const uint8_t *at, int width)
{
	uint64_t value = 0;

	while (width--)
		value = value << 8 | at[width];
	return value;
}

static void put_right(uint8_t *bytes, size_t size)
{
	uint64_t at = NEEDLE_VOLUME_HEADER;

	if (size < NEEDLE_VOLUME_HEADER)
		return;
	needle_write_volume_header(bytes, VOLUME_ID, get(bytes + 16, 8));
	while (size - at >= NEEDLE_RECORD_HEADER) {
		struct needle needle = {
			.needle_id = get(bytes + at + 8, 8),
			.offset = at,
			.size = get(bytes + at + 16, 8),
			.cookie = (uint32_t)get(bytes + at + 4, 4),
			.crc32c = (uint32_t)get(bytes + at + 24, 4)
		};

		needle_write_record_header(bytes + at, VOLUME_ID, &needle);
		if (needle.size > size - at - NEEDLE_RECORD_HEADER)
			return;
		at += needle_record_bytes(needle.size);
		if (at > size)
			return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	parse(data, size);
	if (copy && size) {
		memcpy(copy, data, size);
		put_right(copy, size);
		parse(copy, size);
	}
	free(copy);
	return 0;
}

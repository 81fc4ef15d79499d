// SPDX-License-Identifier: MIT
/*
 * unit_catalog.c - the catalogue that tells an engine where each needle lies: what is
 * sent is received, and what was changed, cut or cannot be is refused.
 */
#include "../unit.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "needle/catalog.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ENTRIES 700 /* more than two chunks */
#define WIRE	(16 + 40 * ENTRIES + 4)

static unsigned int refuse_at; /* 0: no request for memory, any more */

void *reallocarray(void *items, size_t n, size_t size)
{
	return refuse_at && !--refuse_at ? NULL : realloc(items, n * size);
}

/* In order, and two of them 2^31 apart. */
static uint32_t volume_of(uint32_t i)
{
	static const uint32_t volumes[] = { 0, 1, 0x80000001 };

	return volumes[i / 300];
}

static int receive(const uint8_t *bytes, size_t size,
		   struct needle_catalog *catalog)
{
	int pair[2], rc;

	*catalog = (struct needle_catalog){ 0 };
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	CHECK(write(pair[0], bytes, size) == (ssize_t)size, "write");
	shutdown(pair[0], SHUT_WR);
	rc = needle_catalog_receive(catalog, pair[1], deadline_in_ms(2000));
	close(pair[0]);
	close(pair[1]);
	return rc;
}

static void make_wire(uint8_t *wire)
{
	struct needle_catalog catalog = { 0 };
	int pair[2];

	for (uint32_t i = 0; i < ENTRIES; i++)
		CHECK(!needle_catalog_add(
			      &catalog,
			      &(struct needle_entry){ .volume_id = volume_of(i),
						      .needle_id = i * 3,
						      .cookie = i + 1,
						      .remote_addr = 4096 * i,
						      .rkey = i ^ 0xff,
						      .size = i + 2,
						      .crc32c = ~i }),
		      "add");
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	CHECK(!needle_catalog_send(&catalog, pair[0], deadline_in_ms(2000)),
	      "send");
	CHECK(recv(pair[1], wire, WIRE, MSG_WAITALL) == WIRE, "wire");
	close(pair[0]);
	CHECK(recv(pair[1], wire, 1, 0) == 0, "more than that was sent");
	close(pair[1]);
	needle_catalog_free(&catalog);
}

static void check_received(const struct needle_catalog *catalog)
{
	CHECK(catalog->count == ENTRIES, "%zu entries", catalog->count);
	for (uint32_t i = 0; i < catalog->count; i++) {
		const struct needle_entry *e =
			needle_catalog_find(catalog, volume_of(i), i * 3);

		CHECK(e && e->cookie == i + 1 && e->remote_addr == 4096 * i &&
			      e->rkey == (i ^ 0xff) && e->size == i + 2 &&
			      e->crc32c == ~i,
		      "entry %u", i);
		CHECK(!needle_catalog_find(catalog, volume_of(i), i * 3 + 1) &&
			      !needle_catalog_find(catalog, 9, i * 3),
		      "a needle that is not there");
	}
}

static void test_catalog(void)
{
	static uint8_t wire[WIRE], bad[WIRE];
	struct needle_catalog catalog;

	make_wire(wire);
	for (unsigned int n = 1;; n++) {
		int rc;

		refuse_at = n;
		rc = receive(wire, WIRE, &catalog);
		if (refuse_at)
			break;
		CHECK(rc == -ENOMEM && !catalog.entries, "no memory %u", n);
	}
	CHECK(refuse_at == 1, "it did not ask for memory");
	refuse_at = 0;
	check_received(&catalog);
	needle_catalog_free(&catalog);
	for (size_t i = 0; i < WIRE; i += i < 200 ? 1 : 97) {
		memcpy(bad, wire, WIRE);
		bad[i] ^= 1;
		CHECK(receive(bad, WIRE, &catalog) < 0 && !catalog.entries,
		      "byte %zu changed", i);
		CHECK(receive(wire, i, &catalog) == -ECONNRESET &&
			      !catalog.entries,
		      "cut at %zu", i);
	}
	/* Twice the same, not in order, wrapped around: with a right CRC. */
	for (int kind = 0; kind < 3; kind++) {
		uint32_t crc;

		memcpy(bad, wire, WIRE);
		if (kind == 0)
			memcpy(bad + 16 + 40 * 256, bad + 16 + 40 * 255, 40);
		else if (kind == 1)
			memset(bad + 16 + 40 * 255, 0xff, 12);
		else
			memset(bad + 16 + 40 * 255 + 16, 0xff, 8);
		crc = htobe32(crc32c(0, bad + 16, WIRE - 20));
		memcpy(bad + WIRE - 4, &crc, 4);
		CHECK(receive(bad, WIRE, &catalog) == -EPROTO, "kind %d", kind);
	}
	memset(wire + 8, 0, 8);
	wire[8 + 4] = 2; /* 2^25 entries */
	CHECK(receive(wire, WIRE, &catalog) == -EPROTO, "too many");
}

int main(void)
{
	test_catalog();
	return unit_result("unit_catalog");
}

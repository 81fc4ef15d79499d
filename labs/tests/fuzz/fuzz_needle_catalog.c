// SPDX-License-Identifier: MIT
/*
 * fuzz_needle_catalog.c - any bytes as what a storage node sends after the
 * handshake. As it is, and with the checksum at the end put right.
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "needle/catalog.h"

#include <endian.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 65536 /* bytes: they must fit into the socket's buffer */
#define HEAD 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void check_catalog(const struct needle_catalog *catalog)
{
	for (size_t i = 0; i < catalog->count; i++) {
		const struct needle_entry *e = &catalog->entries[i];

		must(needle_catalog_find(catalog, e->volume_id, e->needle_id) ==
		     e);
		must(e->remote_addr + e->size >= e->remote_addr);
	}
}

/* What was received must be what is sent again. */
static void send_again(const struct needle_catalog *catalog,
		       const uint8_t *bytes)
{
	const size_t size = HEAD + 40 * catalog->count + 4;
	uint8_t *again = malloc(size);
	int pair[2];

	must(again && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	must(!needle_catalog_send(catalog, pair[0], deadline_in_ms(1000)));
	must(recv(pair[1], again, size, MSG_WAITALL) == (ssize_t)size);
	must(!memcmp(again, bytes, size));
	free(again);
	close(pair[0]);
	close(pair[1]);
}

static void receive(const uint8_t *bytes, size_t size)
{
	struct needle_catalog catalog = { 0 };
	int pair[2];

	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	must(write(pair[0], bytes, size) == (ssize_t)size);
	shutdown(pair[0], SHUT_WR);
	if (!needle_catalog_receive(&catalog, pair[1], deadline_in_ms(1000))) {
		check_catalog(&catalog);
		send_again(&catalog, bytes);
	}
	needle_catalog_free(&catalog);
	close(pair[0]);
	close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	uint32_t crc;

	if (!size || size > MOST)
		return 0;
	receive(data, size);
	copy = malloc(size);
	if (copy && size >= HEAD + 4) {
		memcpy(copy, data, size);
		crc = htobe32(crc32c(0, copy + HEAD, size - HEAD - 4));
		memcpy(copy + size - 4, &crc, 4);
		receive(copy, size);
	}
	free(copy);
	return 0;
}

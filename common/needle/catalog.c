// SPDX-License-Identifier: MIT
/*
 * catalog.c —— 存储节点交给 engine 的目录：每个 needle 在哪个地址、用哪把 rkey
 *
 * one-sided 的意思是：READ 发生时，被读的一方 CPU 毫不知情。那么读的一方怎么知道该读
 * 哪里？只能事先告诉它。目录走 TCP（控制面），数据走 RDMA（数据面），两条路从此分开。
 *
 * 代价也在这里：目录是建立连接那一刻的快照，之后放进 store 的 needle 不在其中；拿到
 * rkey 的人想读 MR 里的哪一段都可以，cookie 只能由 engine 自己去核对。
 */
#include "catalog.h"

#include "base/array.h"
#include "base/crc32c.h"
#include "base/report.h"
#include "base/sock.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CATALOG_MAGIC	0x4e44434cu /* "NDCL" */
#define CATALOG_VERSION 1
#define CHUNK		256 /* 一次收发的条数，约 10 KiB */

struct wire_head {
	uint32_t magic;
	uint16_t version;
	uint16_t entry_size;
	uint64_t count;
} __attribute__((packed));

/* 本机字节序与 big-endian 之间；字节交换是自己的逆运算，来回都用它。*/
static struct needle_entry swapped(struct needle_entry e)
{
	e.volume_id = htobe32(e.volume_id);
	e.needle_id = htobe64(e.needle_id);
	e.cookie = htobe32(e.cookie);
	e.remote_addr = htobe64(e.remote_addr);
	e.rkey = htobe32(e.rkey);
	e.size = htobe64(e.size);
	e.crc32c = htobe32(e.crc32c);
	return e;
}

int needle_catalog_add(struct needle_catalog *catalog,
		       const struct needle_entry *entry)
{
	size_t n = catalog->count;
	struct needle_entry *entries;

	if (n >= NEEDLE_CATALOG_MOST)
		return fail(-E2BIG, "spread the volumes over several nodes",
			    "a catalogue holds at most %u needles",
			    NEEDLE_CATALOG_MOST);
	entries = array_room(catalog->entries, n, sizeof(*entries));
	if (!entries)
		return fail(-ENOMEM, NULL, "no memory for %zu needles", 2 * n);
	catalog->entries = entries;
	catalog->entries[n] = *entry;
	catalog->count = n + 1;
	return 0;
}

void needle_catalog_free(struct needle_catalog *catalog)
{
	free(catalog->entries);
	*catalog = (struct needle_catalog){ 0 };
}

static int compare(const void *a, const void *b)
{
	const struct needle_entry *x = a, *y = b;

	if (x->volume_id != y->volume_id)
		return x->volume_id < y->volume_id ? -1 : 1;
	return (x->needle_id > y->needle_id) - (x->needle_id < y->needle_id);
}

const struct needle_entry *
needle_catalog_find(const struct needle_catalog *catalog, uint32_t volume_id,
		    uint64_t needle_id)
{
	const struct needle_entry key = { .volume_id = volume_id,
					  .needle_id = needle_id };

	if (!catalog->count) /* 空表没有 entries，bsearch 不收 NULL */
		return NULL;
	return bsearch(&key, catalog->entries, catalog->count, sizeof(key),
		       compare);
}

int needle_catalog_send(const struct needle_catalog *catalog, int sock,
			int64_t deadline)
{
	struct wire_head head = { htobe32(CATALOG_MAGIC),
				  htobe16(CATALOG_VERSION),
				  htobe16(sizeof(struct needle_entry)),
				  htobe64(catalog->count) };
	struct needle_entry chunk[CHUNK];
	uint32_t crc = 0;
	int rc = sock_write_exact(sock, &head, sizeof(head), deadline,
				  "catalogue");

	for (size_t sent = 0; !rc && sent < catalog->count;) {
		size_t n = 0;

		while (n < CHUNK && sent < catalog->count)
			chunk[n++] = swapped(catalog->entries[sent++]);
		crc = crc32c(crc, chunk, n * sizeof(*chunk));
		rc = sock_write_exact(sock, chunk, n * sizeof(*chunk), deadline,
				      "catalogue");
	}
	if (rc)
		return rc;
	crc = htobe32(crc);
	return sock_write_exact(sock, &crc, sizeof(crc), deadline, "catalogue");
}

static int __attribute__((format(printf, 1, 2)))
not_a_catalogue(const char *fmt, ...)
{
	char what[96];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	return fail(-EPROTO, "is it a needle_server of this build?",
		    "the peer's catalogue cannot be: %s", what);
}

static int check_head(const struct wire_head *head)
{
	if (be32toh(head->magic) != CATALOG_MAGIC)
		return not_a_catalogue("its magic is 0x%08x, not 0x%08x",
				       be32toh(head->magic), CATALOG_MAGIC);
	if (be16toh(head->version) != CATALOG_VERSION)
		return not_a_catalogue("its version is %u, mine is %u",
				       be16toh(head->version), CATALOG_VERSION);
	if (be16toh(head->entry_size) != sizeof(struct needle_entry))
		return not_a_catalogue("an entry is %u bytes, not %zu",
				       be16toh(head->entry_size),
				       sizeof(struct needle_entry));
	if (be64toh(head->count) > NEEDLE_CATALOG_MOST)
		return not_a_catalogue("%ju needles are more than %u",
				       be64toh(head->count),
				       NEEDLE_CATALOG_MOST);
	return 0;
}

/*
 * 严格递增这一条，同时保证了没有重复、可以二分查找。地址加长度不许绕回 0：否则
 * “addr + offset 在范围之内”这样的检查就会被骗过去。
 */
static int check_entry(const struct needle_catalog *catalog,
		       const struct needle_entry *entry)
{
	const char *wrong = NULL;

	if (catalog->count &&
	    compare(&catalog->entries[catalog->count - 1], entry) >= 0)
		wrong = "it is there twice, or not in order";
	else if (entry->remote_addr + entry->size < entry->remote_addr)
		wrong = "its address range wraps around";
	if (!wrong)
		return 0;
	return not_a_catalogue("volume %u needle %ju: %s", entry->volume_id,
			       entry->needle_id, wrong);
}

static int take_entries(struct needle_catalog *catalog,
			const struct needle_entry *chunk, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		struct needle_entry entry = swapped(chunk[i]);

		rc = check_entry(catalog, &entry);
		if (!rc)
			rc = needle_catalog_add(catalog, &entry);
	}
	return rc;
}

static int receive_entries(struct needle_catalog *catalog, uint64_t count,
			   int sock, int64_t deadline)
{
	struct needle_entry chunk[CHUNK];
	uint32_t crc = 0, sent;
	int rc = 0;

	/* 收到多少才分配多少：对端说“有一千六百万条”，不等于要先给它 700 MB。*/
	while (!rc && count) {
		size_t n = count < CHUNK ? (size_t)count : CHUNK;

		rc = sock_read_exact(sock, chunk, n * sizeof(*chunk), deadline,
				     "catalogue");
		if (!rc)
			rc = take_entries(catalog, chunk, n);
		crc = crc32c(crc, chunk, n * sizeof(*chunk));
		count -= n;
	}
	if (!rc)
		rc = sock_read_exact(sock, &sent, sizeof(sent), deadline,
				     "catalogue");
	if (!rc && be32toh(sent) != crc)
		rc = not_a_catalogue("its CRC-32C is 0x%08x, not 0x%08x",
				     be32toh(sent), crc);
	return rc;
}

int needle_catalog_receive(struct needle_catalog *catalog, int sock,
			   int64_t deadline)
{
	struct needle_catalog received = { 0 };
	struct wire_head head;
	int rc = sock_read_exact(sock, &head, sizeof(head), deadline,
				 "catalogue");

	if (!rc)
		rc = check_head(&head);
	if (!rc)
		rc = receive_entries(&received, be64toh(head.count), sock,
				     deadline);
	if (rc)
		needle_catalog_free(&received);
	else
		*catalog = received;
	return rc;
}

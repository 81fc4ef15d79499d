// SPDX-License-Identifier: MIT
/*
 * unit_needle.c - the needle store and the catalogue without a device: every
 * damage, every cut, every failing system call, and every power cut that a put
 * can meet. Prints "0 failures".
 *
 *	unit_needle DIR        an empty folder
 *
 * This program's own pwrite, fdatasync and ftruncate stand before libc's: they
 * note what is written in which order, and fail when told to.
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "needle/catalog.h"
#include "needle/pattern.h"
#include "needle/store.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VOLUME	 7
#define MOST_OPS 64
#define MOST	 4096 /* bytes of a file here */

struct op {
	enum {
		OP_WRITE,
		OP_CUT,
		OP_SYNC
	} kind;
	size_t offset, size;
	uint8_t bytes[256];
};

struct image {
	uint8_t bytes[MOST];
	size_t size;
};

static struct op ops[MOST_OPS];
static unsigned int n_ops, fail_at, calls;
static int fail_with; /* 0: a short write; negative: that, then the error */
static unsigned int failures;
static const char *dir;

static bool check(bool holds, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static bool check(bool holds, const char *fmt, ...)
{
	va_list ap;

	if (holds)
		return true;
	failures++;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	return false;
}

/* ---- the system calls ------------------------------------------------------ */

static bool fails(void)
{
	calls++;
	errno = abs(fail_with);
	return (calls == fail_at && fail_with > 0) ||
	       (calls == fail_at + 1 && fail_with < 0);
}

static void note(int kind, size_t offset, const void *bytes, size_t size)
{
	struct op *op = &ops[n_ops];

	if (n_ops == MOST_OPS || size > sizeof(op->bytes))
		return;
	op->kind = kind;
	op->offset = offset;
	op->size = size;
	if (size)
		memcpy(op->bytes, bytes, size);
	n_ops++;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
	if (fails())
		return -1;
	if (calls == fail_at && size > 1)
		size /= 2;
	note(OP_WRITE, (size_t)offset, data, size);
	return syscall(SYS_pwrite64, fd, data, size, offset);
}

int fdatasync(int fd)
{
	(void)fd;
	if (fails())
		return -1;
	note(OP_SYNC, 0, NULL, 0);
	return 0;
}

int ftruncate(int fd, off_t size)
{
	if (fails())
		return -1;
	note(OP_CUT, (size_t)size, NULL, 0);
	return (int)syscall(SYS_ftruncate, fd, size);
}

static void watch(unsigned int at, int with)
{
	n_ops = 0;
	calls = 0;
	fail_at = at;
	fail_with = with;
}

/* ---- a volume and its bytes ------------------------------------------------ */

static const char *path_of(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/volume-%d.needles", dir, VOLUME);
	return path;
}

static struct image load(void)
{
	struct image image = { .size = 0 };
	int fd = open(path_of(), O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, image.bytes, sizeof(image.bytes));

	image.size = n > 0 ? (size_t)n : 0;
	if (fd >= 0)
		close(fd);
	return image;
}

static void store(const struct image *image)
{
	int fd = open(path_of(), O_WRONLY | O_CREAT | O_TRUNC, 0600);

	check(write(fd, image->bytes, image->size) == (ssize_t)image->size,
	      "cannot write %s", path_of());
	close(fd);
}

static int put(uint64_t id, uint32_t cookie, const char *text)
{
	struct needle_writer writer;
	size_t half = strlen(text) / 2;
	int rc = needle_writer_open(&writer, dir, VOLUME, deadline_in_ms(1000));

	if (rc)
		return rc;
	needle_begin(&writer, id, cookie);
	rc = needle_append(&writer, text, half);
	if (!rc)
		rc = needle_append(&writer, text + half, strlen(text) - half);
	if (!rc)
		rc = needle_end(&writer);
	if (!rc)
		rc = needle_commit(&writer);
	needle_writer_close(&writer);
	return rc;
}

/* @text NULL: it must not be there. */
static bool holds(const struct needle_volume *volume, uint64_t id,
		  const char *text)
{
	const struct needle *needle = needle_find(volume, id);

	if (!needle || !text)
		return !needle && !text;
	return needle->size == strlen(text) &&
	       !memcmp(needle_data(volume, needle), text, strlen(text)) &&
	       !needle_check(volume, needle, dir);
}

/* Every needle's bytes right, or damage that was noticed? */
static bool damage_is_noticed(const struct image *image)
{
	struct needle_volume volume;
	bool right;

	if (needle_volume_parse(&volume, image->bytes, image->size, VOLUME,
				"image"))
		return true;
	right = holds(&volume, 1, "again!") && holds(&volume, 2, "") &&
		holds(&volume, UINT64_MAX, "12345678") &&
		!memcmp(needle_data(&volume, &volume.records[0]), "hello", 5);
	for (size_t i = 0; i < volume.n_records; i++)
		right |= needle_check(&volume, &volume.records[i], dir) != 0;
	needle_volume_forget(&volume);
	return right;
}

static void begin(void)
{
	watch(0, 0);
	unlink(path_of());
	check(!put(1, 99, "hello") && !put(2, 5, "") &&
		      !put(1, 100, "again!") && !put(UINT64_MAX, 0, "12345678"),
	      "cannot fill the volume");
}

/* ---- damage ---------------------------------------------------------------- */

static void test_every_bit(void)
{
	struct image good, bad;

	begin();
	good = load();
	check(good.size == 32 + 40 + 32 + 40 + 40, "size %zu", good.size);
	for (size_t i = 0; i < good.size * 8; i++) {
		bad = good;
		bad.bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		check(damage_is_noticed(&bad), "bit %zu", i);
	}
}

static void test_every_cut(void)
{
	struct needle_volume volume;
	struct image good, cut;
	int rc;

	begin();
	good = load();
	/* What was committed and is missing is damage; no file is no damage. */
	for (size_t size = 0; size < good.size; size++) {
		cut = good;
		cut.size = size;
		store(&cut);
		rc = needle_volume_open(&volume, dir, VOLUME);
		check(rc == -EBADMSG, "cut to %zu: %d", size, rc);
		needle_volume_close(&volume);
		rc = put(3, 1, "new");
		check(rc == -EBADMSG, "put at %zu: %d", size, rc);
		cut = load();
		check(cut.size == size, "a refused put wrote");
	}
	/* What is beyond the mark is not read, whatever it is, and goes. */
	for (size_t tail = 1; tail < 100; tail++) {
		cut = good;
		memcpy(cut.bytes + cut.size, good.bytes + 32, tail);
		cut.size += tail;
		store(&cut);
		rc = needle_volume_open(&volume, dir, VOLUME);
		check(!rc && volume.tail == tail && volume.n_records == 4,
		      "tail of %zu: %d", tail, rc);
		needle_volume_close(&volume);
		check(!put(3, 1, "new"), "put after a tail of %zu", tail);
		check(load().size == good.size + 40, "tail of %zu stayed",
		      tail);
	}
}

/* Whole records, each in the other's place: a write that went astray. */
static void test_moved(void)
{
	struct needle_volume volume;
	struct image good, bad;

	begin();
	good = load();
	bad = good;
	memcpy(bad.bytes + 32, good.bytes + 104, 40);
	memcpy(bad.bytes + 104, good.bytes + 32, 40);
	check(needle_volume_parse(&volume, bad.bytes, bad.size, VOLUME,
				  "image") == -EBADMSG,
	      "records out of their places");
}

/* Headers whose CRC is right, but whose values cannot be. */
static void test_values(void)
{
	const uint64_t sizes[] = { 6,
				   9,
				   161,
				   UINT64_MAX,
				   UINT64_MAX - 7,
				   UINT64_MAX - 31,
				   UINT64_C(1) << 62 };
	const uint64_t marks[] = {
		0, 8, 24, 33, 36, 192, 1024, UINT64_MAX - 7
	};
	struct needle_volume volume;
	struct image good;
	uint64_t value;

	begin();
	good = load();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct image bad = good;
		uint8_t place[12] = { VOLUME, 0, 0, 0, 32 };
		uint32_t crc;

		value = htole64(sizes[i]);
		memcpy(bad.bytes + 32 + 16, &value, 8);
		crc = htole32(crc32c(crc32c(0, place, 12), bad.bytes + 32, 28));
		memcpy(bad.bytes + 32 + 28, &crc, 4);
		check(needle_volume_parse(&volume, bad.bytes, bad.size, VOLUME,
					  "image") ==
			      (sizes[i] == 6 ? 0 : -EBADMSG),
		      "a needle of %llu bytes", (unsigned long long)sizes[i]);
		needle_volume_forget(&volume);
	}
	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		struct image bad = good;
		uint32_t crc;

		value = htole64(marks[i]);
		memcpy(bad.bytes + 16, &value, 8);
		crc = htole32(crc32c(0, bad.bytes, 28));
		memcpy(bad.bytes + 28, &crc, 4);
		check(needle_volume_parse(&volume, bad.bytes, bad.size, VOLUME,
					  "image") == -EBADMSG,
		      "committed %llu", (unsigned long long)marks[i]);
	}
	good.bytes[16] = 144; /* one record less, under the old CRC */
	check(needle_volume_parse(&volume, good.bytes, good.size, VOLUME,
				  "image") == -EBADMSG,
	      "committed 144");
	good = load();
	check(needle_volume_parse(&volume, good.bytes, good.size, VOLUME + 1,
				  "image") == -EBADMSG,
	      "a volume under another's name");
}

/* ---- failing calls, power cuts ------------------------------------------------ */

/* After a put of 3 that failed or was cut short, or not. */
static void check_after(const char *what, unsigned int n, int rc)
{
	struct needle_volume volume;
	int opened = needle_volume_open(&volume, dir, VOLUME);
	bool there;

	if (!check(!opened, "%s %u: the volume is damaged", what, n))
		return;
	there = needle_find(&volume, 3) != NULL;
	check(holds(&volume, 1, "again!") && holds(&volume, 2, "") &&
		      holds(&volume, UINT64_MAX, "12345678"),
	      "%s %u: an old needle is lost", what, n);
	check(holds(&volume, 3, there ? "the new one" : NULL),
	      "%s %u: half a needle", what, n);
	check(rc || there, "%s %u: said to be kept, and is not", what, n);
	needle_volume_close(&volume);
}

static void test_failing_calls(void)
{
	const int errors[] = { ENOSPC, EIO, EFBIG, EINTR, -ENOSPC, 0 };
	struct image good;

	begin();
	good = load();
	for (size_t e = 0; e < sizeof(errors) / sizeof(*errors); e++)
		for (unsigned int n = 1; n < 16; n++) {
			int rc;

			store(&good);
			watch(n, errors[e]);
			rc = put(3, 1, "the new one");
			if (calls < n)
				check(!rc, "nothing failed: %d", rc);
			watch(0, 0);
			check_after("failed call", n, rc);
			check(!put(3, 1, "the new one"), "cannot put again");
			check_after("again", n, 0);
		}
}

/* The first put of all: what it leaves is no volume, or a good one. */
static void test_failing_birth(void)
{
	const int errors[] = { ENOSPC, -ENOSPC, 0 };

	for (size_t e = 0; e < 3; e++)
		for (unsigned int n = 1; n < 16; n++) {
			struct needle_volume volume;
			int rc;

			unlink(path_of());
			watch(n, errors[e]);
			put(3, 1, "the new one");
			watch(0, 0);
			rc = needle_volume_open(&volume, dir, VOLUME);
			check(!rc || rc == -ENOENT, "birth %u: %d", n, rc);
			needle_volume_close(&volume);
			rc = put(3, 1, "the new one");
			check(!rc, "birth %u: cannot put: %d", n, rc);
		}
}

static void apply(struct image *image, const struct op *op)
{
	size_t end = op->offset + op->size;

	if (op->kind == OP_CUT) {
		if (image->size > op->offset)
			image->size = op->offset;
		return;
	}
	if (image->size < end) {
		memset(image->bytes + image->size, 0, end - image->size);
		image->size = end;
	}
	memcpy(image->bytes + op->offset, op->bytes, op->size);
}

/*
 * What a power cut leaves: everything up to the last fdatasync before it, and
 * any of what was written since, whichever pages the kernel chose.
 */
static void cut_power(const struct image *before, unsigned int synced,
		      unsigned int until, bool committed)
{
	unsigned int loose = until - synced;

	for (unsigned int set = 0; set < 1u << loose; set++) {
		struct image image = *before;

		for (unsigned int i = 0; i < until; i++)
			if (ops[i].kind != OP_SYNC &&
			    (i < synced || set & 1u << (i - synced)))
				apply(&image, &ops[i]);
		store(&image);
		check_after("power cut", until * 1000 + set, !committed);
		if (failures)
			return;
	}
}

static void test_power_cuts(bool torn)
{
	struct image before;
	unsigned int synced = 0, syncs = 0;

	begin();
	before = load();
	if (torn) {
		memcpy(before.bytes + before.size, before.bytes + 32, 60);
		before.size += 60;
		store(&before);
	}
	watch(0, 0);
	check(!put(3, 1, "the new one"), "cannot put");
	check(n_ops >= 6 && n_ops < 16, "%u calls", n_ops);
	for (unsigned int i = 0; i < n_ops; i++) {
		syncs += ops[i].kind == OP_SYNC;
		if (ops[i].kind == OP_SYNC)
			synced = i + 1;
		cut_power(&before, synced, i + 1, syncs == 2);
	}
	check(syncs == 2, "%u times on disk", syncs);
}

/* ---- writers and readers at once ------------------------------------------------ */

static void test_lock(void)
{
	struct needle_writer first, second;
	struct needle_volume volume;
	int64_t began;
	int rc;

	begin();
	check(!needle_writer_open(&first, dir, VOLUME, deadline_in_ms(100)),
	      "cannot open");
	began = now_ns();
	rc = needle_writer_open(&second, dir, VOLUME, deadline_in_ms(100));
	check(rc == -EBUSY, "a second writer: %d", rc);
	check(now_ns() - began >= 100000000, "it did not wait");
	/* A reader does not wait, and takes a put that goes on for no tail. */
	needle_begin(&first, 3, 1);
	check(!needle_append(&first, "abc", 3), "append");
	check(!needle_volume_open(&volume, dir, VOLUME), "a reader waits");
	check(!volume.tail && holds(&volume, 3, NULL), "half a needle is seen");
	check(!needle_end(&first) && !needle_commit(&first), "commit");
	check(holds(&volume, 3, NULL) && holds(&volume, 1, "again!"),
	      "an open volume has changed");
	needle_volume_close(&volume);
	needle_writer_close(&first);
	check(!needle_volume_open(&volume, dir, VOLUME) &&
		      holds(&volume, 3, "abc"),
	      "what was committed is not there");
	needle_volume_close(&volume);
}

/* ---- CRC-32C, pattern ------------------------------------------------------------ */

static uint32_t slow_crc(const uint8_t *data, size_t size)
{
	uint32_t crc = ~0u;

	while (size--) {
		crc ^= *data++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

static void test_crc_and_pattern(void)
{
	const struct needle_pattern p = { .seed = 5, .min = 10, .max = 12 };
	uint8_t whole[1000], part[1000];

	check(crc32c(0, "123456789", 9) == 0xe3069283, "123456789");
	check(crc32c(0, "", 0) == 0, "nothing");
	needle_pattern_bytes(&p, 7, 8, 0, whole, sizeof(whole));
	for (size_t i = 0; i < sizeof(whole); i++) {
		check(crc32c(crc32c(0, whole, i), whole + i,
			     sizeof(whole) - i) ==
			      slow_crc(whole, sizeof(whole)),
		      "CRC-32C in two pieces at %zu", i);
		needle_pattern_bytes(&p, 7, 8, i, part, sizeof(whole) - i);
		check(!memcmp(part, whole + i, sizeof(whole) - i),
		      "the pattern from %zu on", i);
	}
	needle_pattern_bytes(&p, 7, 9, 0, part, sizeof(part));
	check(memcmp(whole, part, 8), "two needles are alike");
	for (uint64_t id = 0; id < 100; id++) {
		uint64_t size = needle_pattern_size(&p, 7, id);

		check(size >= 10 && size <= 12, "size %llu",
		      (unsigned long long)size);
	}
}

/* ---- the catalogue ----------------------------------------------------------------- */

#define ENTRIES 700 /* more than two chunks */
#define WIRE	(16 + 40 * ENTRIES + 4)

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
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	check(write(pair[0], bytes, size) == (ssize_t)size, "write");
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
		check(!needle_catalog_add(
			      &catalog,
			      &(struct needle_entry){ .volume_id = volume_of(i),
						      .needle_id = i * 3,
						      .cookie = i + 1,
						      .remote_addr = 4096 * i,
						      .rkey = i ^ 0xff,
						      .size = i + 2,
						      .crc32c = ~i }),
		      "add");
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	check(!needle_catalog_send(&catalog, pair[0], deadline_in_ms(2000)),
	      "send");
	check(recv(pair[1], wire, WIRE, MSG_WAITALL) == WIRE, "wire");
	close(pair[0]);
	check(recv(pair[1], wire, 1, 0) == 0, "more than that was sent");
	close(pair[1]);
	needle_catalog_free(&catalog);
}

static void check_received(const struct needle_catalog *catalog)
{
	check(catalog->count == ENTRIES, "%zu entries", catalog->count);
	for (uint32_t i = 0; i < catalog->count; i++) {
		const struct needle_entry *e =
			needle_catalog_find(catalog, volume_of(i), i * 3);

		check(e && e->cookie == i + 1 && e->remote_addr == 4096 * i &&
			      e->rkey == (i ^ 0xff) && e->size == i + 2 &&
			      e->crc32c == ~i,
		      "entry %u", i);
		check(!needle_catalog_find(catalog, volume_of(i), i * 3 + 1) &&
			      !needle_catalog_find(catalog, 9, i * 3),
		      "a needle that is not there");
	}
}

static void test_catalog(void)
{
	static uint8_t wire[WIRE], bad[WIRE];
	struct needle_catalog catalog;

	make_wire(wire);
	check(!receive(wire, WIRE, &catalog), "refused");
	check_received(&catalog);
	needle_catalog_free(&catalog);
	for (size_t i = 0; i < WIRE; i += i < 200 ? 1 : 97) {
		memcpy(bad, wire, WIRE);
		bad[i] ^= 1;
		check(receive(bad, WIRE, &catalog) < 0 && !catalog.entries,
		      "byte %zu changed", i);
		check(receive(wire, i, &catalog) == -ECONNRESET &&
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
		check(receive(bad, WIRE, &catalog) == -EPROTO, "kind %d", kind);
	}
	memset(wire + 8, 0, 8);
	wire[8 + 4] = 2; /* 2^25 entries */
	check(receive(wire, WIRE, &catalog) == -EPROTO, "too many");
}

int main(int argc, char *argv[])
{
	if (argc != 2)
		return 2;
	dir = argv[1];
	test_every_bit();
	test_every_cut();
	test_moved();
	test_values();
	test_failing_calls();
	test_failing_birth();
	test_power_cuts(false);
	test_power_cuts(true);
	test_lock();
	test_crc_and_pattern();
	test_catalog();
	printf("%u failures\n", failures);
	return failures ? 1 : 0;
}

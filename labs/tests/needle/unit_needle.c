// SPDX-License-Identifier: MIT
/*
 * unit_needle.c - the needle store without a device: every damage, every cut, every
 * failing system call, and every power cut that a put can meet.
 *
 *	unit_needle DIR        an empty folder
 *
 * This program's own pwrite, fdatasync, ftruncate, rename and fsync stand before
 * libc's: they note what is written in which order, and fail when told to.
 */
#include "base/crc32c.h"
#include "base/deadline.h"
#include "needle/pattern.h"
#include "needle/store.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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
		OP_SYNC,
		OP_RENAME,
		OP_SYNC_FOLDER
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
/* 0: a short write; negative: that, then the error; EIO: that, and once more */
static int fail_with;
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
	       (calls == fail_at + 1 && (fail_with < 0 || fail_with == EIO));
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

static int synced(int kind)
{
	if (fails())
		return -1;
	note(kind, 0, NULL, 0);
	return 0;
}

int fdatasync(int fd)
{
	(void)fd;
	return synced(OP_SYNC);
}

int fsync(int fd)
{
	(void)fd;
	return synced(OP_SYNC_FOLDER);
}

int ftruncate(int fd, off_t size)
{
	if (fails())
		return -1;
	note(OP_CUT, (size_t)size, NULL, 0);
	return (int)syscall(SYS_ftruncate, fd, size);
}

int rename(const char *from, const char *to)
{
	if (fails())
		return -1;
	note(OP_RENAME, 0, NULL, 0);
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static struct needle_writer *commits; /* just before the next pread */

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
	struct needle_writer *writer = commits;

	commits = NULL;
	if (writer)
		check(!needle_end(writer) && !needle_commit(writer), "commit");
	return syscall(SYS_pread64, fd, data, size, offset);
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

static const char *path_of_new(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s.new", path_of());
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

static void seal_header(struct image *image)
{
	uint32_t crc = htole32(crc32c(0, image->bytes, 28));

	memcpy(image->bytes + 28, &crc, 4);
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
	const uint64_t marks[] = { 0,	8,    24,
				   33,	36,   80,
				   192, 1024, UINT64_MAX - 7 };
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

		value = htole64(marks[i]);
		memcpy(bad.bytes + 16, &value, 8);
		seal_header(&bad);
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
	good.bytes[8] = 2;
	seal_header(&good);
	check(needle_volume_parse(&volume, good.bytes, good.size, VOLUME,
				  "image") == -ENOTSUP,
	      "another version");
	store(&good);
	check(put(3, 1, "new") == -ENOTSUP && load().size == good.size,
	      "a put into another version");
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
	bool fatal;

	begin();
	good = load();
	for (size_t e = 0; e < sizeof(errors) / sizeof(*errors); e++)
		for (unsigned int n = 1; n < 16; n++) {
			int rc;

			store(&good);
			watch(n, errors[e]);
			rc = put(3, 1, "the new one");
			/* A write goes on where it was stopped, a sync does not. */
			fatal = errors[e] == EINTR ? n == 5 || n == 7
						   : errors[e] != 0;
			fatal = fatal && calls >= n + (errors[e] < 0);
			check(fatal ? rc < 0 : !rc, "call %u, error %d: %d", n,
			      errors[e], rc);
			watch(0, 0);
			check_after("failed call", n, rc);
			check(!put(3, 1, "the new one"), "cannot put again");
			check_after("again", n, 0);
		}
}

/* The first put of all: what it leaves is no volume, or a good one. */
static void test_failing_birth(void)
{
	static const unsigned int order[] = { OP_WRITE, OP_SYNC, OP_RENAME,
					      OP_SYNC_FOLDER };
	const int errors[] = { ENOSPC, -ENOSPC, 0 };

	unlink(path_of());
	watch(0, 0);
	check(!put(3, 1, "the new one"), "cannot put");
	for (size_t i = 0; i < 4; i++)
		check(ops[i].kind == order[i], "step %zu is %u", i,
		      ops[i].kind);
	for (size_t e = 0; e < 3; e++)
		for (unsigned int n = 1; n < 16; n++) {
			struct needle_volume volume;
			int rc;

			unlink(path_of());
			watch(n, errors[e]);
			rc = put(3, 1, "the new one");
			check(!rc == (!errors[e] ||
				      calls < n + (errors[e] < 0)),
			      "birth %u, error %d: %d", n, errors[e], rc);
			watch(0, 0);
			check(access(path_of_new(), F_OK), "birth %u: %s stays",
			      n, path_of_new());
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
	struct needle_volume volume, later;
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
	/* The header is read before the size is asked for, and may be newer. */
	commits = &first;
	check(!needle_volume_open(&later, dir, VOLUME) &&
		      holds(&later, 3, "abc"),
	      "what is committed meanwhile");
	needle_volume_close(&later);
	check(holds(&volume, 3, NULL) && holds(&volume, 1, "again!"),
	      "an open volume has changed");
	needle_volume_close(&volume);
	needle_writer_close(&first);
	check(!needle_volume_open(&volume, dir, VOLUME) &&
		      holds(&volume, 3, "abc"),
	      "what was committed is not there");
	needle_volume_close(&volume);
}

/* Descriptor 0 is one like any other. */
static void test_descriptor_0(void)
{
	struct needle_writer writer = { 0 };
	struct needle_volume volume;
	int folder = open(dir, O_RDONLY | O_DIRECTORY);

	needle_writer_close(&writer);
	check(fcntl(0, F_GETFD) >= 0, "a writer that is not open closed 0");
	close(0);
	unlink(path_of());
	check(!flock(folder, LOCK_EX), "cannot lock the folder");
	check(put(3, 1, "the new one") == -EBUSY, "it did not wait");
	close(folder);
	for (int i = 0; i < 2; i++) {
		check(!put(3, 1, "the new one"), "cannot put");
		check(fcntl(0, F_GETFD) < 0, "a put %d keeps 0", i);
	}
	check(!needle_volume_open(&volume, dir, VOLUME), "cannot open");
	check(fcntl(0, F_GETFD) < 0, "an open volume keeps 0");
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
	const struct needle_pattern any = { .seed = 5, .max = UINT64_MAX };
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
	/* splitmix64 四次，别处算的 */
	check(needle_pattern_size(&any, 7, 8) == 0x714232faff1ac964,
	      "splitmix64");
	for (uint64_t id = 0; id < 100; id++) {
		uint64_t size = needle_pattern_size(&p, 7, id);

		check(size >= 10 && size <= 12, "size %llu",
		      (unsigned long long)size);
	}
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
	test_descriptor_0();
	printf("unit_needle: %u failures\n", failures);
	return failures ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * unit_needle.c - a put into the needle store: every system call that fails or does
 * half of it, and every power cut.
 *
 *	unit_needle DIR        an empty folder
 *
 * This program's own pwrite, fdatasync, ftruncate, rename and fsync stand before
 * libc's: they note what is written in which order, and fail when told to.
 */
#include "../unit.h"
#include "base/deadline.h"
#include "needle/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VOLUME	 7
#define MOST_OPS 64
#define MOST	 4096 /* bytes of a file here */

struct op {
	enum {
		OP_WRITE,
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
static const char *dir;
static char path[512], path_new[512];

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
	return fails() ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int rename(const char *from, const char *to)
{
	if (fails())
		return -1;
	note(OP_RENAME, 0, NULL, 0);
	return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static void watch(unsigned int at, int with)
{
	n_ops = 0;
	calls = 0;
	fail_at = at;
	fail_with = with;
}

/* ---- a volume and its bytes ------------------------------------------------ */

static struct image load(void)
{
	struct image image = { .size = 0 };
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? 0 : read(fd, image.bytes, sizeof(image.bytes));

	image.size = n > 0 ? (size_t)n : 0;
	if (fd >= 0)
		close(fd);
	return image;
}

static void store(const struct image *image)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(write(fd, image->bytes, image->size) == (ssize_t)image->size,
	      "cannot write %s", path);
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

static void begin(void)
{
	watch(0, 0);
	unlink(path);
	CHECK(!put(1, 99, "hello") && !put(2, 5, "") &&
		      !put(1, 100, "again!") && !put(UINT64_MAX, 0, "12345678"),
	      "cannot fill the volume");
}

/* After a put of 3 that failed or was cut short, or not. */
static void check_after(const char *what, unsigned int n, int rc)
{
	struct needle_volume volume;
	int opened = needle_volume_open(&volume, dir, VOLUME);
	bool there;

	CHECK(!opened, "%s %u: the volume is damaged", what, n);
	if (opened)
		return;
	there = needle_find(&volume, 3) != NULL;
	CHECK(holds(&volume, 1, "again!") && holds(&volume, 2, "") &&
		      holds(&volume, UINT64_MAX, "12345678"),
	      "%s %u: an old needle is lost", what, n);
	CHECK(holds(&volume, 3, there ? "the new one" : NULL),
	      "%s %u: half a needle", what, n);
	CHECK(rc || there, "%s %u: said to be kept, and is not", what, n);
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
			CHECK(fatal ? rc < 0 : !rc, "call %u, error %d: %d", n,
			      errors[e], rc);
			watch(0, 0);
			check_after("failed call", n, rc);
			CHECK(!put(3, 1, "the new one"), "cannot put again");
			check_after("again", n, 0);
		}
}

/* The first put of all: what it leaves is no volume, or a good one. */
static void test_failing_birth(void)
{
	static const unsigned int order[] = { OP_WRITE, OP_SYNC, OP_RENAME,
					      OP_SYNC_FOLDER };
	const int errors[] = { ENOSPC, -ENOSPC, 0 };

	unlink(path);
	watch(0, 0);
	CHECK(!put(3, 1, "the new one"), "cannot put");
	for (size_t i = 0; i < 4; i++)
		CHECK(ops[i].kind == order[i], "step %zu is %u", i,
		      ops[i].kind);
	for (size_t e = 0; e < 3; e++)
		for (unsigned int n = 1; n < 16; n++) {
			struct needle_volume volume;
			int rc;

			unlink(path);
			watch(n, errors[e]);
			rc = put(3, 1, "the new one");
			CHECK(!rc == (!errors[e] ||
				      calls < n + (errors[e] < 0)),
			      "birth %u, error %d: %d", n, errors[e], rc);
			watch(0, 0);
			CHECK(access(path_new, F_OK), "birth %u: %s stays", n,
			      path_new);
			rc = needle_volume_open(&volume, dir, VOLUME);
			CHECK(!rc || rc == -ENOENT, "birth %u: %d", n, rc);
			needle_volume_close(&volume);
			rc = put(3, 1, "the new one");
			CHECK(!rc, "birth %u: cannot put: %d", n, rc);
		}
}

static void apply(struct image *image, const struct op *op)
{
	size_t end = op->offset + op->size;

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
		if (unit_failures)
			return;
	}
}

static void test_power_cuts(void)
{
	struct image before;
	unsigned int synced = 0, syncs = 0;

	begin();
	before = load();
	watch(0, 0);
	CHECK(!put(3, 1, "the new one"), "cannot put");
	CHECK(n_ops >= 6 && n_ops < 16, "%u calls", n_ops);
	for (unsigned int i = 0; i < n_ops; i++) {
		syncs += ops[i].kind == OP_SYNC;
		if (ops[i].kind == OP_SYNC)
			synced = i + 1;
		cut_power(&before, synced, i + 1, syncs == 2);
	}
	CHECK(syncs == 2, "%u times on disk", syncs);
}

int main(int argc, char *argv[])
{
	if (argc != 2)
		return 2;
	dir = argv[1];
	snprintf(path, sizeof(path), "%s/volume-%d.needles", dir, VOLUME);
	snprintf(path_new, sizeof(path_new), "%s/volume-%d.needles.new", dir,
		 VOLUME);
	test_failing_calls();
	test_failing_birth();
	test_power_cuts();
	return unit_result("unit_needle");
}

// SPDX-License-Identifier: MIT
/*
 * writer.c —— 往 volume 里追加：先让数据落盘，再让它算数
 *
 *	写数据 ── fdatasync ── 改 committed ── fdatasync
 *
 * 次序是全部的要点。page cache 里的页由内核决定先写哪一页：如果不分两步，断电之后可能
 * committed 已经前移，数据却还没到盘上——文件说“这里有一个 needle”，读出来是零。
 * 在任何一步被 kill -9 或断电，文件都仍然是好的：要么看得见整个 needle，要么看不见。
 */
#include "base/call_failed.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_RETRY_MS 10

static int write_failed(const char *call, const char *path)
{
	int err = errno;
	const char *next = NULL;

	if (err == ENOENT)
		next = "make the store's folder first";
	else if (err == ENOSPC || err == EDQUOT)
		next = "make room; nothing of this put has been kept";
	else if (err == ELOOP)
		next = "it is a symbolic link: remove it, or put its target in "
		       "its place";
	else if (err == EFBIG)
		next = "raise ulimit -f, or begin another volume; nothing of "
		       "this put has been kept";
	return call_failed_for(err, NULL, next, "%s(%s)", call, path);
}

static int write_at(const struct needle_writer *writer, const void *data,
		    size_t size, uint64_t offset)
{
	const char *at = data;

	while (size) {
		ssize_t n = pwrite(writer->fd, at, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return write_failed("pwrite", writer->path);
		at += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int sync_file(const struct needle_writer *writer)
{
	/* fdatasync 不写 mtime 之类，但文件变长了会写新的长度：正是我们要的。*/
	return fdatasync(writer->fd) ? write_failed("fdatasync", writer->path)
				     : 0;
}

static int write_header(struct needle_writer *writer, uint64_t committed)
{
	uint8_t header[NEEDLE_VOLUME_HEADER];
	int rc;

	needle_write_volume_header(header, writer->volume_id, committed);
	rc = write_at(writer, header, sizeof(header), 0);
	if (!rc)
		rc = sync_file(writer);
	if (!rc)
		writer->committed = committed;
	return rc;
}

/*
 * 两个写者会把各自的 record 写到同一个位置。flock 跟着打开的文件走，进程不论怎么死，
 * 锁都会消失；“建一个 .lock 文件”则会在 kill -9 之后永远留在那里。
 */
static int lock(int fd, const char *path, int64_t deadline)
{
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return write_failed("flock", path);
		if (deadline_sleep_ms(LOCK_RETRY_MS, deadline))
			return fail(-EINTR, NULL, "%s: stopped by a signal",
				    path);
		if (deadline_passed(deadline))
			return fail(-EBUSY,
				    "wait until it has ended, and try again",
				    "%s: another process is writing to it",
				    path);
	}
	return 0;
}

/*
 * O_NOFOLLOW：名字若是个 symlink，跟过去写的就是别处的文件；它若悬空，O_CREAT 还会在那里
 * 新建一个。-ENOENT 不报告。
 */
static int open_file(struct needle_writer *writer, const char *path, int flags)
{
	writer->fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0644);
	if (writer->fd >= 0)
		return 0;
	return errno == ENOENT ? -ENOENT : write_failed("open", path);
}

/*
 * 新的 volume 先在另一个名字下写好头、落了盘，再改成它的名字。于是这个名字下从来没有空
 * 文件：哪一天空了，就是被谁截掉的。新名字记在目录里：不 fsync 目录，断电之后它可能没有。
 */
static int begin_volume(struct needle_writer *writer, int folder,
			const char *dir)
{
	char *path;
	int rc;

	if (asprintf(&path, "%s.new", writer->path) < 0)
		return fail(-ENOMEM, NULL, "no memory for a path");
	rc = open_file(writer, path, O_CREAT | O_TRUNC);
	if (!rc)
		rc = write_header(writer, NEEDLE_VOLUME_HEADER);
	if (!rc && rename(path, writer->path))
		rc = write_failed("rename", path);
	if (!rc && fsync(folder))
		rc = write_failed("fsync", dir);
	if (rc && writer->fd >= 0)
		unlink(path);
	free(path);
	return rc;
}

/* 目录上的锁：两个都要建它的，后到的会发现它已经有了。*/
static int make_volume(struct needle_writer *writer, const char *dir,
		       int64_t deadline)
{
	int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = folder < 0 ? write_failed("open", dir)
			    : lock(folder, dir, deadline);

	if (!rc)
		rc = open_file(writer, writer->path, 0);
	if (rc == -ENOENT)
		rc = begin_volume(writer, folder, dir);
	if (folder >= 0)
		close(folder);
	return rc;
}

/* 打不开的 volume 不许再写：读者走不过损坏的地方，后面写了也读不到。*/
static int check_volume(struct needle_writer *writer)
{
	uint8_t header[NEEDLE_VOLUME_HEADER];
	struct needle_volume volume;
	uint64_t size;
	int rc = needle_read_start(writer->fd, writer->path, header, &size);

	if (!rc)
		rc = needle_volume_load(&volume, writer->fd, writer->path,
					writer->volume_id, header, size);
	if (rc)
		return rc;
	writer->committed = volume.length;
	needle_volume_close(&volume);
	return 0;
}

/*
 * committed 之后的字节不算数：可能是上一个写者的残尾，也可能是我们自己没写完的。返回失败了的
 * 那个调用的名字，errno 是原因；NULL：截掉了。不报告。
 */
static const char *cut_tail(const struct needle_writer *writer, uint64_t *cut)
{
	struct stat st;

	*cut = 0;
	if (fstat(writer->fd, &st))
		return "fstat";
	if ((uint64_t)st.st_size <= writer->committed)
		return NULL;
	if (ftruncate(writer->fd, (off_t)writer->committed))
		return "ftruncate";
	*cut = (uint64_t)st.st_size - writer->committed;
	return NULL;
}

static int prepare(struct needle_writer *writer, int64_t deadline)
{
	const char *failed;
	uint64_t cut;
	int rc = lock(writer->fd, writer->path, deadline);

	if (!rc)
		rc = check_volume(writer);
	if (rc)
		return rc;
	failed = cut_tail(writer, &cut);
	if (failed)
		return write_failed(failed, writer->path);
	if (cut)
		report_warning(NULL,
			       "%s: the last put was interrupted: cut off its "
			       "%ju bytes",
			       writer->path, cut);
	writer->end = writer->committed;
	writer->ready = true;
	return 0;
}

int needle_writer_open(struct needle_writer *writer, const char *dir,
		       uint32_t volume_id, int64_t deadline)
{
	int rc;

	*writer = (struct needle_writer){ .volume_id = volume_id };
	rc = needle_volume_path(dir, volume_id, &writer->path);
	if (rc)
		return rc;
	rc = open_file(writer, writer->path, 0);
	if (rc == -ENOENT)
		rc = make_volume(writer, dir, deadline);
	if (!rc)
		rc = prepare(writer, deadline);
	if (rc)
		needle_writer_close(writer);
	return rc;
}

void needle_begin(struct needle_writer *writer, uint64_t needle_id,
		  uint32_t cookie)
{
	writer->needle = (struct needle){ .needle_id = needle_id,
					  .offset = writer->end,
					  .cookie = cookie };
}

int needle_append(struct needle_writer *writer, const void *data, size_t size)
{
	struct needle *needle = &writer->needle;
	uint64_t at = needle->offset + NEEDLE_RECORD_HEADER + needle->size;
	int rc;

	/* 文件偏移是有符号的 64 位；多留 8 个字节给补齐。*/
	if (size > (uint64_t)INT64_MAX - 8 - at) {
		errno = EFBIG;
		return write_failed("pwrite", writer->path);
	}
	/* 数据先写，头后写：从管道来的数据，读完之前不知道有多长、CRC 是多少。*/
	rc = write_at(writer, data, size, at);
	if (rc)
		return rc;
	needle->crc32c = crc32c(needle->crc32c, data, size);
	needle->size += size;
	return 0;
}

int needle_end(struct needle_writer *writer)
{
	static const uint8_t zeros[8];
	uint8_t header[NEEDLE_RECORD_HEADER];
	const struct needle *needle = &writer->needle;
	uint64_t end = needle->offset + needle_record_bytes(needle->size);
	uint64_t data_end =
		needle->offset + NEEDLE_RECORD_HEADER + needle->size;
	int rc;

	needle_write_record_header(header, writer->volume_id, needle);
	rc = write_at(writer, header, sizeof(header), needle->offset);
	if (!rc)
		rc = write_at(writer, zeros, end - data_end, data_end);
	if (!rc)
		writer->end = end;
	return rc;
}

int needle_commit(struct needle_writer *writer)
{
	const uint64_t old = writer->committed;
	int rc;

	if (writer->end == old)
		return 0;
	rc = sync_file(writer);
	if (rc)
		return rc;
	rc = write_header(writer, writer->end);
	/*
	 * 新的头可能已经写进去、只是没能落盘：放回旧的头，文件才可以截短。连这也失败，
	 * 就什么都别再动它。
	 */
	if (rc && write_header(writer, old))
		writer->ready = false;
	return rc;
}

void needle_writer_close(struct needle_writer *writer)
{
	uint64_t cut;

	/* 没拿到锁、或文件是坏的：那就一个字节也不能截。截不掉，下一个写者会截。*/
	if (writer->ready)
		cut_tail(writer, &cut);
	if (writer->path && writer->fd >= 0)
		close(writer->fd);
	free(writer->path);
	*writer = (struct needle_writer){ 0 };
}

// SPDX-License-Identifier: MIT
/*
 * store.c —— 打开一个 volume 来读：映射、逐个 record 检查、建索引
 *
 * 打开时只看每个 record 的头（32 字节），不碰数据：一个 volume 可能有几十 GB，而数据
 * 的 CRC 在真正用到它的时候再查（needle_check，或者远端的 engine 读完之后自己查）。
 */
#include "store.h"
#include "base/call_failed.h"

#include "base/arguments.h"
#include "base/array.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"
#include "format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITER_MS 1000 /* 等写者把文件头写完的上限 */

static int no_memory(const char *path)
{
	return fail(-ENOMEM, NULL, "%s: no memory for the index", path);
}

/* ---- 索引 ---------------------------------------------------------------- */

static int add_record(struct needle_volume *volume, const struct needle *needle,
		      const char *path)
{
	size_t n = volume->n_records;
	struct needle *records =
		array_room(volume->records, n, sizeof(*records));

	if (!records)
		return no_memory(path);
	records[n] = *needle;
	volume->records = records;
	volume->n_records = n + 1;
	return 0;
}

static int by_id_then_offset(const void *a, const void *b)
{
	const struct needle *x = *(const struct needle *const *)a;
	const struct needle *y = *(const struct needle *const *)b;

	if (x->needle_id != y->needle_id)
		return x->needle_id < y->needle_id ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

/*
 * 排序加二分，而不用哈希表：建好之后不再改变，一次 qsort 就够；它也没有“精心挑选的
 * needle_id 让所有项撞在一起”的问题。
 */
static int build_index(struct needle_volume *volume, const char *path)
{
	size_t n = volume->n_records, kept = 0;
	const struct needle **live = calloc(n ? n : 1, sizeof(*live));

	if (!live)
		return no_memory(path);
	for (size_t i = 0; i < n; i++)
		live[i] = &volume->records[i];
	qsort(live, n, sizeof(*live), by_id_then_offset);
	/* 同一个 needle 的多个 record 已按先后排好：只留最后一个。*/
	for (size_t i = 0; i < n; i++)
		if (i + 1 == n || live[i]->needle_id != live[i + 1]->needle_id)
			live[kept++] = live[i];
	volume->live = live;
	volume->n_live = kept;
	return 0;
}

/* ---- 逐个 record --------------------------------------------------------- */

static int scan(struct needle_volume *volume, const char *path)
{
	uint64_t at = NEEDLE_VOLUME_HEADER;
	int rc = 0;

	while (!rc && at < volume->length) {
		struct needle needle;

		rc = needle_read_record_header(volume->map + at, path,
					       volume->volume_id, at,
					       volume->length - at, &needle);
		if (!rc)
			rc = add_record(volume, &needle, path);
		/* 头已通过检查，所以这个和不会超过 length，更不会溢出。*/
		if (!rc)
			at += needle_record_bytes(needle.size);
	}
	return rc ? rc : build_index(volume, path);
}

void needle_volume_forget(struct needle_volume *volume)
{
	free(volume->live);
	free(volume->records);
	*volume = (struct needle_volume){ 0 };
}

/* @header：文件的前 32 个字节；文件没有那么长时不去看它。*/
static int read_header(struct needle_volume *volume, const uint8_t *header,
		       uint64_t size, uint32_t volume_id, const char *path)
{
	int rc;

	*volume = (struct needle_volume){ .volume_id = volume_id };
	/* 新的 volume 生来就有头（writer.c）：没有，就是后来丢的。*/
	if (size < NEEDLE_VOLUME_HEADER)
		return fail(-EBADMSG,
			    "restore the volume from a copy; if nothing was "
			    "ever put there, remove the file",
			    "%s: its header is gone: %ju bytes are no volume",
			    path, size);
	rc = needle_read_volume_header(header, path, volume_id, size,
				       &volume->length);
	if (!rc)
		volume->tail = size - volume->length;
	return rc;
}

int needle_volume_parse(struct needle_volume *volume, const void *bytes,
			uint64_t size, uint32_t volume_id, const char *path)
{
	int rc = read_header(volume, bytes, size, volume_id, path);

	volume->map = bytes;
	if (!rc)
		rc = scan(volume, path);
	if (rc)
		needle_volume_forget(volume);
	return rc;
}

/* ---- 文件 ---------------------------------------------------------------- */

void needle_volume_close(struct needle_volume *volume)
{
	if (volume->map)
		munmap((void *)volume->map, volume->length);
	needle_volume_forget(volume);
}

int needle_volume_load(struct needle_volume *volume, int fd, const char *path,
		       uint32_t volume_id,
		       const uint8_t header[NEEDLE_VOLUME_HEADER],
		       uint64_t file_size)
{
	void *map;
	int rc = read_header(volume, header, file_size, volume_id, path);

	if (rc)
		return rc;
	/*
	 * 只映射 committed 以内的部分：写者会截掉它后面的残尾，但绝不会截到它前面，
	 * 所以映射里的每一页都在文件之内（越过文件末尾去读会收到 SIGBUS）。
	 *
	 * 为什么是 MAP_PRIVATE？CPU 来读，它与 MAP_SHARED 没有差别；但注册成 MR 时，
	 * 内核不许长期 pin 住文件的 page cache（见 server/needle_memory.c）。
	 */
	map = mmap(NULL, volume->length, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return call_failed(errno, "mmap(%s)", path);
	volume->map = map;
	rc = scan(volume, path);
	if (rc)
		needle_volume_close(volume);
	return rc;
}

int needle_read_start(int fd, const char *path,
		      uint8_t header[NEEDLE_VOLUME_HEADER], uint64_t *size)
{
	struct stat st;

	memset(header, 0, NEEDLE_VOLUME_HEADER);
	if (fstat(fd, &st))
		return call_failed(errno, "fstat(%s)", path);
	if (!S_ISREG(st.st_mode))
		return fail(-EINVAL, "remove it from the store",
			    "%s: this is no regular file", path);
	/* 先读头、后问大小：文件只会变长，所以 committed 一定落在这个大小以内。*/
	if (pread(fd, header, NEEDLE_VOLUME_HEADER, 0) < 0)
		return call_failed(errno, "pread(%s)", path);
	if (fstat(fd, &st))
		return call_failed(errno, "fstat(%s)", path);
	*size = (uint64_t)st.st_size;
	return 0;
}

/*
 * 拿得到共享锁，就说明此刻没有写者：头是完整的，后面多出来的就是残尾。拿不到也不必等
 * 他写完（可能要几分钟）：他只在最后一刻改那 32 个字节，恰好读到一半时 CRC 会对不上，
 * 再读一次就是了。此时多出来的部分是他正在写的，不是残尾。
 */
static int read_stable_header(int fd, const char *path, uint8_t *header,
			      uint64_t *size, bool *writer)
{
	const int64_t deadline = deadline_in_ms(WRITER_MS);
	int rc;

	for (;;) {
		*writer = flock(fd, LOCK_SH | LOCK_NB) != 0;
		if (*writer && errno != EWOULDBLOCK)
			return call_failed(errno, "flock(%s)", path);
		rc = needle_read_start(fd, path, header, size);
		if (!*writer)
			flock(fd, LOCK_UN);
		if (rc || !*writer || needle_volume_header_is_whole(header) ||
		    deadline_passed(deadline))
			return rc;
		rc = deadline_sleep_ms(1, deadline);
		if (rc)
			return rc;
	}
}

static int open_failed(const char *path, uint32_t volume_id)
{
	if (errno == ENOENT)
		return fail(-ENOENT, "build/needle list shows what there is",
			    "open(%s): there is no volume %u", path, volume_id);
	return call_failed(errno, "open(%s)", path);
}

int needle_volume_open(struct needle_volume *volume, const char *dir,
		       uint32_t volume_id)
{
	uint8_t header[NEEDLE_VOLUME_HEADER];
	bool writer = false;
	uint64_t size = 0;
	char *path;
	int fd, rc;

	*volume = (struct needle_volume){ 0 };
	rc = needle_volume_path(dir, volume_id, &path);
	if (rc)
		return rc;
	/* O_NONBLOCK：若它是个 FIFO，open 会一直等到有人来写。*/
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	rc = fd < 0 ? open_failed(path, volume_id)
		    : read_stable_header(fd, path, header, &size, &writer);
	if (!rc)
		rc = needle_volume_load(volume, fd, path, volume_id, header,
					size);
	if (!rc && writer)
		volume->tail = 0;
	if (!rc && volume->tail)
		report_warning("the next put cuts them off",
			       "%s: a put was interrupted: the last %ju bytes, "
			       "from offset %ju, are not read",
			       path, volume->tail, volume->length);
	/* 映射自己持有文件，描述符可以关了。*/
	if (fd >= 0)
		close(fd);
	free(path);
	return rc;
}

/* ---- 查找与核对 ---------------------------------------------------------- */

static int id_against(const void *key, const void *item)
{
	const uint64_t *id = key;
	const struct needle *needle = *(const struct needle *const *)item;

	return (*id > needle->needle_id) - (*id < needle->needle_id);
}

const struct needle *needle_find(const struct needle_volume *volume,
				 uint64_t needle_id)
{
	const struct needle **found = NULL;

	if (volume->n_live)
		found = bsearch(&needle_id, volume->live, volume->n_live,
				sizeof(*found), id_against);
	return found ? *found : NULL;
}

const uint8_t *needle_data(const struct needle_volume *volume,
			   const struct needle *needle)
{
	return volume->map + needle->offset + NEEDLE_RECORD_HEADER;
}

int needle_check(const struct needle_volume *volume,
		 const struct needle *needle, const char *dir)
{
	uint32_t crc = crc32c(0, needle_data(volume, needle), needle->size);

	if (crc == needle->crc32c)
		return 0;
	return fail(-EBADMSG,
		    "put the needle again, or restore the volume from a copy",
		    "%s/volume-%u.needles: the data of needle %ju at offset "
		    "%ju are damaged: the record's CRC-32C says 0x%08x, the "
		    "bytes give 0x%08x",
		    dir, volume->volume_id, needle->needle_id,
		    needle->offset + NEEDLE_RECORD_HEADER, needle->crc32c, crc);
}

/* ---- 一个 store 里有哪些 volume ------------------------------------------ */

/* 名字必须恰好是我们写出来的样子："volume-07.needles" 不是 volume 7。*/
static bool volume_of_name(const char *name, uint32_t *volume_id)
{
	char digits[16], again[32];
	uint64_t n;

	if (sscanf(name, "volume-%10[0-9].needles", digits) != 1 ||
	    !parse_number(digits, 0, UINT32_MAX, &n))
		return false;
	*volume_id = (uint32_t)n;
	snprintf(again, sizeof(again), "volume-%u.needles", *volume_id);
	return !strcmp(again, name);
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int read_folder(DIR *folder, const char *dir, uint32_t **ids, size_t *n)
{
	struct dirent *entry;
	uint32_t id, *more;

	while ((errno = 0, entry = readdir(folder))) {
		if (!volume_of_name(entry->d_name, &id))
			continue;
		more = array_room(*ids, *n, sizeof(*more));
		if (!more)
			return no_memory(dir);
		more[(*n)++] = id;
		*ids = more;
	}
	return errno ? call_failed(errno, "readdir(%s)", dir) : 0;
}

int needle_store_volumes(const char *dir, uint32_t **ids, size_t *n)
{
	DIR *folder = opendir(dir);
	uint32_t *found = NULL;
	size_t count = 0;
	int rc;

	if (!folder)
		return call_failed_for(errno, NULL,
				       "build/needle put makes the first "
				       "volume in a folder that exists",
				       "opendir(%s)", dir);
	rc = read_folder(folder, dir, &found, &count);
	closedir(folder);
	if (rc) {
		free(found);
		return rc;
	}
	if (count)
		qsort(found, count, sizeof(*found), ascending);
	*ids = found;
	*n = count;
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * needle.c —— 往 store 里放 needle、取出来、列出来、整个核对一遍
 *
 * 这里没有 RDMA：它只管磁盘上的文件。needle_server 把这些文件映射、注册、让 engine
 * 用 RDMA READ 来读；本程序则是“不经过网络”的另一条路，用来装填和对照。
 */
#include "needle_options.h"

#include "base/call_failed.h"
#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/report.h"
#include "needle/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define CHUNK 65536 /* 一次搬运的字节数：内存用量与 needle 的大小无关 */

static int stopped(void)
{
	return fail(-EINTR, NULL, "stopped by a signal");
}

/* ---- put ------------------------------------------------------------------ */

/* 返回读到的字节数，0 是到头了。*/
static ssize_t read_chunk(int fd, const char *name, char *chunk, int wait_ms)
{
	ssize_t n;
	int rc;

	do {
		rc = wait_fd(fd, POLLIN, deadline_in_ms(wait_ms));
		if (rc == -EINTR)
			return stopped();
		if (rc == -ETIMEDOUT)
			return fail(rc, "--timeout SECS waits longer",
				    "read(%s): nothing came for %d s", name,
				    wait_ms / 1000);
		if (rc)
			return call_failed(-rc, "poll(%s)", name);
		n = read(fd, chunk, CHUNK);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	return call_failed(errno, "read(%s)", name);
}

static int append_from(struct needle_writer *writer, int fd, const char *name,
		       int wait_ms)
{
	static char chunk[CHUNK];
	ssize_t n;
	int rc = 0;

	while (!rc && (n = read_chunk(fd, name, chunk, wait_ms)) != 0)
		rc = n < 0 ? (int)n : needle_append(writer, chunk, (size_t)n);
	return rc;
}

static int put_from(const struct needle_options *opt, int fd, const char *name)
{
	struct needle_writer writer;
	int rc = needle_writer_open(&writer, opt->store, opt->volume_id,
				    deadline_in_ms(opt->wait_ms));

	if (rc)
		return rc;
	needle_begin(&writer, opt->needle_id, opt->cookie);
	rc = append_from(&writer, fd, name, opt->wait_ms);
	if (!rc)
		rc = needle_end(&writer);
	if (!rc)
		rc = needle_commit(&writer);
	/* 说“放好了”之前，它必须已经在盘上。*/
	if (!rc)
		report_result("volume %u needle %ju cookie %u: %ju bytes, "
			      "CRC-32C 0x%08x",
			      opt->volume_id, opt->needle_id, opt->cookie,
			      writer.needle.size, writer.needle.crc32c);
	needle_writer_close(&writer);
	return rc;
}

static int put(struct needle_options *opt)
{
	int fd = STDIN_FILENO;
	int rc;

	/* cookie 的用处是让人猜不中，所以默认取随机数，而不是 0。*/
	if (!opt->have_cookie && getrandom(&opt->cookie, sizeof(opt->cookie),
					   0) != sizeof(opt->cookie))
		return call_failed_for(errno, NULL, "give a COOKIE",
				       "getrandom(4 bytes)");
	if (opt->file)
		fd = open(opt->file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return call_failed(errno, "open(%s)", opt->file);
	rc = put_from(opt, fd, opt->file ? opt->file : "standard input");
	if (opt->file)
		close(fd);
	return rc;
}

/* ---- get ------------------------------------------------------------------ */

static int get_from(const struct needle_options *opt,
		    const struct needle_volume *volume)
{
	const struct needle *needle = needle_find(volume, opt->needle_id);
	int rc;

	if (!needle)
		return fail(-ENOENT, "build/needle list shows what there is",
			    "volume %u has no needle %ju", opt->volume_id,
			    opt->needle_id);
	/* 错误里不说出真正的 cookie：知道它才算有权读。*/
	if (opt->have_cookie && opt->cookie != needle->cookie)
		return fail(-EACCES, "give the cookie that the put printed",
			    "cookie %u is not that of needle %ju", opt->cookie,
			    opt->needle_id);
	/* 先整个核对，再输出：坏的数据一个字节也不给出去。*/
	rc = needle_check(volume, needle, opt->store);
	if (rc)
		return rc;
	fwrite(needle_data(volume, needle), 1, needle->size, stdout);
	return 0;
}

static int get(struct needle_options *opt)
{
	struct needle_volume volume;
	int rc = needle_volume_open(&volume, opt->store, opt->volume_id);

	if (rc)
		return rc;
	rc = get_from(opt, &volume);
	needle_volume_close(&volume);
	return rc;
}

/* ---- list、verify ---------------------------------------------------------- */

typedef int (*volume_fn)(const struct needle_options *opt,
			 const struct needle_volume *volume, void *context);

/* 一个 volume 坏了，其余的照样看完；返回第一个失败。*/
static int each_volume(const struct needle_options *opt, const uint32_t *ids,
		       size_t n, volume_fn fn, void *context)
{
	struct needle_volume volume;
	int first = 0;

	for (size_t i = 0; i < n && !stop_requested(); i++) {
		int rc = needle_volume_open(&volume, opt->store, ids[i]);

		if (!rc) {
			rc = fn(opt, &volume, context);
			needle_volume_close(&volume);
		}
		if (rc && !first)
			first = rc;
	}
	return stop_requested() ? stopped() : first;
}

static int list_as_text(const struct needle_options *opt,
			const struct needle_volume *volume, void *context)
{
	(void)opt;
	(void)context;
	for (size_t i = 0; i < volume->n_live; i++) {
		const struct needle *needle = volume->live[i];

		printf("%10u %20ju %10u %12ju  0x%08x\n", volume->volume_id,
		       needle->needle_id, needle->cookie, needle->size,
		       needle->crc32c);
	}
	return 0;
}

static int list_as_json(const struct needle_options *opt,
			const struct needle_volume *volume, void *context)
{
	json_t **list = context;
	char id[24];

	(void)opt;
	for (size_t i = 0; *list && i < volume->n_live; i++) {
		const struct needle *needle = volume->live[i];
		json_t *item;

		/* JSON 的数在多数程序里是 double：2^53 以上就不准了。*/
		snprintf(id, sizeof(id), "%ju", needle->needle_id);
		item = json_pack("{s:I, s:s, s:I, s:I, s:I}", "volume",
				 (json_int_t)volume->volume_id, "needle", id,
				 "cookie", (json_int_t)needle->cookie, "size",
				 (json_int_t)needle->size, "crc32c",
				 (json_int_t)needle->crc32c);
		if (json_array_append_new(*list, item)) {
			json_decref(*list);
			*list = NULL; /* 没有内存：print_json_line() 会说，只一次 */
		}
	}
	return 0;
}

static int print_json(const struct needle_options *opt, const uint32_t *ids,
		      size_t n)
{
	json_t *needles = json_array();
	int rc = each_volume(opt, ids, n, list_as_json, &needles);
	int printed = print_json_line(json_pack("{s:o}", "needles", needles));

	return rc ? rc : printed;
}

static int list(struct needle_options *opt)
{
	uint32_t *ids;
	size_t n;
	int rc = needle_store_volumes(opt->store, &ids, &n);

	if (rc)
		return rc;
	if (!opt->json)
		printf("%10s %20s %10s %12s  %s\n", "volume", "needle",
		       "cookie", "bytes", "CRC-32C");
	rc = opt->json ? print_json(opt, ids, n)
		       : each_volume(opt, ids, n, list_as_text, NULL);
	free(ids);
	return rc;
}

struct tally {
	uint64_t needles, superseded, bytes;
};

/* 补齐用的零不在任何 CRC 之内：不是零，说明有人动过这个文件。*/
static bool padding_is_zero(const struct needle_volume *volume,
			    const struct needle *needle)
{
	const uint8_t *at = needle_data(volume, needle);
	uint64_t end = needle_record_bytes(needle->size) - NEEDLE_RECORD_HEADER;

	for (uint64_t i = needle->size; i < end; i++)
		if (at[i])
			return false;
	return true;
}

/* 被取代的旧 record 也要查：它们坏了，说明这块盘靠不住。*/
static int verify_volume(const struct needle_options *opt,
			 const struct needle_volume *volume, void *context)
{
	struct tally *tally = context;
	int first = 0;

	for (size_t i = 0; i < volume->n_records && !stop_requested(); i++) {
		const struct needle *needle = &volume->records[i];
		int rc = needle_check(volume, needle, opt->store);

		if (!rc && !padding_is_zero(volume, needle))
			rc = fail(-EBADMSG, "restore the volume from a copy",
				  "%s/volume-%u.needles: the bytes after "
				  "the record at offset %ju are not zero",
				  opt->store, volume->volume_id,
				  needle->offset);
		tally->bytes += needle->size;
		if (rc && !first)
			first = rc;
	}
	tally->needles += volume->n_live;
	tally->superseded += volume->n_records - volume->n_live;
	return first;
}

static int verify(struct needle_options *opt)
{
	struct tally tally = { 0 };
	uint32_t *ids;
	size_t n;
	int rc = needle_store_volumes(opt->store, &ids, &n);

	if (rc)
		return rc;
	rc = each_volume(opt, ids, n, verify_volume, &tally);
	free(ids);
	report_result("%ju needles, %ju superseded records, %ju bytes: %s",
		      tally.needles, tally.superseded, tally.bytes,
		      rc ? "not all is well" : "all is well");
	return rc;
}

/* ---- make ----------------------------------------------------------------- */

static int make_needle(const struct needle_options *opt,
		       struct needle_writer *writer, uint64_t id)
{
	static char chunk[CHUNK];
	const struct needle_pattern *pattern = &opt->pattern;
	uint32_t volume_id = writer->volume_id;
	uint64_t size = needle_pattern_size(pattern, volume_id, id);
	int rc = stop_requested() ? stopped() : 0;

	needle_begin(writer, id, needle_pattern_cookie(pattern, volume_id, id));
	for (uint64_t at = 0; at < size && !rc;) {
		size_t part = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

		if (stop_requested())
			return stopped();
		needle_pattern_bytes(pattern, volume_id, id, at, chunk, part);
		rc = needle_append(writer, chunk, part);
		at += part;
	}
	return rc ? rc : needle_end(writer);
}

static int make_volume(const struct needle_options *opt, uint32_t volume_id)
{
	struct needle_writer writer;
	int rc = needle_writer_open(&writer, opt->store, volume_id,
				    deadline_in_ms(opt->wait_ms));

	if (rc)
		return rc;
	/* needle 1、2、3… 轮流落在各个 volume 里。*/
	for (uint64_t id = volume_id; id <= opt->count && !rc;
	     id += opt->volumes)
		rc = make_needle(opt, &writer, id);
	/* 整批只 commit 一次：每个 needle 都 fdatasync 两回，一万个就要几分钟。*/
	if (!rc)
		rc = needle_commit(&writer);
	needle_writer_close(&writer);
	return rc;
}

static int make(struct needle_options *opt)
{
	uint32_t volumes = opt->volumes;
	int rc = 0;

	if (volumes > opt->count)
		volumes = (uint32_t)opt->count;
	for (uint32_t id = 1; id <= volumes && !rc; id++)
		rc = make_volume(opt, id);
	if (!rc)
		report_result("%ju needles in %u volumes", opt->count, volumes);
	return rc;
}

/*
 * open 给的是最小的空号。0、1、2 里哪个关着，volume 就成了它：当作标准输入来读，或者让
 * 报错写进自己的头里。
 */
static int check_standard(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			return fail(-errno, "give it /dev/null",
				    "descriptor %d is closed", fd);
	return 0;
}

int main(int argc, char *argv[])
{
	static int (*const commands[])(struct needle_options *) = {
		[NEEDLE_PUT] = put,   [NEEDLE_GET] = get,
		[NEEDLE_LIST] = list, [NEEDLE_VERIFY] = verify,
		[NEEDLE_MAKE] = make,
	};
	struct needle_options opt;
	int rc = needle_options_parse(&opt, argc, argv);
	int flushed;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	/* 超出 ulimit -f 时默认是被杀；改为拿到 EFBIG，好把没写完的截掉。*/
	signal(SIGXFSZ, SIG_IGN);
	rc = check_standard();
	if (!rc)
		rc = commands[opt.command](&opt);
	flushed = report_flush();
	return rc || flushed ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * needle_memory.c —— 把 store 变成别人可以 READ 的内存
 *
 *	volume 文件 ── mmap ── ibv_reg_mr(REMOTE_READ) ── 目录（addr、rkey）
 */
#include "needle_memory.h"

#include "base/array.h"
#include "base/report.h"
#include "explain/explain.h"

#include <errno.h>
#include <stdlib.h>

int needle_memory_open(struct needle_memory *memory, const char *dir)
{
	uint32_t *ids;
	size_t n;
	int rc = needle_store_volumes(dir, &ids, &n);

	if (rc)
		return rc;
	memory->volumes = calloc(n ? n : 1, sizeof(*memory->volumes));
	if (!memory->volumes)
		rc = fail(-ENOMEM, NULL, "no memory for %zu volumes", n);
	/*
	 * 有一个 volume 坏了就不开张：少了它照样服务的话，engine 只会得到“没有这个
	 * needle”，没有人知道其实是磁盘坏了。
	 */
	for (size_t i = 0; i < n && !rc; i++) {
		rc = needle_volume_open(&memory->volumes[i], dir, ids[i]);
		if (!rc)
			memory->n_volumes = i + 1;
	}
	free(ids);
	return rc;
}

// region register
/*
 * 只给 REMOTE_READ：对端拿着 rkey 也写不进来（它会得到 REM_ACCESS_ERR）。READ 不改动
 * 这块内存，所以也不需要 LOCAL_WRITE，只读的映射就可以注册。
 *
 * 但必须是 MAP_PRIVATE。Linux 6.1 注册 MR 时总以“要写”的方式 pin 页，只读的 MAP_SHARED
 * 会得到 EFAULT；更新的内核则不许长期 pin 可写的文件页，因为 DMA 会绕过文件系统的
 * writeback。对 MAP_PRIVATE，pin 之前内核先把页复制成匿名页：从此注册的是一份快照，
 * 占用与 store 同样多的内存，此后文件怎样变化都与它无关。record 从不改写，所以快照
 * 不会过时，只会缺少之后新放进来的 needle。
 */
static int register_run(struct ibv_pd *pd, const struct needle_volume *volume,
			uint64_t offset, uint64_t length, struct ibv_mr **mr)
{
	void *addr = (void *)(volume->map + offset);

	*mr = ibv_reg_mr(pd, addr, length, IBV_ACCESS_REMOTE_READ);
	if (*mr)
		return 0;
	return verb_failed(errno,
			   explain_reg_mr_call(pd, addr, length,
					       IBV_ACCESS_REMOTE_READ, errno),
			   "ibv_reg_mr(volume %u, offset %ju, %ju bytes, "
			   "REMOTE_READ)",
			   volume->volume_id, offset, length);
}
// endregion register

static int add_mr(struct needle_memory *memory, struct ibv_mr *mr)
{
	size_t n = memory->n_mrs;
	struct ibv_mr **mrs = array_room(memory->mrs, n, sizeof(*mrs));

	if (!mrs) {
		report_error(NULL, "no memory for %zu MRs", 2 * n);
		ibv_dereg_mr(mr);
		return -ENOMEM;
	}
	mrs[n] = mr;
	memory->mrs = mrs;
	memory->n_mrs = n + 1;
	return 0;
}

/*
 * 从第 @first 个 record 起，一个不超过 @most 字节的 MR 能装下多少个？返回其后的那一个。
 * 绝不从 record 中间切开：READ 只带一把 rkey，一个 needle 必须整个落在一个 MR 里。
 */
static size_t run_end(const struct needle_volume *volume, size_t first,
		      uint64_t most, uint64_t *length)
{
	uint64_t begin = volume->records[first].offset;
	size_t i;

	*length = 0;
	for (i = first; i < volume->n_records; i++) {
		const struct needle *needle = &volume->records[i];
		uint64_t end =
			needle->offset + NEEDLE_RECORD_HEADER + needle->size;

		if (end - begin > most)
			break;
		*length = end - begin;
	}
	return i;
}

/* 把 volume 切成几个 MR；rkeys[i] 是第 i 个 record 所在 MR 的 rkey。*/
static int register_volume(struct needle_memory *memory, struct ibv_pd *pd,
			   const struct needle_volume *volume, uint64_t most,
			   uint32_t *rkeys)
{
	const struct needle *records = volume->records;
	size_t first, next;

	for (first = 0; first < volume->n_records; first = next) {
		struct ibv_mr *mr;
		uint64_t length;
		int rc;

		next = run_end(volume, first, most, &length);
		if (next == first)
			return fail(-EFBIG, "put it as several needles",
				    "needle %ju of volume %u has %ju bytes and "
				    "%d of header, one MR at most %ju",
				    records[first].needle_id, volume->volume_id,
				    records[first].size, NEEDLE_RECORD_HEADER,
				    most);
		rc = register_run(pd, volume, records[first].offset, length,
				  &mr);
		if (!rc)
			rc = add_mr(memory, mr);
		if (rc)
			return rc;
		for (size_t i = first; i < next; i++)
			rkeys[i] = mr->rkey;
		report_fact("volume %u: %zu records, %ju bytes at %p, rkey "
			    "0x%x",
			    volume->volume_id, next - first, length, mr->addr,
			    mr->rkey);
	}
	return 0;
}

/* 目录里只列有效的 needle；被取代的 record 仍在 MR 里，但没有人知道它在哪里。*/
static int list_volume(struct needle_catalog *catalog,
		       const struct needle_volume *volume,
		       const uint32_t *rkeys)
{
	int rc = 0;

	for (size_t i = 0; i < volume->n_live && !rc; i++) {
		const struct needle *needle = volume->live[i];
		struct needle_entry entry = {
			.volume_id = volume->volume_id,
			.needle_id = needle->needle_id,
			.cookie = needle->cookie,
			.remote_addr = (uintptr_t)needle_data(volume, needle),
			.rkey = rkeys[needle - volume->records],
			.size = needle->size,
			.crc32c = needle->crc32c,
		};

		rc = needle_catalog_add(catalog, &entry);
	}
	return rc;
}

int needle_memory_register(struct needle_memory *memory, struct ibv_pd *pd,
			   uint64_t most)
{
	int rc = 0;

	for (size_t i = 0; i < memory->n_volumes && !rc; i++) {
		const struct needle_volume *volume = &memory->volumes[i];
		uint32_t *rkeys = calloc(volume->n_records + 1, sizeof(*rkeys));

		if (!rkeys)
			return fail(-ENOMEM, NULL, "no memory for the keys");
		rc = register_volume(memory, pd, volume, most, rkeys);
		if (!rc)
			rc = list_volume(&memory->catalog, volume, rkeys);
		free(rkeys);
	}
	return rc;
}

int needle_memory_close(struct needle_memory *memory)
{
	int first = 0;

	/* 先 dereg 再 munmap：反过来的话，网卡仍握着已经不属于我们的页。*/
	for (size_t i = 0; i < memory->n_mrs; i++) {
		int err = ibv_dereg_mr(memory->mrs[i]);

		if (!first)
			first = check_destroyed("ibv_dereg_mr", err);
	}
	for (size_t i = 0; i < memory->n_volumes; i++)
		needle_volume_close(&memory->volumes[i]);
	needle_catalog_free(&memory->catalog);
	free(memory->mrs);
	free(memory->volumes);
	*memory = (struct needle_memory){ 0 };
	return first;
}

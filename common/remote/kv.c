// SPDX-License-Identifier: MIT
/*
 * kv.c —— 放在别人内存里的 key-value store
 *
 * 读：READ 锁字，得到版本 v；READ 半边 v & 1；核对 crc 与版本。两次往返，不拿锁，不等
 * 任何人——哪怕正有人在写，哪怕写的人死了。
 *
 * 写：CAS 拿锁；WRITE 另外半边；CAS 放锁，版本加 1。最后这一个 CAS 既放了锁，又把新值
 * “翻”了出来：在它之前死掉，旧值一个字节也没动；在它之后，新值已经完整。
 *
 * 读也会读坏：拿到 v 之后耽搁了，别人写完 v + 1 又在写 v + 2，写的正是这半边。READ 与
 * WRITE 都是一个包一个包地做的，谁也不给谁上锁，于是拿到一半新、一半旧。crc 与版本号
 * 认得出来：数一笔，重读。
 */
#include "kv.h"

#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define HEAD	    64u /* 锁字独占一条 cache line */
#define PROBES_MOST 64u /* 一个 key 只会在这么多个 cell 之内 */

/* One half of a cell. In the byte order of the server's host. */
struct kv_half {
	uint32_t crc; /* CRC-32C of all that follows, as far as it is used */
	uint32_t version;
	uint32_t length;	   /* bytes of value */
	char key[KV_KEY_MOST + 1]; /* ends with NULs */
	char value[];
};

static uint32_t half_bytes(const struct kv *kv)
{
	return (kv->memory->cell_bytes - HEAD) / 2 / 8 * 8;
}

static uint32_t half_at(const struct kv *kv, uint32_t version)
{
	return HEAD + (version & 1) * half_bytes(kv);
}

uint32_t kv_value_most(const struct kv *kv)
{
	return half_bytes(kv) - (uint32_t)sizeof(struct kv_half);
}

/* ---- 一份值 ----------------------------------------------------------------- */

static uint32_t checksum(const struct kv_half *half)
{
	const size_t from = offsetof(struct kv_half, version);

	return crc32c(0, &half->version,
		      offsetof(struct kv_half, value) - from + half->length);
}

static void kv_seal(struct kv_half *half, uint32_t version)
{
	half->version = version;
	half->crc = checksum(half);
}

// region kv-check
/*
 * 锁字里的版本是 @version。在它之后读到的 @half 是不是完整的这一版？-EBADMSG：
 * 内容损坏；-ESTALE：另一个版本。
 */
static int kv_check(const struct kv_half *half, uint32_t version, uint32_t most)
{
	/* 先检查长度：内容损坏时，它可以是任何数。*/
	if (half->length > most || half->key[KV_KEY_MOST] ||
	    half->crc != checksum(half))
		return -EBADMSG;
	return half->version == version ? 0 : -ESTALE;
}
// endregion kv-check

/* ---- 读一个 cell ------------------------------------------------------------- */

/* 核对要在自己的内存里做：buffer 里的已经是一份拷贝，对端改不着。*/
static struct kv_half *half_of(const struct kv *kv)
{
	return (struct kv_half *)(void *)memory_buffer(kv->memory);
}

/* 读出一个完整的版本，放在 buffer 里；@version 0：这个 cell 还是空的。*/
static int read_cell(struct kv *kv, uint32_t cell, uint32_t *version)
{
	struct remote_memory *memory = kv->memory;
	const int64_t deadline = deadline_in_ms(memory->timeout_ms);
	uint64_t word;
	int rc;

	for (;;) {
		rc = memory_read(memory, cell, 0, sizeof(word));
		if (rc)
			return rc;
		memcpy(&word, memory_buffer(memory), sizeof(word));
		*version = LOCK_COUNT(word);
		if (!*version)
			return 0;
		rc = memory_read(memory, cell, half_at(kv, *version),
				 half_bytes(kv));
		if (rc)
			return rc;
		rc = kv_check(half_of(kv), *version, kv_value_most(kv));
		if (!rc)
			return 0;
		kv->torn += rc == -EBADMSG;
		kv->overtaken += rc == -ESTALE;
		/* 读坏了就重读。一直坏，就不是碰上了写：是有人不守约。*/
		if (deadline_passed(deadline) || stop_requested())
			return fail(-EBADMSG,
				    "does every client keep to the rules?",
				    "version %u in cell %u stays damaged",
				    *version, cell);
	}
}

/* ---- 找 --------------------------------------------------------------------- */

static uint32_t probe(const struct kv *kv, const char *key, uint32_t i)
{
	return 1 + (crc32c(0, key, strlen(key)) + i) % (kv->memory->cells - 1);
}

static uint32_t probes(const struct kv *kv)
{
	const uint32_t cells = kv->memory->cells - 1;

	return cells < PROBES_MOST ? cells : PROBES_MOST;
}

/*
 * @key 所在的 cell，或者它该去的第一个空 cell（@version 0）；没有空的，-ENOSPC，不报告。
 * key 从不删除、从不搬家，所以遇到空的就不必再往后找。
 */
static int find(struct kv *kv, const char *key, uint32_t *cell,
		uint32_t *version)
{
	for (uint32_t i = 0; i < probes(kv); i++) {
		int rc;

		*cell = probe(kv, key, i);
		rc = read_cell(kv, *cell, version);
		if (rc || !*version || !strcmp(half_of(kv)->key, key))
			return rc;
	}
	return -ENOSPC;
}

int kv_get(struct kv *kv, const char *key, void *value, uint32_t *length,
	   uint32_t *version)
{
	uint32_t cell;
	int rc = find(kv, key, &cell, version);

	if (rc == -ENOSPC || (!rc && !*version))
		return -ENOENT;
	if (rc)
		return rc;
	*length = half_of(kv)->length;
	memcpy(value, half_of(kv)->value, *length);
	return 0;
}

/* ---- 写 --------------------------------------------------------------------- */

// region kv-put
static int write_half(struct kv *kv, uint32_t cell, const char *key,
		      const void *value, uint32_t length, uint32_t version)
{
	struct kv_half *half = half_of(kv);

	memset(half, 0, sizeof(*half));
	strcpy(half->key, key);
	half->length = length;
	memcpy(half->value, value, length);
	kv_seal(half, version);
	/* 不必等待：解锁的 CAS 在同一个 QP 上，排在它后面。*/
	return memory_write(kv->memory, cell, half_at(kv, version),
			    (uint32_t)sizeof(*half) + length);
}

/*
 * 持有锁时写入。@version：查找时看到的版本。如果当时是空的，现在却已被占用，可
 * 能是别的 key 占用了它：解锁后重新查找（-EAGAIN）。
 */
static int put_locked(struct kv *kv, uint32_t cell, const char *key,
		      const void *value, uint32_t length, uint32_t *version)
{
	uint64_t word;
	uint32_t now;
	int rc = memory_lock(kv->memory, cell, &word);

	if (rc)
		return rc;
	/*
	 * 不必处理 LOCK_ORPHANED：已退出的 client 写的是没有人读的半区，这次写
	 * 入会覆盖它。
	 */
	now = LOCK_COUNT(word);
	if (!*version && now) {
		rc = memory_unlock(kv->memory, cell, word, now);
		return rc ? rc : -EAGAIN;
	}
	*version = now + 1;
	rc = write_half(kv, cell, key, value, length, *version);
	return rc ? rc : memory_unlock(kv->memory, cell, word, *version);
}
// endregion kv-put

int kv_put(struct kv *kv, const char *key, const void *value, uint32_t length,
	   uint32_t *version)
{
	uint32_t cell;
	int rc;

	if (length > kv_value_most(kv))
		return fail(-EMSGSIZE,
			    "start memory_server with larger --cell-bytes",
			    "the value has %u bytes, a cell holds %u", length,
			    kv_value_most(kv));
	do {
		rc = find(kv, key, &cell, version);
		if (rc == -ENOSPC)
			return fail(rc, "start memory_server with more --cells",
				    "no cell is free for key \"%s\": %u were "
				    "looked at",
				    key, probes(kv));
		if (!rc)
			rc = put_locked(kv, cell, key, value, length, version);
	} while (rc == -EAGAIN);
	return rc;
}

int kv_count(struct kv *kv, uint64_t *keys, uint64_t *puts)
{
	uint32_t version;
	int rc = 0;

	*keys = *puts = 0;
	for (uint32_t cell = 1; cell < kv->memory->cells && !rc; cell++) {
		rc = read_cell(kv, cell, &version);
		*keys += !rc && version;
		*puts += rc ? 0 : version;
	}
	return rc;
}

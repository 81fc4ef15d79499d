// SPDX-License-Identifier: MIT
/*
 * memory.c —— 在别人借出的内存里干活：连上，READ、WRITE、CAS 各等各的，以及锁
 *
 *	client A ──CAS──┐
 *	client B ──READ─┼──> server 的网卡 ──> cell（锁字、内容）   server 的程序在睡觉
 *	client C ─WRITE─┘
 *
 * 锁字也只是 8 个字节：持有者的号码写在里面，别人的 CAS 就换不成。它能守住什么，全靠大家
 * 守约——MR 对每个 client 都是整块可写的。
 */
#include "memory.h"

#include "base/deadline.h"
#include "base/report.h"

#include <endian.h>
#include <errno.h>

enum {
	DATA,	   /* send slot：READ 到这里，从这里 WRITE */
	ATOMIC,	   /* send slot：原子操作带回来的原值 */
	SLOTS = 4, /* 两个不等的 WRITE，再加一个等的 */
};

static uint64_t address(const struct remote_memory *memory, uint32_t cell,
			uint32_t offset)
{
	return memory->res.remote.addr + (uint64_t)cell * memory->cell_bytes +
	       offset;
}

/* ---- 连上 ------------------------------------------------------------------- */

static int check_plan(const struct remote_memory *memory,
		      const struct memory_plan *plan)
{
	const uint64_t bytes = (uint64_t)memory->cells * memory->cell_bytes;

	if (be32toh(plan->magic) != MEMORY_MAGIC)
		return fail(-EPROTO, "start build/memory_server there",
			    "the server lends no memory: 0x%08x, not 0x%08x",
			    be32toh(plan->magic), MEMORY_MAGIC);
	if (plan->order != MEMORY_ORDER)
		return fail(-EPROTO, "use hosts of one byte order",
			    "the server's host has another byte order");
	if (!memory->number || memory->number != LOCK_HOLDER(memory->number) ||
	    !memory->cells || memory->cell_bytes < MEMORY_CELL_LEAST ||
	    memory->cell_bytes > MEMORY_CELL_MOST || memory->cell_bytes % 64 ||
	    bytes > memory->res.remote.size)
		return fail(-EPROTO, "run the same build on both sides",
			    "the server's plan cannot be: client %u, %u cells "
			    "of %u bytes in %u",
			    memory->number, memory->cells, memory->cell_bytes,
			    memory->res.remote.size);
	return 0;
}

static int learn_plan(struct remote_memory *memory, int64_t deadline)
{
	struct memory_plan plan;
	int rc = sock_read_exact(memory->sock, &plan, sizeof(plan), deadline,
				 "plan of the memory");

	if (rc)
		return rc;
	memory->number = be32toh(plan.number);
	memory->cells = be32toh(plan.cells);
	memory->cell_bytes = be32toh(plan.cell_bytes);
	return check_plan(memory, &plan);
}

int memory_open(struct remote_memory *memory, const struct rdma_options *opt)
{
	struct rdma_config config = opt->config;
	int64_t deadline;
	int rc;

	memory->sock = -1;
	memory->timeout_ms = timeout_or(opt, POLL_TIMEOUT_MS);
	if (!config.msg_size)
		config.msg_size = MEMORY_CELL_MOST;
	if (config.send_slots < SLOTS)
		config.send_slots = SLOTS;
	rc = init_rdma_resources(&memory->res, &config);
	if (!rc)
		rc = modify_qp_to_init(&memory->res);
	if (rc)
		return rc;
	deadline = deadline_in_ms(timeout_or(opt, EXCHANGE_TIMEOUT_MS));
	memory->sock = tcp_connect(opt->server, opt->tcp_port, deadline);
	if (memory->sock < 0)
		return memory->sock;
	rc = connect_qp(&memory->res, memory->sock, deadline);
	return rc ? rc : learn_plan(memory, deadline);
}

int memory_close(struct remote_memory *memory)
{
	/* 不用道别：server 一看到 TCP 断开，就拆掉那一头的 QP。*/
	sock_close(&memory->sock);
	return destroy_rdma_resources(&memory->res);
}

/* ---- 一次请求，等它做完 ------------------------------------------------------- */

static int done(struct remote_memory *memory, uint64_t wr_id)
{
	return poll_completion(&memory->res, wr_id, NULL, memory->timeout_ms);
}

char *memory_buffer(const struct remote_memory *memory)
{
	return send_slot(&memory->res, DATA);
}

int memory_read(struct remote_memory *memory, uint32_t cell, uint32_t offset,
		uint32_t length)
{
	struct ibv_sge into = { .addr = (uintptr_t)memory_buffer(memory),
				.length = length,
				.lkey = memory->res.mr->lkey };
	int rc = post_read(&memory->res, DATA, &into,
			   address(memory, cell, offset),
			   memory->res.remote.rkey);

	return rc ? rc : done(memory, WR_ID_READ(DATA));
}

int memory_write(struct remote_memory *memory, uint32_t cell, uint32_t offset,
		 uint32_t length)
{
	/*
	 * 不要 completion：同一个 QP 上，后面的 CAS 一定在它之后执行；CAS 成了，它就
	 * 已经在对端了。失败的话，出错的 completion 总会来。
	 */
	return post_write(&memory->res, DATA, length,
			  address(memory, cell, offset),
			  memory->res.remote.rkey, 0);
}

static int memory_swap(struct remote_memory *memory, uint32_t cell,
		       uint32_t offset, uint64_t expected, uint64_t desired,
		       uint64_t *before)
{
	int rc = post_compare_swap(&memory->res, ATOMIC,
				   address(memory, cell, offset),
				   memory->res.remote.rkey, expected, desired);

	if (!rc)
		rc = done(memory, WR_ID_SWAP(ATOMIC));
	*before = rc ? 0 : atomic_result(&memory->res, ATOMIC);
	return rc;
}

int memory_add(struct remote_memory *memory, uint32_t cell, uint32_t offset,
	       uint64_t add, uint64_t *before)
{
	int rc = post_fetch_add(&memory->res, ATOMIC,
				address(memory, cell, offset),
				memory->res.remote.rkey, add);

	if (!rc)
		rc = done(memory, WR_ID_ADD(ATOMIC));
	*before = rc ? 0 : atomic_result(&memory->res, ATOMIC);
	return rc;
}

/* ---- 锁 --------------------------------------------------------------------- */

static int read_word(struct remote_memory *memory, uint32_t cell,
		     uint64_t *word)
{
	int rc = memory_read(memory, cell, 0, sizeof(*word));

	if (!rc)
		*word = *(const uint64_t *)(const void *)memory_buffer(memory);
	return rc;
}

/* 锁在别人手里：歇一会儿再看。CAS 抢锁会让设备白干活，READ 便宜些。*/
static int wait_until_free(struct remote_memory *memory, uint32_t cell,
			   uint64_t *word, int64_t deadline)
{
	struct poll_pause pause = { 0 };
	int rc = 0;

	memory->lock_waits += LOCK_HOLDER(*word) != 0;
	while (!rc && LOCK_HOLDER(*word)) {
		rc = pause_between_polls(&pause, deadline, 0);
		if (rc == -ETIMEDOUT)
			return fail(rc,
				    "is it stopped? the server sends it away "
				    "after --lease",
				    "client %u has kept the lock of cell %u "
				    "for %d ms",
				    LOCK_HOLDER(*word), cell,
				    memory->timeout_ms);
		if (rc)
			return wait_failed(rc, "%s", "waiting for a lock");
		rc = read_word(memory, cell, word);
	}
	return rc;
}

// region remote-lock
int memory_lock(struct remote_memory *memory, uint32_t cell, uint64_t *before)
{
	const int64_t deadline = deadline_in_ms(memory->timeout_ms);
	uint64_t expected, found = 0;
	int rc = read_word(memory, cell, &found);

	do {
		rc = rc ? rc : wait_until_free(memory, cell, &found, deadline);
		if (rc)
			return rc;
		/*
		 * 锁看上去空闲，不等于已经得到：以 CAS 的结果为准。期望值里有
		 * count，所以“解锁、修改、再解锁”之后也不会匹配（ABA）。
		 */
		expected = found;
		rc = memory_swap(memory, cell, 0, expected,
				 LOCK_FREE_AT(LOCK_COUNT(expected)) |
					 memory->number,
				 &found);
	} while (rc || found != expected);
	*before = expected;
	return 0;
}

int memory_unlock(struct remote_memory *memory, uint32_t cell, uint64_t before,
		  uint32_t count)
{
	const uint64_t held = LOCK_FREE_AT(LOCK_COUNT(before)) | memory->number;
	uint64_t found;
	/*
	 * 不用 WRITE 写 0，而用 CAS：锁如果已经不属于自己，立刻就能发现。之前
	 * post 的 WRITE 都排在它前面，所以看到新 count 的 client，看到的内容也
	 * 是新的。
	 */
	int rc =
		memory_swap(memory, cell, 0, held, LOCK_FREE_AT(count), &found);

	if (!rc && found != held)
		return fail(-EPROTO, "does every client keep to the rules?",
			    "the lock of cell %u was mine (0x%jx), and is "
			    "0x%jx",
			    cell, (uintmax_t)held, (uintmax_t)found);
	return rc;
}
// endregion remote-lock

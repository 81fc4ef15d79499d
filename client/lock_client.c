// SPDX-License-Identifier: MIT
/*
 * lock_client.c —— 分布式的计数器与锁：server 的程序一无所知
 *
 * cell 0 里有四个字：
 *
 *	lock     锁字
 *	counter  谁都可以加：一个 FETCH_ADD，不用锁
 *	entries  只有拿着锁的人才改；这两个字永远相等，
 *	exits    除了正在改的时候
 *
 * 一轮：counter 加 1；拿锁，核对 entries == exits，各加 1（两个 WRITE），放锁。
 *
 * 在任何一处被杀，别人都不受影响：server 先拆掉死者的 QP，再放开它的锁，标上
 * LOCK_ORPHANED。下一个拿到锁的人看到标记，先修：exits 补到 entries，等于替死者做完。
 * 修的人死在半路，标记还会再来，再修一遍也不坏事。
 *
 * 补不回来的只有“知不知道”：死者最后那个请求做没做成，没有人知道。所以 counter 与
 * entries 可能各比活着的人记得的多，每个死者至多多 1。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/report.h"
#include "remote/memory.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define CELL 0

struct shared {
	uint64_t lock;
	uint64_t counter;
	uint64_t entries;
	uint64_t exits;
};
#define OFFSET(member) offsetof(struct shared, member)

struct lock_options {
	struct rdma_options where;
	uint64_t rounds;
};

struct tally {
	uint64_t rounds;
	uint64_t repairs; /* records that a lost holder left half done */
	uint64_t counter; /* as this client saw it last */
	uint64_t entries;
};

#define USAGE "usage: lock_client [options] <server_ip> " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] = USAGE
	"\n\n"
	"Adds to a counter by FETCH_ADD and, under a lock taken by CMP_SWAP, "
	"to a record\n"
	"of two words, in the memory of memory_server. Checks both each time.\n"
	"A client may be killed at any moment: the lock is free again when the "
	"server\n"
	"has destroyed its QP, and the next holder completes the record. "
	"Nobody knows\n"
	"whether the last request of a killed client was done: each one may "
	"have added\n"
	"1 more than it reported.\n\n"
	"  server_ip          where memory_server runs\n" DEVICE_HELP;
static const char tail[] = "\n" EXIT_CODES;

static int parse(struct lock_options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'n', "rounds", "N", "add N times; 0: only look (default: @)",
		  NUMBER(opt->rounds, 1000, 0, UINT32_MAX) },
		{ EVENTS(opt->where.config.events) },
		{ 't', "timeout", "SECS",
		  "limit of every wait, also for the lock\n(default: 10 for "
		  "the server, 5 for all others)",
		  SECONDS(opt->where.timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(opt->where.json) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, head, tail, 21, NULL, rows };
	int rc;

	*opt = (struct lock_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	return rc < 0 ? options_server(&opt->where, usage, argc, argv) : rc;
}

/* ---- 一轮 ------------------------------------------------------------------- */

static int read_shared(struct remote_memory *memory, struct shared *shared)
{
	int rc = memory_read(memory, CELL, 0, sizeof(*shared));

	if (!rc)
		memcpy(shared, memory_buffer(memory), sizeof(*shared));
	return rc;
}

static int write_word(struct remote_memory *memory, uint32_t offset,
		      uint64_t value)
{
	memcpy(memory_buffer(memory), &value, sizeof(value));
	return memory_write(memory, CELL, offset, sizeof(value));
}

// region lock-guarded
/* 锁在我手里：没有别人改 entries 与 exits。*/
static int change_record(struct remote_memory *memory, bool orphaned,
			 struct tally *tally)
{
	struct shared shared;
	int rc = read_shared(memory, &shared);

	if (rc)
		return rc;
	if (shared.entries != shared.exits && !orphaned)
		return fail(-EBADMSG, NULL,
			    "the lock did not hold: %ju entries, %ju exits",
			    shared.entries, shared.exits);
	/*
	 * 上一个持有者在两个 WRITE 之间退出：让 exits 从 entries 继续，就完成
	 * 了它没有做完的更新。
	 */
	tally->repairs += shared.entries != shared.exits;
	tally->entries = shared.entries + 1;
	rc = write_word(memory, OFFSET(entries), tally->entries);
	/* 同一个 slot 里就是同样的 8 个字节：第二个 WRITE 不必等第一个。*/
	return rc ? rc : write_word(memory, OFFSET(exits), tally->entries);
}

static int one_round(struct remote_memory *memory, struct tally *tally)
{
	uint64_t before, word;
	int rc = memory_add(memory, CELL, OFFSET(counter), 1, &before);

	if (!rc && before < tally->counter)
		rc = fail(-EBADMSG, NULL, "the counter went from %ju to %ju",
			  tally->counter, before);
	if (!rc)
		rc = memory_lock(memory, CELL, &word);
	if (rc)
		return rc;
	tally->counter = before + 1;
	rc = change_record(memory, word & LOCK_ORPHANED, tally);
	return rc ? rc
		  : memory_unlock(memory, CELL, word, LOCK_COUNT(word) + 1);
}
// endregion lock-guarded

/* ---- 从头到尾 --------------------------------------------------------------- */

static int read_result(struct remote_memory *memory, struct tally *tally)
{
	struct shared shared = { 0 };
	int rc = read_shared(memory, &shared);

	tally->counter = shared.counter;
	tally->entries = shared.entries;
	return rc;
}

static int add_rounds(struct remote_memory *memory, uint64_t rounds,
		      struct tally *tally)
{
	int rc = rounds ? 0 : read_result(memory, tally);

	for (; !rc && tally->rounds < rounds; tally->rounds++) {
		rc = one_round(memory, tally);
		if (!rc && stop_requested())
			rc = wait_failed(-EINTR, "%s", "adding");
	}
	return rc;
}

static int print_result(const struct lock_options *opt,
			const struct remote_memory *memory,
			const struct tally *t)
{
	if (opt->where.json)
		return print_json_line(json_pack(
			"{s:s, s:I, s:I, s:I, s:I, s:I}", "role", "lock_client",
			"rounds", (json_int_t)t->rounds, "counter",
			(json_int_t)t->counter, "entries",
			(json_int_t)t->entries, "repairs",
			(json_int_t)t->repairs, "waits",
			(json_int_t)memory->lock_waits));
	report_result("%ju rounds: the counter was at %ju, the record at %ju; "
		      "waited for %ju locks, completed %ju records",
		      t->rounds, t->counter, t->entries, memory->lock_waits,
		      t->repairs);
	return report_flush();
}

int main(int argc, char *argv[])
{
	struct remote_memory memory = { 0 };
	struct tally tally = { 0 };
	struct lock_options opt;
	int rc = parse(&opt, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	report_step("connect to the server of the memory");
	rc = memory_open(&memory, &opt.where);
	if (!rc) {
		report_step("add to the counter and, locked, to the record");
		rc = add_rounds(&memory, opt.rounds, &tally);
	}
	undo = memory_close(&memory);
	if (!rc && !undo)
		rc = print_result(&opt, &memory, &tally);
	return rc || undo ? 1 : 0;
}

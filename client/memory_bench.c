// SPDX-License-Identifier: MIT
/*
 * memory_bench.c —— 单边操作要多久、每秒能做多少：READ、WRITE、FETCH_ADD
 *
 * 在 memory_server 借出的内存里，同一个操作做很多次。--depth 1：做完一个再做下一个，量的
 * 是往返时间；更深：总有那么多个在途，量的是吞吐。做完之后核对内容：一个更快、却没有把
 * 字节送到的实现，测出来的数字毫无意义。
 *
 * --qps N：N 个 QP 轮流来，每个都有自己的 PD、MR、CQ 和 TCP 连接，就像有 N 个 client。
 *
 * 都是 signaled 的：READ 与原子操作本来就要；WRITE 也就一样，谁也不占便宜。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/json_line.h"
#include "base/laps.h"
#include "base/pattern.h"
#include "base/report.h"
#include "remote/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CELL 1
#define SKIP 64u /* 锁字那条 cache line */
#define SEED 2026

enum op {
	READ,
	WRITE,
	ADD
};
static const char *const names[] = { "read", "write", "add" };

struct bench {
	struct rdma_options where;
	struct remote_memory *memory; /* @qps of them */
	enum op op;
	uint64_t iters;
	uint32_t size, depth, qps;
	struct laps laps;
	double seconds;
};

#define USAGE "usage: memory_bench [options] <server_ip> " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] =
	USAGE "\n\n"
	      "Measures one-sided operations in the memory of memory_server "
	      "and checks the\n"
	      "results. Overwrites cell 1.\n\n"
	      "  server_ip          where memory_server runs\n" DEVICE_HELP;
static const char tail[] = "\n" EXIT_CODES;

static int parse(struct bench *b, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'W', "write", NULL, "measure WRITE (default: READ)",
		  SET(b->op, WRITE) },
		{ 'A', "add", NULL, "measure FETCH_ADD", SET(b->op, ADD) },
		{ 's', "size", "B", "bytes of a READ or WRITE (default: @)",
		  NUMBER(b->size, 64, 8, MEMORY_CELL_MOST - SKIP) },
		{ 'n', "iters", "N", "do it N times (default: @)",
		  NUMBER(b->iters, 1000, 1, 100000000) },
		{ 'd', "depth", "N", "keep N at once, 1 ... # (default: @)",
		  NUMBER(b->depth, 1, 1, 1024) },
		{ 'Q', "qps", "N",
		  "use N QPs in turn, 1 ... # (default: @);\neach has "
		  "--depth at once",
		  NUMBER(b->qps, 1, 1, 256) },
		{ EVENTS(b->where.config.events) },
		{ 't', "timeout", "SECS",
		  "limit of every wait (default: 10 for the\nserver, 5 for all "
		  "others)",
		  SECONDS(b->where.timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(b->where.json) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, head, tail, 21, NULL, rows };
	int rc = take_options(&line, &argc, &argv);

	if (rc < 0)
		rc = options_server(&b->where, usage, argc, argv);
	if (b->op == ADD)
		b->size = sizeof(uint64_t);
	b->where.config.msg_size = b->size;
	b->where.config.send_slots = b->depth;
	return rc;
}

/* ---- 一个操作，很多次 --------------------------------------------------------- */

/* 第 @nth 个请求，从 0 数起：轮到哪个 QP，用它的哪个 slot */
static int post(struct bench *b, uint64_t nth)
{
	struct remote_memory *memory = &b->memory[nth % b->qps];
	struct rdma_resources *res = &memory->res;
	const uint32_t slot = (uint32_t)(nth / b->qps % b->depth);
	const uint64_t addr = res->remote.addr + memory->cell_bytes + SKIP;
	struct ibv_sge into = { .addr = (uintptr_t)send_slot(res, slot),
				.length = b->size,
				.lkey = res->mr->lkey };

	if (b->op == READ)
		return post_read(res, slot, &into, addr, res->remote.rkey);
	if (b->op == WRITE)
		return post_write(res, slot, b->size, addr, res->remote.rkey,
				  IBV_SEND_SIGNALED);
	return post_fetch_add(res, slot, addr, res->remote.rkey, 1);
}

/*
 * 已经到了的，取走就是；没有到的，才等。等就要有期限，期限要看钟，而虚拟机里看一次钟
 * 可以要一微秒：许多个同时在路上时，那是白花的。
 */
static int next_completion(struct remote_memory *memory)
{
	struct ibv_wc wc;
	int n = stop_requested() ? 0 : try_completion(&memory->res, &wc);

	if (!n)
		return await_completion(&memory->res, 0, &wc,
					memory->timeout_ms);
	return n < 0 ? n : 0;
}

static int measure(struct bench *b)
{
	const uint64_t most = (uint64_t)b->depth * b->qps;
	const int64_t began = now_ns();
	uint64_t posted = 0, completed = 0;
	int rc = 0;

	laps_start(&b->laps);
	while (!rc && completed < b->iters) {
		for (; !rc && posted < b->iters && posted - completed < most;
		     posted++)
			rc = post(b, posted);
		/*
		 * 同一个 QP 上的完成是按 post 的次序来的：空出来的就是最早的 slot。不同的
		 * QP 谁先谁后并不一定：先完成的，就在自己的 CQ 里等着轮到它。
		 */
		if (!rc)
			rc = next_completion(&b->memory[completed % b->qps]);
		completed += !rc;
		if (!rc)
			laps_next(&b->laps);
	}
	b->seconds = (double)(now_ns() - began) / 1e9;
	return rc;
}

/* ---- 之前放好内容，之后核对 ---------------------------------------------------- */

static int prepare_slots(struct bench *b, struct remote_memory *memory)
{
	uint64_t zero;
	int rc;

	for (uint32_t i = 0; i < b->depth; i++)
		pattern_fill(send_slot(&memory->res, i), b->size, SEED);
	if (b->op == WRITE)
		return 0;
	if (b->op == ADD)
		memset(memory_buffer(memory), 0, b->size);
	rc = memory_write(memory, CELL, SKIP, b->size);
	if (!rc) /* 后面跟一个要等的请求，WRITE 就也做完了 */
		rc = memory_add(memory, CELL, 0, 0, &zero);
	/* 要 READ 回来的，先清掉：读没读到，才看得出来。*/
	for (uint32_t i = 0; i < b->depth; i++)
		memset(send_slot(&memory->res, i), 0, b->size);
	return rc;
}

static int prepare(struct bench *b)
{
	int rc = 0;

	if (b->size > b->memory->cell_bytes - SKIP)
		return fail(-EMSGSIZE,
			    "start memory_server with larger --cell-bytes",
			    "%u bytes do not fit into a cell of %u", b->size,
			    b->memory->cell_bytes);
	for (uint32_t i = 0; !rc && i < b->qps; i++)
		rc = prepare_slots(b, &b->memory[i]);
	return rc;
}

static int check_slots(struct bench *b, struct remote_memory *memory,
		       uint64_t used)
{
	int rc = 0;

	if (b->op == WRITE)
		rc = memory_read(memory, CELL, SKIP, b->size);
	for (uint32_t i = 0; !rc && i < b->depth && i < used; i++)
		if (pattern_first_wrong(send_slot(&memory->res, i), b->size,
					SEED) != b->size)
			rc = fail(-EBADMSG, NULL, "slot %u has wrong bytes", i);
	return rc;
}

static int check(struct bench *b)
{
	uint64_t sum;
	int rc = 0;

	if (b->op == ADD) {
		rc = memory_add(b->memory, CELL, SKIP, 0, &sum);
		if (!rc && sum != b->iters)
			rc = fail(-EBADMSG, NULL, "%ju were added, not %ju",
				  sum, b->iters);
		return rc;
	}
	for (uint32_t i = 0; !rc && i < b->qps; i++)
		rc = check_slots(b, &b->memory[i],
				 (b->iters + b->qps - 1 - i) / b->qps);
	return rc;
}

static int print_result(struct bench *b)
{
	const struct lap_summary half = laps_halved(&b->laps);
	const double per_s = (double)b->iters / b->seconds;
	const double mb = per_s * b->size / 1e6;

	if (b->where.json)
		return print_json_line(json_pack(
			"{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "op",
			names[b->op], "size", (json_int_t)b->size, "iters",
			(json_int_t)b->iters, "depth", (json_int_t)b->depth,
			"qps", (json_int_t)b->qps, "seconds", b->seconds,
			"per_s", per_s, "mb_per_s", mb, "median_us",
			2 * half.median));
	report_result("%ju %ss of %u bytes, %u at once by each of %u QPs: %.0f "
		      "per second, %.2f MB/s; median %.2f us",
		      b->iters, names[b->op], b->size, b->depth, b->qps, per_s,
		      mb, 2 * half.median);
	return report_flush();
}

static int open_all(struct bench *b)
{
	int rc = 0;

	b->memory = calloc(b->qps, sizeof(*b->memory));
	if (!b->memory)
		return fail(-ENOMEM, NULL, "no memory for %u QPs", b->qps);
	for (uint32_t i = 0; i < b->qps; i++) {
		rc = memory_open(&b->memory[i], &b->where);
		if (rc) /* 要关的只有打开过的：后面那些的 sock 还是 0 */
			b->qps = i + 1;
	}
	return rc;
}

static int close_all(struct bench *b)
{
	int undo = 0;

	for (uint32_t i = 0; b->memory && i < b->qps; i++) {
		int rc = memory_close(&b->memory[i]);

		undo = undo ? undo : rc;
	}
	free(b->memory);
	return undo;
}

int main(int argc, char *argv[])
{
	struct bench bench = { 0 };
	int rc = parse(&bench, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = open_all(&bench);
	if (!rc)
		rc = prepare(&bench);
	if (!rc)
		rc = laps_init(&bench.laps, bench.iters);
	if (!rc)
		rc = measure(&bench);
	if (!rc)
		rc = check(&bench);
	undo = close_all(&bench);
	if (!rc && !undo)
		rc = print_result(&bench);
	laps_free(&bench.laps);
	return rc || undo ? 1 : 0;
}

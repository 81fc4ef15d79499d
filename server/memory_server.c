// SPDX-License-Identifier: MIT
/*
 * memory_server.c —— 借出一块内存，自己不用：kv_client 与 lock_client 都在里面干活
 *
 * 交出地址与 rkey 之后，它的程序不看也不动这块内存：没有 receive，没有 completion。
 * 只有一件事非它不可——一个 client 死了，或者拿着锁不放，谁来收拾？别的 client 拿不准：
 * 没动静的也许只是慢，过一会儿醒来，还会接着 WRITE。只有 server 能叫它写不成：
 *
 *	1. 拆掉它的 QP：从这一刻起，它的包一个也进不来（fencing）；
 *	2. 再把它的锁放开，标上 LOCK_ORPHANED：“守着的东西也许只改了一半”。
 *
 * 次序反过来就错了：锁已经是别人的，旧主人的 WRITE 却还会到。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/report.h"
#include "peers.h"
#include "remote/memory.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct server_options {
	struct rdma_options where; /* device, port, GID index */
	unsigned int clients;	   /* at once */
	uint32_t cells;
	uint32_t cell_bytes;
	int lease_ms; /* a lock may be kept for so long */
	int handshake_ms;
};

struct lender {
	const struct server_options *opt;
	struct rdma_resources owner; /* device, PD, the memory and its MR */
};

#define USAGE "usage: memory_server [options] " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] = USAGE
	"\n\n"
	"Lends memory in which kv_client and lock_client work by one-sided "
	"operations.\n"
	"If a client goes or keeps a lock for longer than --lease, its QP is "
	"destroyed,\n"
	"and then its lock is free again. Clients are trusted: each may write "
	"all of the\n"
	"memory. The contents are lost when the server ends.\n\n" DEVICE_HELP;
static const char tail[] = "\nSIGINT or SIGTERM ends it. " EXIT_CODES;

static int parse(struct server_options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'c', "cells", "N",
		  "cells: one of lock_client's, and the rest\nare kv_client's, "
		  "a key each (default: @)",
		  NUMBER(opt->cells, 1024, 2, 1 << 20) },
		{ 'b', "cell-bytes", "B",
		  "bytes of a cell, rounded up to a multiple of\n64; half of "
		  "it bounds a value (default: @)",
		  NUMBER(opt->cell_bytes, 2048, MEMORY_CELL_LEAST,
			 MEMORY_CELL_MOST) },
		{ 'l', "lease", "SECS",
		  "a lock may be kept for so long (default: @)",
		  SECONDS(opt->lease_ms, 10, 1, 86400) },
		{ 'n', "max-clients", "N",
		  "clients at once, 1 ... # (default: @)",
		  NUMBER(opt->clients, 64, 1, PEERS_MOST) },
		{ 't', "timeout", "SECS", "limit of one handshake (default: @)",
		  SECONDS(opt->handshake_ms, EXCHANGE_TIMEOUT_MS / 1000, 1,
			  86400) },
		{ QUIET("print only failures") },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, head, tail, 21, NULL, rows };
	int rc;

	*opt = (struct server_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = options_device(&opt->where, usage, argc, argv);
	opt->cell_bytes = (opt->cell_bytes + 63) / 64 * 64;
	if (rc < 0 && (uint64_t)opt->cells * opt->cell_bytes > MAX_MSG_SIZE)
		rc = wrong_usage(usage,
				 "--cells and --cell-bytes make more "
				 "than 1 GiB",
				 NULL);
	return rc;
}

/* ---- 每个 client 一个线程 ----------------------------------------------------- */

static int send_plan(const struct peer *peer, int64_t deadline)
{
	const struct lender *lender = peer->service->context;
	const struct memory_plan plan = {
		.magic = htobe32(MEMORY_MAGIC),
		.order = MEMORY_ORDER,
		.number = htobe32(peer->number),
		.cells = htobe32(lender->opt->cells),
		.cell_bytes = htobe32(lender->opt->cell_bytes),
	};

	return sock_write_exact(peer->sock, &plan, sizeof(plan), deadline,
				"plan of the memory");
}

static int meet_client(struct peer *peer, int64_t deadline)
{
	const struct lender *lender = peer->service->context;
	struct rdma_resources *res = &peer->res;
	int rc;

	/* 同一个 PD、同一个 MR：内存只注册一次，每个 client 只多一个 QP。*/
	*res = lender->owner;
	res->recv_slots = res->send_slots = 1;
	rc = create_cq(res, false);
	if (!rc)
		rc = create_qp(res, 0);
	if (!rc)
		rc = modify_qp_to_init(res);
	if (!rc) /* 第二道闸：INIT 里默认没有 ATOMIC */
		rc = allow_remote(res, IBV_ACCESS_REMOTE_READ |
					       IBV_ACCESS_REMOTE_WRITE |
					       IBV_ACCESS_REMOTE_ATOMIC);
	if (!rc)
		rc = exchange_cm_con_data(res, peer->sock, deadline);
	if (rc)
		return rc;
	rc = peer_connect(peer, deadline);
	return rc ? rc : send_plan(peer, deadline);
}

static uint64_t *lock_word(const struct lender *lender, uint32_t cell)
{
	return (uint64_t *)(void *)(lender->owner.buf +
				    (size_t)cell * lender->opt->cell_bytes);
}

/* @peer 拿着的锁；没有就是 NULL。网卡随时会改这些字：每个只读一次。*/
static uint64_t *held_by(const struct peer *peer, uint64_t *word)
{
	const struct lender *lender = peer->service->context;

	for (uint32_t i = 0; i < lender->opt->cells; i++) {
		uint64_t *at = lock_word(lender, i);

		*word = __atomic_load_n(at, __ATOMIC_RELAXED);
		if (LOCK_HOLDER(*word) == peer->number)
			return at;
	}
	return NULL;
}

static void watch_leases(struct peer *peer)
{
	const struct lender *lender = peer->service->context;
	const int look_ms = lender->opt->lease_ms / 4;
	uint64_t word, last = 0, *held;
	int kept_ms = 0;

	while (!peer_wait(peer, look_ms)) {
		held = held_by(peer, &word);
		/* 同一个字连着看到：同一把锁没放过手（放过的话 count 就变了）。*/
		kept_ms = held && word == last ? kept_ms + look_ms : 0;
		last = held ? word : 0;
		if (kept_ms < lender->opt->lease_ms)
			continue;
		report_warning("it may come back as a new client",
			       "client %u (%s) has kept a lock for %d ms and "
			       "is sent away",
			       peer->number, peer->name, kept_ms);
		return;
	}
}

// region memory-recover
static void free_locks(struct peer *peer)
{
	struct rdma_resources *res = &peer->res;
	uint64_t word, *held;

	/* 先销毁 QP；PD、内存和 MR 是借用的，只清空指针。*/
	res->pd = NULL;
	res->mr = NULL;
	res->buf = NULL;
	res->context = NULL;
	destroy_objects(res);
	/*
	 * 原子操作只相对于经过同一张网卡的请求是原子的，相对于 CPU 不是
	 * （IBV_ATOMIC_HCA）。这里仍可以由 CPU 来写：锁字里是已退出的 client 的
	 * 编号，而其他 client 的 CAS 都期望“没有持有者”，不可能成功。
	 */
	while ((held = held_by(peer, &word))) {
		__atomic_store_n(held,
				 LOCK_FREE_AT(LOCK_COUNT(word)) | LOCK_ORPHANED,
				 __ATOMIC_RELEASE);
		report_fact("client %u (%s): a lock that it had is free again",
			    peer->number, peer->name);
	}
}
// endregion memory-recover

/* ---- 从头到尾 --------------------------------------------------------------- */

static int open_memory(const struct server_options *opt,
		       struct rdma_resources *owner)
{
	const size_t bytes = (size_t)opt->cells * opt->cell_bytes;
	int rc = open_device(owner, &opt->where.config);

	if (!rc)
		rc = create_pd(owner);
	if (rc)
		return rc;
	owner->buf = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!owner->buf)
		return no_memory_for_buffer(bytes);
	memset(owner->buf, 0, bytes);
	owner->msg_size = (uint32_t)bytes;
	rc = expose_memory(owner, owner->buf, bytes,
			   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC,
			   &owner->mr);
	if (!rc)
		report_fact("%s port %u, GID index %u; %u cells of %u bytes",
			    ibv_get_device_name(owner->context->device),
			    owner->ib_port, owner->gid_index, opt->cells,
			    opt->cell_bytes);
	return rc;
}

static int serve(const struct server_options *opt, struct lender *lender)
{
	const struct peer_service clients = {
		.who = "client",
		.more = "raise --max-clients",
		.most = opt->clients,
		.handshake_ms = opt->handshake_ms,
		.meet = meet_client,
		.serve = watch_leases,
		.part = free_locks,
		.context = lender,
	};
	int rc;

	report_step("open the device, make a PD, expose the memory");
	rc = open_memory(opt, &lender->owner);
	if (rc)
		return rc;
	report_step("give each client a QP, address and rkey");
	return serve_peers(&clients, opt->where.tcp_port);
}

int main(int argc, char *argv[])
{
	struct server_options opt;
	struct lender lender = { .opt = &opt };
	int rc = parse(&opt, argc, argv);
	int undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	expect_stop();
	rc = serve(&opt, &lender);
	report_step("destroy MR and PD; close the device");
	undo = destroy_rdma_resources(&lender.owner);
	return rc || undo ? 1 : 0;
}

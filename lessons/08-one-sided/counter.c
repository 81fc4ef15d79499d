// SPDX-License-Identifier: MIT
/*
 * counter.c —— 原子操作：一个格子，以及八个同时来加的 client
 *
 * 八个 client 是八对 QP，在一个线程里一起 post、再一起等：到了 B 的设备那里，它们就是
 * 同时的八个请求。
 */
#include "one_sided.h"

#include "base/report.h"

#include <errno.h>
#include <string.h>

#define CLIENTS	    8
#define ROUNDS	    100
#define CELL_STRIDE 64 /* 每个 client 的一收一发两个小 slot */

struct client {
	struct rdma_resources a, b;
};

/* ---- 一个格子 --------------------------------------------------------------- */

// region atomics
static int fetch_add(struct walk *w, uint64_t add)
{
	int rc = post_fetch_add(&w->a, 0, at(w, &w->board->counter),
				w->a.remote.rkey, add);

	if (!rc)
		rc = await(&w->a, WR_ID_ADD(0));
	if (!rc)
		report_fact("FETCH_ADD %ju: it was %ju, it is %ju", add,
			    atomic_result(&w->a, 0), w->board->counter);
	return rc;
}

static int compare_swap(struct walk *w, uint64_t expected, uint64_t desired)
{
	int rc = post_compare_swap(&w->a, 0, at(w, &w->board->counter),
				   w->a.remote.rkey, expected, desired);

	if (!rc)
		rc = await(&w->a, WR_ID_SWAP(0));
	if (rc)
		return rc;
	/* 换成没换成，status 都是 success：只有原值说得出来。*/
	report_fact("CMP_SWAP %ju to %ju: it was %ju, %s; it is %ju", expected,
		    desired, atomic_result(&w->a, 0),
		    atomic_result(&w->a, 0) == expected ? "swapped"
							: "not swapped",
		    w->board->counter);
	return 0;
}
// endregion atomics

/* 相对谁是原子的：设备自己说。*/
static const char *atomic_against(enum ibv_atomic_cap cap)
{
	switch (cap) {
	case IBV_ATOMIC_HCA:
		return "IBV_ATOMIC_HCA, other atomics through this device";
	case IBV_ATOMIC_GLOB:
		return "IBV_ATOMIC_GLOB, the CPU's atomics, too";
	default:
		return "IBV_ATOMIC_NONE, nothing";
	}
}

int atomics(struct walk *w)
{
	int rc;

	report_step("atomics on B's counter, which is 40");
	report_fact("atomic with respect to: %s",
		    atomic_against(w->b.device_attr.atomic_cap));
	w->board->counter = 40;
	rc = fetch_add(w, 2);
	if (!rc)
		rc = compare_swap(w, 42, 100);
	return rc ? rc : compare_swap(w, 42, 100);
}

/* ---- 八个 client ------------------------------------------------------------ */

/* 借 @owner 的 PD、MR 与一小块 buffer，自己只有 CQ 与 QP。*/
static int borrow(struct rdma_resources *res,
		  const struct rdma_resources *owner, int place)
{
	int rc;

	*res = (struct rdma_resources){
		.context = owner->context,
		.device_attr = owner->device_attr,
		.port_attr = owner->port_attr,
		.ib_port = owner->ib_port,
		.gid_index = owner->gid_index,
		.gid = owner->gid,
		.pd = owner->pd,
		.mr = owner->mr,
		.buf = owner->buf + (ptrdiff_t)place * 2 * CELL_STRIDE,
		.msg_size = CELL_STRIDE,
		.slot_size = CELL_STRIDE,
		.recv_slots = 1,
		.send_slots = 1,
		.more_rkeys = true,
	};
	rc = create_cq(res, false);
	if (!rc)
		rc = create_qp(res, 0);
	return rc ? rc : modify_qp_to_init(res);
}

static int give_back(struct rdma_resources *res)
{
	res->pd = NULL;
	res->mr = NULL;
	res->buf = NULL;
	return destroy_objects(res);
}

static int open_client(struct walk *w, struct client *c, int place)
{
	int rc = borrow(&c->a, &w->a, place);

	if (!rc)
		rc = borrow(&c->b, &w->b, place);
	if (!rc)
		rc = allow_remote(&c->b, IBV_ACCESS_REMOTE_ATOMIC |
						 IBV_ACCESS_REMOTE_READ |
						 IBV_ACCESS_REMOTE_WRITE);
	if (rc)
		return rc;
	c->a.remote = cm_con_data_of(&c->b);
	c->b.remote = cm_con_data_of(&c->a);
	rc = modify_qp_to_rtr(&c->a);
	if (!rc)
		rc = modify_qp_to_rtr(&c->b);
	if (!rc)
		rc = modify_qp_to_rts(&c->a);
	return rc ? rc : modify_qp_to_rts(&c->b);
}

static int for_all(struct client *clients, uint64_t addr, uint32_t rkey,
		   int (*post)(struct rdma_resources *res, uint64_t addr,
			       uint32_t rkey),
		   uint64_t wr_id)
{
	int rc = 0;

	for (int i = 0; i < CLIENTS && !rc; i++)
		rc = post(&clients[i].a, addr, rkey);
	for (int i = 0; i < CLIENTS && !rc; i++)
		rc = await(&clients[i].a, wr_id);
	return rc;
}

typedef int round_fn(struct client *clients, uint64_t addr, uint32_t rkey);

/* 都来加 ROUNDS 次；最后的值放到 @sum。*/
static int all_add(struct walk *w, round_fn *one_round, uint64_t *sum)
{
	struct client clients[CLIENTS] = { 0 };
	int rc = 0, undo;

	w->board->counter = 0;
	for (int i = 0; i < CLIENTS && !rc; i++)
		rc = open_client(w, &clients[i], i);
	for (int n = 0; n < ROUNDS && !rc; n++)
		rc = one_round(clients, (uintptr_t)&w->board->counter,
			       w->mr->rkey);
	for (int i = 0; i < CLIENTS; i++) {
		undo = give_back(&clients[i].a);
		rc = rc ? rc : undo;
		undo = give_back(&clients[i].b);
		rc = rc ? rc : undo;
	}
	*sum = w->board->counter;
	return rc;
}

// region eight-clients
static int add_one(struct rdma_resources *res, uint64_t addr, uint32_t rkey)
{
	return post_fetch_add(res, 0, addr, rkey, 1);
}

static int add_round(struct client *clients, uint64_t addr, uint32_t rkey)
{
	return for_all(clients, addr, rkey, add_one, WR_ID_ADD(0));
}
// endregion eight-clients

int eight_clients(struct walk *w)
{
	uint64_t sum = 0;
	int rc;

	report_step("%d clients add 1 to it, %d times each", CLIENTS, ROUNDS);
	rc = all_add(w, add_round, &sum);
	if (!rc && sum != CLIENTS * ROUNDS)
		rc = fail(-EBADMSG, NULL, "the counter is %ju", sum);
	if (!rc)
		report_fact("the counter is %ju", sum);
	return rc;
}

// region lost-updates
static int read_cell(struct rdma_resources *res, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge into = { (uintptr_t)send_slot(res, 0), 8,
				res->mr->lkey };

	return post_read(res, 0, &into, addr, rkey);
}

static int write_cell(struct rdma_resources *res, uint64_t addr, uint32_t rkey)
{
	return post_write(res, 0, 8, addr, rkey, IBV_SEND_SIGNALED);
}

/* 读、加、写三步各自都正确，但八个 client 读到的是同一个数。*/
static int read_add_write(struct client *clients, uint64_t addr, uint32_t rkey)
{
	int rc = for_all(clients, addr, rkey, read_cell, WR_ID_READ(0));

	for (int i = 0; i < CLIENTS; i++)
		++*(uint64_t *)(void *)send_slot(&clients[i].a, 0);
	return rc ? rc
		  : for_all(clients, addr, rkey, write_cell, WR_ID_WRITE(0));
}
// endregion lost-updates

int lost_updates(void *walk)
{
	uint64_t sum = 0;
	int rc = all_add(walk, read_add_write, &sum);

	return rc ? rc
		  : fail(-EBADMSG, "add by FETCH_ADD, or swap by CMP_SWAP",
			 "%d clients added 1, %d times each, and the counter "
			 "is %ju",
			 CLIENTS, ROUNDS, sum);
}

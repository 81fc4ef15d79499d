// SPDX-License-Identifier: MIT
/*
 * unit_one_sided.c —— 两道闸：MR 的权限 × QP 的权限 × 四种操作，每一格都试
 *
 * 该准的，字节变了（READ 取回来了），QP 还在 RTS；该拒的，一个字节也没变，QP 在 ERR，
 * status 说得出是哪一道。再试边界：首尾各差一、长度 0、错的 key。
 */
#include "../unit.h"
#include "base/deadline.h"
#include "rdma_common.h"

#include <malloc.h>
#include <string.h>

#define R	  IBV_ACCESS_REMOTE_READ
#define W	  IBV_ACCESS_REMOTE_WRITE
#define A	  IBV_ACCESS_REMOTE_ATOMIC
#define CELL	  UINT64_C(1000)
#define MINE	  UINT64_C(7)
#define CELLS	  8
#define WAIT_FOR  5000
#define UNTOUCHED 0

static struct rdma_resources a, b;
static uint64_t cells[CELLS];

enum op {
	READ,
	WRITE,
	SWAP,
	ADD
};
static const int needs[] = { R, W, A, A };
static const char *const names[] = { "READ", "WRITE", "SWAP", "ADD" };

static int connect_with(int qp_rights)
{
	struct ibv_wc wc;
	int rc = modify_qp_to_reset(&a);

	rc |= modify_qp_to_reset(&b);
	while (ibv_poll_cq(a.cq, 1, &wc) > 0)
		;
	rc |= modify_qp_to_init(&a);
	rc |= modify_qp_to_init(&b);
	rc |= allow_remote(&b, (unsigned int)qp_rights);
	a.remote = cm_con_data_of(&b);
	b.remote = cm_con_data_of(&a);
	rc |= modify_qp_to_rtr(&a);
	rc |= modify_qp_to_rtr(&b);
	rc |= modify_qp_to_rts(&a);
	return rc | modify_qp_to_rts(&b);
}

static enum ibv_qp_state state_of(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	query_qp(res, &attr);
	return attr.qp_state;
}

/* 不经 poll_completion：坏的 completion 在这里是家常便饭，不解释。*/
static int status_of(enum op op, uint64_t addr, uint32_t rkey, uint32_t length)
{
	uint64_t *slot = (uint64_t *)(void *)send_slot(&a, 0);
	struct ibv_sge into = { (uintptr_t)slot, length, a.mr->lkey };
	const int64_t deadline = deadline_in_ms(WAIT_FOR);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	int rc;

	*slot = MINE;
	if (op == READ)
		rc = post_read(&a, 0, &into, addr, rkey);
	else if (op == WRITE)
		rc = post_write(&a, 0, length, addr, rkey, IBV_SEND_SIGNALED);
	else if (op == SWAP)
		rc = post_compare_swap(&a, 0, addr, rkey, CELL, MINE);
	else
		rc = post_fetch_add(&a, 0, addr, rkey, MINE);
	while (!rc && !ibv_poll_cq(a.cq, 1, &wc) && !deadline_passed(deadline))
		rc = deadline_sleep_ms(0, deadline);
	/* 拒绝的回音先到，B 的 QP 之后才进 ERR：不等它，它会在下一次的 RESET 之后才进。*/
	while (!rc && wc.status >= IBV_WC_REM_INV_REQ_ERR &&
	       wc.status <= IBV_WC_REM_OP_ERR && state_of(&b) != IBV_QPS_ERR &&
	       !deadline_passed(deadline))
		rc = deadline_sleep_ms(1, deadline);
	return rc ? rc : (int)wc.status;
}

/* 做成了之后，B 的格子与 A 的 slot 应当是什么。*/
static void check_done(enum op op, const char *what)
{
	static const uint64_t there[] = { CELL, MINE, MINE, CELL + MINE };
	static const uint64_t here[] = { CELL, MINE, CELL, CELL };

	CHECK(cells[0] == there[op], "%s: there %ju", what, cells[0]);
	CHECK(atomic_result(&a, 0) == here[op], "%s: here %ju", what,
	      atomic_result(&a, 0));
	CHECK(state_of(&a) == IBV_QPS_RTS, "%s", what);
}

static void check_refused(int status, bool by_qp, const char *what)
{
	CHECK(status ==
		      (by_qp ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR),
	      "%s: status %d", what, status);
	CHECK(cells[0] == CELL && atomic_result(&a, 0) == MINE,
	      "%s: something was moved", what);
	CHECK(state_of(&a) == IBV_QPS_ERR, "%s", what);
}

static void try_rights(int mr_rights, int qp_rights)
{
	struct ibv_mr *mr;

	if (expose_memory(&b, cells, sizeof(cells), mr_rights, &mr)) {
		CHECK(false, "expose_memory 0x%x", mr_rights);
		return;
	}
	for (int op = READ; op <= ADD; op++) {
		char what[64];
		int status, rc = connect_with(qp_rights);

		snprintf(what, sizeof(what), "%s, MR 0x%x, QP 0x%x", names[op],
			 mr_rights, qp_rights);
		CHECK(!rc, "%s: connect_with", what);
		cells[0] = CELL;
		status = status_of(op, (uintptr_t)cells, mr->rkey, 8);
		if (mr_rights & qp_rights & needs[op]) {
			CHECK(!status, "%s: status %d", what, status);
			check_done(op, what);
		} else {
			check_refused(status, !(qp_rights & needs[op]), what);
		}
	}
	ibv_dereg_mr(mr);
}

/* @length 个字节，READ 与 WRITE；8 的倍数处的 8 个字节，原子操作也算。*/
static void try_place(const char *what, struct ibv_mr *mr, int64_t offset,
		      uint32_t length, uint32_t rkey, int expected)
{
	const uint64_t addr = (uintptr_t)mr->addr + (uint64_t)offset;

	for (int op = READ; op <= ADD; op++) {
		int status, rc;

		if (op >= SWAP && (length != 8 || addr % 8))
			continue;
		rc = connect_with(R | W | A);
		memset(cells, UNTOUCHED, sizeof(cells));
		status = status_of(op, addr, rkey, length);
		CHECK(!rc && status == expected, "%s of %s: status %d",
		      names[op], what, status);
		CHECK(!expected || atomic_result(&a, 0) == MINE,
		      "%s of %s: something was fetched", names[op], what);
		for (int i = 0; expected && i < CELLS; i++)
			CHECK(cells[i] == UNTOUCHED, "%s of %s: cell %d",
			      names[op], what, i);
	}
}

/* MR 是 cells 的中间几格：前后各有一格，不属于它。*/
static void try_places(void)
{
	const uint32_t size = sizeof(cells) - 16;
	struct ibv_mr *mr, *old, *foreign;
	uint32_t gone;

	if (expose_memory(&b, cells + 1, size, R | W | A, &mr) ||
	    expose_memory(&b, cells + 1, size, R | W | A, &old) ||
	    expose_memory(&a, cells + 1, size, R | W | A, &foreign)) {
		CHECK(false, "expose_memory");
		return;
	}
	gone = old->rkey;
	ibv_dereg_mr(old);
	try_place("all of it", mr, 0, size, mr->rkey, IBV_WC_SUCCESS);
	try_place("the beginning", mr, 0, 8, mr->rkey, IBV_WC_SUCCESS);
	try_place("the end", mr, size - 8, 8, mr->rkey, IBV_WC_SUCCESS);
	try_place("one before", mr, -1, 8, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	try_place("one past", mr, size - 7, 8, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	try_place("cell before", mr, -8, 8, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	try_place("cell past", mr, size, 8, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	try_place("too long", mr, 0, size + 1, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	try_place("wraps", mr, -(int64_t)(uintptr_t)mr->addr - 4, 8, mr->rkey,
		  IBV_WC_REM_ACCESS_ERR);
	try_place("wrong key", mr, 0, 8, mr->rkey ^ 1, IBV_WC_REM_ACCESS_ERR);
	try_place("key 0", mr, 0, 8, 0, IBV_WC_REM_ACCESS_ERR);
	try_place("old key", mr, 0, 8, gone, IBV_WC_REM_ACCESS_ERR);
	/* 同样的内存，同样的权限，同一个设备：只是 PD 不是 B 的 QP 的。*/
	try_place("foreign key", mr, 0, 8, foreign->rkey,
		  IBV_WC_REM_ACCESS_ERR);
	/* 长度 0：没有要碰的字节，key 也不查（IBTA 9.4.3）。*/
	try_place("no bytes", mr, 0, 0, mr->rkey ^ 1, IBV_WC_SUCCESS);
	ibv_dereg_mr(foreign);
	ibv_dereg_mr(mr);
}

int main(int argc, char *argv[])
{
	const struct rdma_config config = {
		.device_name = argc > 1 ? argv[1] : NULL,
		.gid_index = GID_INDEX_AUTO,
		.msg_size = 4096,
	};
	static const int rights[] = { 0, R, W, A, R | W | A };

	mallopt(M_PERTURB, 0x5a); /* 拿到的内存里，有别人留下的东西 */
	if (init_rdma_resources(&a, &config) ||
	    init_rdma_resources(&b, &config))
		return 2;
	for (size_t i = 0; i < a.buf_size; i++)
		CHECK(!a.buf[i], "byte %zu could be read by anybody", i);
	for (int mr = 0; mr < 5; mr++)
		for (int qp = 0; qp < 5; qp++)
			try_rights(rights[mr], rights[qp]);
	try_places();
	destroy_rdma_resources(&b);
	destroy_rdma_resources(&a);
	return unit_result("one_sided");
}

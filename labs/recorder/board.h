/* SPDX-License-Identifier: MIT */
/*
 * board.h - what this process tells the recorders of other programs on this machine, and
 * what they tell: which QPs there are, what those were told, and which MRs.
 *
 * Each process has a memfd of its own, which others of the same user find in
 * /proc/PID/fd: it is gone with the process, however that ends. All of this needs the
 * writer's lock.
 */
#ifndef RECORDER_BOARD_H
#define RECORDER_BOARD_H

#include "explain/explain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct board_qp {
	struct explain_side told; /* its name says nothing */
	const struct ibv_pd *pd;
};

/*
 * Put it up, at @place, which is 0 for a new one. Returns its place; 0: there is no
 * room or no board, which whoever reads it will know.
 */
uint32_t board_put_qp(uint32_t place, const struct board_qp *qp);
uint32_t board_put_mr(uint32_t place, const struct explain_mr *mr);
void board_drop_qp(uint32_t place);
void board_drop_mr(uint32_t place);

/* In the child of fork(): the board is the parent's. */
void board_after_fork(void);

/* Another process that has a QP that is meant, and what it knows. */
struct neighbour {
	int pid;
	const struct board_qp *qp;
	const struct explain_mr *mrs; /* a lkey of 0: none */
	size_t n_mrs;
	bool all_mrs; /* there are no others */
};

/*
 * The first QP of another process for which @meant holds. What it points to lasts until
 * the next call.
 */
bool board_find(struct neighbour *out,
		bool (*meant)(const struct board_qp *qp, void *arg), void *arg);

/* board_find() has met no other process that has a board. */
bool board_is_alone(void);

#endif

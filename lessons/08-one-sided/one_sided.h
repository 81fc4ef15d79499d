/* SPDX-License-Identifier: MIT */
/*
 * one_sided.h - the parts of lesson 08's program. A asks, B exposes memory: both
 * in one process, on two devices if there are two.
 *
 * Every function that returns int returns 0 or a negative errno, and has reported
 * the failure when it is not 0.
 */
#ifndef LESSON_08_ONE_SIDED_H
#define LESSON_08_ONE_SIDED_H

#include "../lesson.h"

#define HELLO	    "Hello from QP A!"
#define SLOT_BYTES  (384u << 10)
#define PART_BYTES  64	/* what a window shows */
#define SHORT_MS    500 /* to wait for what will not come */
#define READS_USUAL 16
#define RNR_EVER    7

/* What B exposes. */
struct board {
	char text[256];
	uint64_t flag;
	uint64_t counter;
	char page[SLOT_BYTES];
	char copy[SLOT_BYTES];
};

struct walk {
	const struct lesson *lesson;
	struct rdma_resources a, b;
	struct board *board; /* B's */
	struct ibv_mr *mr;   /* of the board */
};

/* ---- ends.c: both are in INIT, and not connected yet ---------------------- */

/*
 * Connect both: A takes @rnr_retry and may have @reads READs under way. A is told
 * of @mr, which is B's, as lesson 04 does it.
 */
int connect_ends(struct walk *w, struct ibv_mr *mr, uint8_t rnr_retry,
		 uint8_t reads);

/* The same as usual, and the board. */
int connect_to_board(struct walk *w);

/* An address of B's board, as A has to name it. */
static inline uint64_t at(const struct walk *w, const void *place)
{
	return w->a.remote.addr +
	       (uint64_t)((const char *)place - (const char *)w->board);
}

/* The good completion of @wr_id at @res, within the usual time. */
int await(struct rdma_resources *res, uint64_t wr_id);

/* WRITE @text of @length bytes from A to @addr, and wait for the completion. */
int write_text(struct walk *w, const char *text, uint32_t length, uint64_t addr,
	       uint32_t rkey);

/* The same READ, into A's send slot 0. */
int read_back(struct walk *w, uint32_t length, uint64_t addr, uint32_t rkey);

/* It went well although it should not have. -EPROTO. */
int not_refused(const char *what);

/* counter.c: one cell, and eight QPs that add to it. */
int atomics(struct walk *w);
int eight_clients(struct walk *w);
int lost_updates(void *walk);

/* windows.c */
int windows(struct walk *w);
int old_window(void *walk);
int past_window(void *walk);
int mr_key(void *walk);

/* keys.c */
int keys(struct walk *w);
int guess(void *walk);

/* breaks.c: the table, all of them */
extern const struct lesson_break breaks[];

#endif

/* SPDX-License-Identifier: MIT */
/*
 * many_peers.h - the parts of lesson 10's program: eight clients and their server in
 * one process, on two devices if there are two.
 *
 * Every function that returns int returns 0 or a negative errno, and has reported
 * the failure when it is not 0.
 */
#ifndef LESSON_10_MANY_PEERS_H
#define LESSON_10_MANY_PEERS_H

#include "../lesson.h"

#define CLIENTS	  8
#define SLOTS	  32 /* of each side; the CQs have as many */
#define SLOT_SIZE 4096
#define SHORT_MS  500 /* to wait for what will not come */
#define RNR_EVER  7

struct classroom {
	const struct lesson *lesson;
	struct rdma_config config; /* the server's */
	struct shared_queues clients, server;
	struct rdma_resources client[CLIENTS], place[CLIENTS]; /* their QPs */
};

/* ---- classroom.c ----------------------------------------------------------- */

/* Both sides' queues, and 2 * CLIENTS QPs in RTS; the SRQ is empty. */
int open_classroom(struct classroom *c);
int close_classroom(struct classroom *c);

/* Client @i with @rnr_retry, and its place at the server, from RESET to RTS. */
int seat(struct classroom *c, int i, uint8_t rnr_retry);

/* Post receives of the server's slots @first, and so on. */
int post_receives(struct classroom *c, uint32_t first, uint32_t count);

/* Client @i sends @length bytes of its side's slot @slot. */
int client_says(struct classroom *c, int i, uint32_t slot, uint32_t length);

/* The next completion of a client's, whose status is @status. */
int client_done(struct classroom *c, enum ibv_wc_status status);

/* The server's CQ, or @q's device, has an event within @ms. 0, or -ETIMEDOUT (not reported). */
int event_within(struct classroom *c, int ms);
int async_within(struct shared_queues *q, int ms);

/* It went well although it should not have. -EPROTO. */
int not_seen(const char *what);

/* ---- memory.c, datagrams.c: the other parts of the walk --------------------- */

int sum_of_memory(struct classroom *c);
int datagrams(struct classroom *c);

/* ---- breaks.c --------------------------------------------------------------- */

extern const struct lesson_break breaks[];

/* Of them, those about UD. */
int wrong_qkey(void *classroom);
int no_room(void *classroom);
int over_mtu(void *classroom);

#endif

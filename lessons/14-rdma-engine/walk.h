/* SPDX-License-Identifier: MIT */
/*
 * walk.h - the parts of lesson 14's program: one needle on its way from the disk
 * of a storage node to a client of an engine, one step at a time.
 *
 * Storage node and engine are the real programs, needle_server and rdma_engine,
 * started from the folder of this program. Before the engine comes, the walk is
 * an engine itself, by hand.
 *
 * Every function that returns int returns 0 or a negative errno, and has reported
 * the failure when it is not 0.
 */
#ifndef LESSON_14_WALK_H
#define LESSON_14_WALK_H

#include "../lesson.h"
#include "ipc/call.h"

#include <sys/types.h>

#define NODE_PORT   18609 /* TCP */
#define NODE_HOST   "127.0.0.1"
#define WAIT_MS	    10000 /* for anything that ought to happen */
#define PAUSE_MS    150	  /* longer than the original waits for a length */
#define VOLUME	    1
#define COOKIE	    0x5eed0009u /* of every needle of the walk */
#define TEXT_NEEDLE 1
#define TEXT	    "Hello from the storage node"
#define LONG_NEEDLE 2
#define LONG_BYTES  (256u << 10)
#define PAGE_NEEDLE 3
#define PAGE_BYTES  4096u

struct walk {
	const struct lesson *lesson;
	char device[64];    /* the RDMA device of all of them */
	char dir[64];	    /* a folder of its own, removed at the end */
	char store[80];	    /* the node's, in it */
	char socket[80];    /* the engine's, in it */
	pid_t node, engine; /* 0: does not run */
	struct engine_connection c;
};

/* ---- the other two processes (processes.c) ------------------------------- */

/* Make the folder and the store with its three needles. Undone by walk_close(). */
int walk_open(struct walk *w);

/* End the processes, remove the folder. Returns the first failure. */
int walk_close(struct walk *w);

int start_node(struct walk *w);

/* Start the engine with room for two sessions, and wait for its socket. */
int start_engine(struct walk *w);

/* Send @signal and wait for the end; -EIO if it ends with anything but 0. */
int end_process(pid_t *pid, int signal);

/* Print what @who ("node", "engine") said, but its steps and facts. */
void show_said(const struct walk *w, const char *who);

/* Wait until @who has said @text in @times lines. */
int await_said(const struct walk *w, const char *who, const char *text,
	       int times);

/* -EBADMSG, after reporting @what. */
int bad(const char *what); /* processes.c */

/* ---- messages as they are shown (frames.c) ------------------------------- */

/* The StartRead of the walk: all of needle @id, for 30 s. */
struct engine_message start_read_of(uint64_t id);

/* "-> StartRead", and its fields. */
void show_message(const char *arrow, const struct engine_message *message);

/* ---- the steps ----------------------------------------------------------- */

int take_frame_apart(void);	       /* frames.c */
int split_the_stream(void);	       /* frames.c */
int be_an_engine(struct walk *w);      /* reads.c */
int play_a_session(struct walk *w);    /* session.c */
int ask_what_broke_it(struct walk *w); /* original.c */

/* Only the node, and the device that all use: what a broken session needs. */
int open_node(struct walk *w); /* reads.c */

/* ---- --break NAME -------------------------------------------------------- */

int forget_prefix(void *walk); /* frames.c */
int any_wr_id(void *walk);     /* reads.c */
int wrong_rkey(void *walk);    /* reads.c */
int write_to_node(void *walk); /* reads.c */
int map_shared(void *walk);    /* reads.c */
int dead_node(void *walk);     /* reads.c */
int net_order(void *walk);     /* session.c */
int kill_node(void *walk);     /* session.c */

#endif

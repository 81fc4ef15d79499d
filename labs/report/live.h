/* SPDX-License-Identifier: MIT */
/*
 * live.h - the watcher: what is asked of a program that runs, and of the kernel about
 * its QPs. From the ground up: proc.c, view.c, kernel.c, note.c, look.c, verdict.c, watch.c.
 */
#ifndef LABS_REPORT_LIVE_H
#define LABS_REPORT_LIVE_H

#include "../recorder/line.h"
#include "book.h"
#include "parts.h"
#include "proc.h"

#define IN_WORDS(r, english, chinese_) ((r)->chinese ? (chinese_) : (english))

#define MOST_VIEW_BLOCKS 16384u

/* ---- view.c: a recording that is mapped while another process writes it ---- */

struct view {
	char path[4096];
	int pid;
	size_t size; /* of the mapping: beyond the file's end is nothing */
	union {
		struct recording_header *header;
		char *bytes;
	};
};

/* False: @path is no recording of this version, or not there yet. */
bool view_open(struct view *view, const char *path);

/* The blocks that are there. */
size_t view_blocks(const struct view *view);
struct block *view_block(const struct view *view, size_t i);

/* The threads' slots of all such blocks in turn, from NULL; NULL is behind all. */
struct thread_slot *view_slot(const struct view *view,
			      const struct thread_slot *last);

/* The recorded call that the thread is in, or "". */
const char *view_call(const struct thread_slot *slot);

struct watcher;

/* Is @path one of those that @w watches? */
bool is_watched(const struct watcher *w, const char *path);

/* Its mapping; NULL: it is none of those, or @w is NULL. */
const char *watched_bytes(const struct watcher *w, const char *path);

/* ---- kernel.c ---- */

/* The state of @qp in the user's copy, as its calls tell: enum ibv_qp_state. */
unsigned int kernel_user_state(const struct report *r, const struct qp *qp);

/* Of @qp: false if the kernel does not tell. */
bool kernel_qp(const struct qp *qp, struct ibv_qp_attr *out);

/* explain_stall() of @post (NULL: of none) of @qp; nothing without its device. */
struct explanation kernel_stall(const struct report *r, const struct qp *qp,
				const struct event *post,
				const struct ibv_cq *polled, int64_t ms);

/* explain_port() if the port is not active. */
struct explanation kernel_port(const char *device);

/* ---- note.c: events into the recording, in the block that is the watcher's ---- */

void note(const struct view *view, const struct line *line);
void note_object(struct line *line, const char *key,
		 const struct object *object);

/* ---- look.c ---- */

/* What the threads of a view did when they were looked at, one after the other. */
#define MOST_SLOTS 256
struct samples {
	size_t n;
	struct sample {
		uint64_t polls;
		uint64_t changed; /* when it was seen to grow, ns; 0: never */
	} of[MOST_SLOTS];
};
void look_sample(const struct view *view, struct samples *samples);
bool look_polls(const struct samples *samples); /* somebody polls now */

/* A process that is watched. */
struct watched {
	struct view view;
	int fd; /* pidfd */
	bool done;
	uint32_t failures, asked; /* of its header: dealt with */
	uint64_t not_before; /* a verdict takes long: not one after another */
	/* only with a clock (watcher.stall_ns): */
	uint64_t again_at; /* a verdict failed: not before this */
	uint64_t *used;	   /* what each block had when it was looked at */
	uint64_t activity,
		call; /* the last post or completion; call; ns, 0: none */
	uint64_t told_activity, told_call; /* those that a verdict was about */
	uint64_t places, next_places, looked_at;
	struct samples samples;
};

/*
 * What the program waits for: as events into its recording, as words to @out. @r: it is
 * the side that was loaded last, at @now. @stall_ns: how long it has to stand still (0:
 * nothing was said of that). @asked: by SIGQUIT.
 */
void look_around(FILE *out, const struct watched *it, const struct report *r,
		 uint64_t now, uint64_t stall_ns, bool asked);

/*
 * What its threads do now, as one number; it is another as soon as one does another
 * thing. 0: one of them runs.
 */
uint64_t look_places(const struct view *view);

/* ---- verdict.c ---- */

struct watcher {
	const char *path;
	uint64_t stall_ns; /* 0: never */
	bool quiet, chinese;
	struct said *said; /* what was, by verdict.c */
	struct watched *all;
	size_t n;
};

enum reason {
	REASON_FAILED,
	REASON_STALL,
	REASON_ASKED,
	REASON_OVER,
};

struct said *verdict_begin(void); /* NULL: no memory */

/* Others find it as their peer. */
void verdict_register(const struct view *view);

/* Judge, and say what was not said yet; in a child, until that is over. False: it failed. */
bool verdict(const struct watcher *w, const struct watched *it,
	     enum reason reason);

/* ---- watch.c ---- */

/* Until the program @pid has ended, and all whose recordings begin with @path. */
int watch(const char *path, int pid, uint64_t stall_ns, bool quiet,
	  bool chinese);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * look.h - what look.c and polls.c share.
 */
#ifndef REPORT_LOOK_H
#define REPORT_LOOK_H

#include "live.h"

/* What a thread does now. */
struct doing {
	pid_t tid;
	uint64_t polled, sleeps;
	uint32_t open; /* enum slot_open */
	bool polling;
	char in[32];
};

struct account {
	FILE *out;
	const struct watched *it;
	const struct view *view;
	const struct report *r;
	int side; /* of @r */
	bool asked;
	uint64_t now, still; /* who moved less than that ago has not stopped */
	uint64_t idle;	     /* ns since the last post or completion */
	uint64_t call_idle;  /* and since the last event */
	struct samples samples;
	unsigned int shown;
	struct doing doing[MOST_SLOTS];
	size_t n;
};

/* ---- polls.c ---- */

/* Fills doing: waits for a second at most to see somebody poll. */
void look_for_polls(struct account *a);

/* A thread that polls @cq, or sleeps on @channel; 0: none. */
pid_t who_polls(const struct account *a, const void *cq);
pid_t who_sleeps(const struct account *a, const void *channel);

/* An event that nobody has taken. */
bool event_lies_there(const struct account *a, const void *channel);

bool is_armed(const struct object *cq);

/* Somebody polls it, sleeps on its channel, or has armed it and waits for the fd. */
bool cq_is_watched(const struct account *a, const void *cq);

/* @right, or the other CQ of @qp if that is watched instead. */
const void *watched_instead(const struct account *a, const struct object *qp,
			    const void *right);

#endif

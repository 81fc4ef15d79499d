/* SPDX-License-Identifier: MIT */
/*
 * lesson.h - the command line of the lessons' programs:
 *
 *	NN-slug [--break NAME] [device_name] [gid_index]
 *	NN-slug [--break NAME]		where no RDMA device is used
 *
 * --break plants one mistake, so that its error can be seen for real.
 */
#ifndef LESSONS_LESSON_H
#define LESSONS_LESSON_H

#include "rdma_common.h"

/* One mistake that a lesson can plant. A table ends with a NULL name. */
struct lesson_break {
	const char *name;
	const char *what;	  /* one line for --help */
	int (*plant)(void *with); /* @with: whatever the lesson works with */
};

struct lesson {
	const struct lesson_break *broken; /* NULL: nothing is to be */
	struct rdma_config config;
};

/*
 * Parse the command line. Returns -1 to go on, or the exit code to end with:
 * 0 after --help, 2 after reporting wrong usage.
 */
int lesson_parse(struct lesson *lesson, const struct lesson_break *breaks,
		 int argc, char *argv[]);

/* As lesson_parse(), without device_name and gid_index. */
int lesson_parse_break(struct lesson *lesson, const struct lesson_break *breaks,
		       int argc, char *argv[]);

/* True if the mistake @name was asked for. */
bool lesson_breaks(const struct lesson *lesson, const char *name);

/* Say which mistake is planted, and plant it: lesson->broken is not NULL. */
int lesson_plant(const struct lesson *lesson, void *with);

/* The name of an RDMA device other than @mine, so that packets leave it; @mine's if none. */
void lesson_other_device(const struct ibv_context *mine, char *name,
			 size_t size);

/* What RTR -> RTS has to name, for those who do it with values of their own. */
#define RTS_MASK                                                            \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | \
	 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

/*
 * A QP in SQD: wait until its send queue is drained, at most @ms milliseconds.
 * Until then only ERR can be reached. Returns 0 or -errno (-ETIMEDOUT, reported).
 */
int wait_for_drained_sq(struct ibv_qp *qp, int ms);

#endif

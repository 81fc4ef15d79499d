/* SPDX-License-Identifier: MIT */
/*
 * format.h - verbs' numbers as the words of the recording.
 */
#ifndef RECORDER_FORMAT_H
#define RECORDER_FORMAT_H

#include "line.h"

const char *async_event_name(unsigned int type); /* "QP_FATAL", ... */

/* "LOCAL_WRITE|REMOTE_READ" or "0"; @out: at least 160 bytes. */
const char *access_text(char *out, size_t size, unsigned int flags);

/* Members of @attr that @mask names. */
void format_qp_attr(struct line *line, struct ibv_qp *qp,
		    const struct ibv_qp_attr *attr, int mask);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * qp_table.h - the QP state machine as data: which transitions of an RC QP are
 * legal, which bits of the attribute mask each one requires and allows, and
 * the names of states and bits.
 *
 * Source: qp_state_table in drivers/infiniband/core/verbs.c, the same in Linux
 * 6.1 and 6.12; it decides for every provider that calls ib_modify_qp_is_ok().
 */
#ifndef COMMON_QP_TABLE_H
#define COMMON_QP_TABLE_H

#include <infiniband/verbs.h>
#include <stddef.h>

/* "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", or "UNKNOWN". */
const char *qp_state_name(enum ibv_qp_state state);

/*
 * Write the names of the bits of @attr_mask to @out as "STATE|AV|PATH_MTU"
 * (without the common prefix IBV_QP_); a bit without a name becomes its hex
 * value. At most @size - 1 characters. Returns @out.
 */
const char *qp_mask_text(char *out, size_t size, int attr_mask);

struct qp_transition {
	enum ibv_qp_state from, to;
	int required; /* besides IBV_QP_STATE */
	int optional;
};

/* The row for @from -> @to of an RC QP, or NULL if there is no such way. */
const struct qp_transition *qp_rc_transition(enum ibv_qp_state from,
					     enum ibv_qp_state to);

#endif

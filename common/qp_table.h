/* SPDX-License-Identifier: MIT */
/*
 * qp_table.h - the names of QP states and of the bits of an ibv_modify_qp
 * attribute mask. Source: ibv_modify_qp(3), <infiniband/verbs.h>.
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

#endif

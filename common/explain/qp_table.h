/* SPDX-License-Identifier: MIT */
/*
 * qp_table.h - the QP state machine as data: which transitions of a QP are
 * legal, which bits of the attribute mask each one requires and allows, what
 * each bit stands for, and the names of types, states and bits.
 *
 * Source: qp_state_table and ib_modify_qp_is_ok() in
 * drivers/infiniband/core/verbs.c, the same in Linux 6.1 and 6.12; it decides
 * for every provider that asks it. All five types have the same 22 transitions
 * and differ in the bits only. The data is in qp_table_data.c.
 *
 * Nothing here fails, prints or allocates: NULL or 0 is "there is none", and
 * what is returned is constant.
 */
#ifndef EXPLAIN_QP_TABLE_H
#define EXPLAIN_QP_TABLE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>

#define QP_STATES      7  /* RESET ... ERR, as enum ibv_qp_state counts them */
#define QP_TRANSITIONS 22 /* legal ones of each type */

struct qp_transition {
	enum ibv_qp_state from, to;
	int required; /* besides IBV_QP_STATE */
	int optional;
};

/* Who knows the value of an attribute. */
enum qp_attr_source {
	QP_ATTR_MINE,	/* it follows from my own device, port or QP */
	QP_ATTR_PEER,	/* the peer has to tell it */
	QP_ATTR_CHOSEN, /* the program decides, or both programs agree */
};

/* One bit of the attribute mask. Each text is one line; [0] English, [1] Chinese. */
struct qp_attr_info {
	int bit;	     /* IBV_QP_... */
	const char *name;    /* without the prefix IBV_QP_ */
	const char *members; /* of struct ibv_qp_attr, separated by ", " */
	enum qp_attr_source source;
	const char *what[2];  /* what it is */
	const char *range[2]; /* values and unit, and what is special */
};

/* ---- names -------------------------------------------------------------- */

/* "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", or "UNKNOWN". */
const char *qp_state_name(enum ibv_qp_state state);

/* "RC", "UC", "UD", "RAW_PACKET", "XRC_INI", "XRC_TGT", "DRIVER", "UNKNOWN". */
const char *qp_type_name(enum ibv_qp_type type);

/* "mine", "from the peer", "chosen"; in Chinese if @chinese. */
const char *qp_attr_source_name(enum qp_attr_source source, bool chinese);

/* The state or type that @name (in any case) names; false: there is none. */
bool qp_state_by_name(const char *name, enum ibv_qp_state *state);
bool qp_type_by_name(const char *name, enum ibv_qp_type *type);

/*
 * Write the names of the bits of @attr_mask to @out as "STATE|AV|PATH_MTU"
 * (without the common prefix IBV_QP_); a bit without a name becomes its hex
 * value. At most @size - 1 characters. Returns @out.
 */
const char *qp_mask_text(char *out, size_t size, int attr_mask);

/* ---- transitions -------------------------------------------------------- */

/* The row for @from -> @to, or NULL if there is no such way or type. */
const struct qp_transition *qp_transition(enum ibv_qp_type type,
					  enum ibv_qp_state from,
					  enum ibv_qp_state to);

/*
 * One line on what happens on the way @from -> @to, [0] in English, [1] in Chinese, or
 * NULL if there is no such way.
 */
const char *const *qp_transition_text(enum ibv_qp_state from,
				      enum ibv_qp_state to);

/*
 * The same on where the kernel does not follow the row @from -> @to of @type, or NULL if
 * it does.
 */
const char *const *qp_transition_note(enum ibv_qp_type type,
				      enum ibv_qp_state from,
				      enum ibv_qp_state to);

/*
 * Would the kernel's check let a program take a QP of @type, which is in state
 * @now, to @to with @attr_mask? As ib_modify_qp_is_ok() decides: with
 * IBV_QP_CUR_STATE the kernel believes @claimed (attr.cur_qp_state) instead of
 * @now, without IBV_QP_STATE it takes the QP to stay where it is. And as
 * modify_qp() of uverbs_cmd.c changes the mask before: unless the way leads to
 * RTR, IBV_QP_AV brings IBV_QP_PORT with it. What is refused for other reasons
 * (addresses, values, ALT_PATH on RoCE) is not looked at.
 */
bool qp_mask_allowed(enum ibv_qp_type type, enum ibv_qp_state now,
		     enum ibv_qp_state claimed, enum ibv_qp_state to,
		     int attr_mask);

/*
 * The shortest way from @from to @to that takes at least one step: all states
 * on it, both ends included, are written to @path. Returns how many, 0 if no
 * way exists (nothing can be asked to go to SQE).
 */
#define QP_PATH_MAX (QP_STATES + 1)
size_t qp_path(enum ibv_qp_type type, enum ibv_qp_state from,
	       enum ibv_qp_state to, enum ibv_qp_state path[QP_PATH_MAX]);

/* ---- what refuses a transition: qp_table_checks.c ------------------------ */

/* A check of ibv_modify_qp() that may fail; the texts are [0] English, [1] Chinese. */
struct qp_check {
	int error;	 /* errno */
	const char *who; /* "uverbs", "ib_core", "driver" */
	const char *id;	 /* of the cause, as explain.h has it */
	int bits;	 /* only if one of these is allowed; 0: always */
	int from;	 /* bit mask of states; 0: all */
	const char *what[2];
	const char *next[2];
};

/*
 * The checks that can refuse @from -> @to of @type with @error (0: any), in the kernel's
 * order: the one after @last, first that after NULL. NULL: no more.
 */
const struct qp_check *qp_check_after(const struct qp_check *last,
				      enum ibv_qp_type type,
				      enum ibv_qp_state from,
				      enum ibv_qp_state to, int error);

/* ---- all there is ------------------------------------------------------- */

/* The types that have a table: RC, UC, UD, XRC_INI, XRC_TGT. */
const enum ibv_qp_type *qp_types(size_t *count);

/* Row @i < QP_TRANSITIONS of @type, by from and to; NULL if it has no table. */
const struct qp_transition *qp_transition_at(enum ibv_qp_type type, size_t i);

/* All bits in the order of their values. */
const struct qp_attr_info *qp_attr_infos(size_t *count);

#endif

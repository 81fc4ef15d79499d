/* SPDX-License-Identifier: MIT */
/*
 * qp_errno.h - a part of qp_explain: what a transition can be refused for.
 */
#ifndef TOOLS_QP_ERRNO_H
#define TOOLS_QP_ERRNO_H

#include "explain/qp_table.h"

struct qp_step {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
};

/*
 * Print the checks that refuse @step with @error (0: any) in the kernel's order, as text
 * or as rows of a page. 0, or 1 if there is none.
 */
int show_checks(const struct qp_step *step, int error, bool chinese,
		bool markdown);

#endif

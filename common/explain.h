/* SPDX-License-Identifier: MIT */
/*
 * explain.h - why a verb failed, in words.
 *
 * Verbs report failure in two ways, and mixing them up prints the wrong cause:
 *  - they RETURN an error number: ibv_modify_qp, ibv_query_*, ibv_post_send,
 *    ibv_post_recv, ibv_dereg_mr, ibv_destroy_*, ibv_dealloc_pd;
 *  - they SET errno and return NULL or -1: ibv_get_device_list,
 *    ibv_open_device, ibv_alloc_pd, ibv_reg_mr, ibv_create_*.
 * Callers hand the right number to verb_failed(); nothing here reads errno.
 *
 * Causes: ibv_*(3) man pages; drivers/infiniband/core/{verbs,addr,cache}.c and
 * sw/rxe/ of Linux 6.1 and 6.12, confirmed on rxe.
 */
#ifndef COMMON_EXPLAIN_H
#define COMMON_EXPLAIN_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct explanation {
	char cause[320]; /* one sentence; "": what strerror says */
	char next[200];	 /* one sentence: what to do now; "": nothing */
};

struct explanation explain_open_device(int err);
struct explanation explain_reg_mr(int err);
struct explanation explain_create_cq(int err);
struct explanation explain_create_qp(int err);
struct explanation explain_destroy(int err);
struct explanation explain_post(int err);

/*
 * Why ibv_modify_qp(@qp, @attr, @attr_mask) returned @err. Asks the kernel for
 * the QP's state, since the one in @qp is only what the library remembers.
 */
struct explanation explain_modify_qp(struct ibv_qp *qp,
				     const struct ibv_qp_attr *attr,
				     int attr_mask, int err);

struct explanation explain_wc_status(enum ibv_wc_status status);

/*
 * Report that a call failed: "CALL failed: NAME (number): cause" and the next
 * step. @fmt: the call with its arguments. Returns -@err (or -EIO if @err is
 * 0 or negative, which a broken provider might hand back).
 */
int verb_failed(int err, struct explanation why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif

/* SPDX-License-Identifier: MIT */
/*
 * hooks.h - the calls that are no symbols: ibv_poll_cq() and its kin are inline
 * functions that jump through pointers in the context, in a CQ or in a QP.
 */
#ifndef RECORDER_HOOKS_H
#define RECORDER_HOOKS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* ---- fast.c: context->ops ---- */

/* What the calls of a context really are. */
struct hooked {
	struct ibv_context *_Atomic context; /* NULL: free */
	struct ibv_context_ops ops;
	/* extended.c's; those that the context has */
#define EACH_EXTENDED(DO)       \
	DO(create_qp_ex)        \
	DO(create_cq_ex)        \
	DO(create_srq_ex)       \
	DO(alloc_dm)            \
	DO(alloc_td)            \
	DO(alloc_parent_domain) \
	DO(open_xrcd)           \
	DO(create_wq)           \
	DO(create_counters)     \
	DO(alloc_null_mr)       \
	DO(ibv_create_flow)     \
	DO(modify_cq)           \
	DO(advise_mr)
#define MEMBER(op) __typeof__(((struct verbs_context *)0)->op) op;
	EACH_EXTENDED(MEMBER)
#undef MEMBER
};

struct hooked *hooked_of(const struct ibv_context *context); /* Or NULL. */

/*
 * Put the recorder's functions into @context, but with --control-only. NULL: it is
 * known already, or there are too many.
 */
struct hooked *hook_ops(struct ibv_context *context);
void unhook_ops(struct ibv_context *context);

/*
 * A bad completion was read from @cq: explain the first of each QP. Not for a
 * QP that the program has moved to ERR itself.
 */
void completion_failed(const struct ibv_cq *cq, uint32_t qpn, uint64_t wr_id,
		       enum ibv_wc_status status);

/* The driver refused requests: record that and explain it. */
struct refusal {
	const char *call;
	void *object;			/* the QP or SRQ */
	struct ibv_qp *qp;		/* NULL: it is an SRQ */
	const struct ibv_send_wr *send; /* the first of them, of its kind */
	const struct ibv_recv_wr *recv;
	uint32_t count;
	int rc;	      /* what the driver returned */
	bool returns; /* the list comes back to a request of its own */
};
void post_refused(const struct refusal *refusal);

/* ---- extended.c: verbs_context, ibv_qp_ex, ibv_cq_ex ---- */

/*
 * hook_ops(), and the extended calls of @context that make objects; once. With the
 * writer's lock.
 */
void hook_context(struct ibv_context *context);

/* Put the real ones back, before the context is closed. */
void unhook_context(struct ibv_context *context);

/* @qp's wr_*() functions, if it has any. */
void hook_qp(struct ibv_qp *qp);
void unhook(const void *object); /* a QP or a CQ, if it is hooked */

/* ---- made.c: shared by the plain and the extended calls, and librdmacm's ---- */

struct event;
enum object_kind;

/* The line of a QP that was made; takes the lock. */
void record_qp(struct event *event, struct ibv_qp *qp, const struct ibv_pd *pd,
	       const struct ibv_qp_init_attr *got,
	       const struct ibv_qp_cap *asked);
void record_cq(struct event *event, struct ibv_cq *cq,
	       struct ibv_context *context, int64_t asked);
void record_srq(struct event *event, struct ibv_srq *srq,
		const struct ibv_pd *pd, struct ibv_context *context,
		const struct ibv_srq_attr *attr);

/*
 * ibv_destroy_cq() and rdma_destroy_id() return when all events of @pointer that were got
 * have been acknowledged: warn if they were not.
 */
void warn_unacked(enum object_kind kind, const void *pointer);

/* @call waits for an event and has failed: warn, once, if nothing is wrong with it (errno). */
void warn_woken(const char *call);

#endif

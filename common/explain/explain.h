/* SPDX-License-Identifier: MIT */
/*
 * explain.h - why a verb failed, in words.
 *
 * Verbs report failure in two ways, and mixing them up prints the wrong cause:
 *  - they RETURN an error number: ibv_modify_qp, ibv_query_*, ibv_post_send,
 *    ibv_post_recv, ibv_dereg_mr, ibv_destroy_*, ibv_dealloc_pd;
 *  - they SET errno and return NULL or -1: ibv_get_device_list,
 *    ibv_open_device, ibv_alloc_pd, ibv_reg_mr, ibv_create_*.
 * Callers hand the right number to the functions here; nothing reads errno.
 *
 * The rule of the house: never guess. A cause is named alone only if the
 * arguments, the kernel or the network prove it. Where two remain, the cause
 * says both and next says how to tell them apart. What was looked at is kept
 * as evidence. Nothing here prints (but verb_failed()), allocates, changes the
 * objects or errno, or waits for more than the kernel's answer; all of it may be
 * called by a preloaded library in any thread.
 *
 * With RDMA_EXPLAIN=0 in the environment all of this returns nothing, and
 * verb_failed() prints the error number and strerror only.
 *
 * Causes: ibv_*(3) man pages; IBTA 10.3.1 (states), 11.6.2 (completions);
 * drivers/infiniband/core/{uverbs_cmd,verbs,addr,cache}.c and sw/rxe/ of Linux
 * 6.1 and 6.12, each of them seen on rxe.
 */
#ifndef EXPLAIN_EXPLAIN_H
#define EXPLAIN_EXPLAIN_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What a rule found: a row of causes.def and what fills it. The words are made when it
 * is printed, in the reader's language; recordings keep these members.
 */
struct explanation {
	const char *id;	 /* of the row; NULL: nothing was found */
	bool hint;	 /* only possible: innocent programs look the same */
	char args[400];	 /* separated by '\t' */
	char seen[1000]; /* the evidence: lines "ID\tARG\tARG...", or "" */
};

/*
 * For rules: the row @id with its arguments, a format in which '\t' separates them:
 * because("port", "%u\t%u", port, ports). Nothing at all if explaining is off.
 */
#define because(id, ...) explain_because(id, "\t" __VA_ARGS__)
struct explanation explain_because(const char *id, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* One more line of evidence, a row as above (dropped if there is no room). */
#define also_seen(why, id, ...) explain_also(why, id, "\t" __VA_ARGS__)
void explain_also(struct explanation *why, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Another cause as evidence: "also: ...". */
void also_cause(struct explanation *why, const struct explanation *other);

static inline struct explanation no_idea(void)
{
	return (struct explanation){ 0 };
}

/* @why is the row @id. */
bool explained_as(const struct explanation *why, const char *id);

/* ---- in words: words.c, causes.def ------------------------------ */

/* One line each, @seen several; "": there is nothing to say. */
struct explain_words {
	char cause[512], next[512], seen[1600];
};
void explain_in_words(struct explain_words *out, const struct explanation *why,
		      bool chinese);

/* A WORD of causes.def; any other stays as it is. */
const char *explain_word(const char *english, bool chinese);

/*
 * Is Chinese wanted? @lang, "zh..." or another; NULL or "": the first of LC_ALL,
 * LC_MESSAGES and LANG that is set and not empty. The locale need not be installed.
 */
bool explain_speaks_chinese(const char *lang);

/* A row of causes.def; English is 0, Chinese 1. Evidence and words have no next. */
struct explain_row {
	const char *id, *text[2], *next[2];
	bool hint;
};
const struct explain_row *explain_row(const char *id); /* NULL: there is none */
const struct explain_row *explain_rows(size_t *count);

/* False if RDMA_EXPLAIN is "0". */
bool explain_is_on(void);

/*
 * Report that a call failed:
 *
 *	error: CALL failed: NAME (number): cause
 *	 next: what to do
 *	 seen: a line of evidence (none or several)
 *
 * @fmt: the call with its arguments. Returns -@err (or -EIO if @err is 0 or
 * negative, which a broken provider might hand back).
 */
int verb_failed(int err, struct explanation why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * What comes after "error: ...\n next: ": the next step and the evidence, for those
 * who print themselves with report_error(). NULL if there is neither. Writes
 * to and returns @out.
 */
#define EXPLAIN_NEXT_SIZE 2200
const char *explain_next(char out[EXPLAIN_NEXT_SIZE],
			 const struct explain_words *why);

/* ---- devices and objects: verbs.c ------------------------------- */

/*
 * ibv_get_device_list() gave NULL with errno @err, or (@err 0) an empty list.
 * Looks at sysfs and /dev/infiniband.
 */
struct explanation explain_device_list(int err);

struct explanation explain_open_device(int err);
struct explanation explain_destroy(int err);

/*
 * The long forms look at the arguments, the limits of the device, the rlimit
 * and the mapping; the short ones know the errno only.
 */
struct explanation explain_reg_mr_call(struct ibv_pd *pd, const void *addr,
				       size_t length, int access, int err);

/*
 * ibv_reg_dmabuf_mr() with this @fd set errno @err. Libraries ask with fd -1
 * whether they could, and want the failure: that is cause EXPLAIN_PROBE.
 */
#define EXPLAIN_PROBE "dmabuf-probe"
struct explanation explain_reg_dmabuf_mr(struct ibv_pd *pd, int fd, int err);

struct explanation explain_create_cq_call(struct ibv_context *context, int cqe,
					  int comp_vector, int err);

/* Port @port of @context is not ACTIVE. */
struct explanation explain_port(struct ibv_context *context, uint8_t port);

/* Is the device Soft-RoCE? (Its vendor_id says so.) */
bool device_is_rxe(struct ibv_context *context);

struct explanation explain_create_srq(struct ibv_context *context,
				      uint32_t max_wr, uint32_t max_sge,
				      int err);

struct explanation explain_modify_srq(struct ibv_srq *srq,
				      const struct ibv_srq_attr *attr, int mask,
				      int err);

/*
 * Of a CQ @got events were taken from its channel and @acked were acknowledged, and
 * now it is to be destroyed. Not for equal numbers.
 */
struct explanation explain_unacked(uint64_t got, uint64_t acked);

/* ---- librdmacm: cm.c -------------------------------------------- */

/*
 * rdma_@call ("connect", "accept", "create_qp", ...) failed with errno @err. @again:
 * it had succeeded for this id before. @private_data_len, @foreign_pd: as it was called.
 */
struct explanation explain_cm_call(const char *call, int err, bool again,
				   unsigned int private_data_len,
				   bool foreign_pd);

/* An event of rdma_get_cm_event(): nothing if it is good news. */
struct explanation explain_cm_event(unsigned int type, int status);
const char *cm_event_name(unsigned int type);

/* rdma_destroy_id() while @unacked events of the id are not acknowledged. */
struct explanation explain_cm_unacked(uint64_t unacked);

/* rdma_accept() of an id without a QP, and without a QPN of its own. */
struct explanation explain_cm_without_qp(void);

/*
 * Whether packets to @to, an address of this host's own RDMA devices, go to the network
 * device that has it: nothing if they do, or if that cannot be told.
 */
struct explanation explain_neighbour(const union ibv_gid *to);

/*
 * ibv_create_qp_ex() refused, with EINVAL or EOPNOTSUPP, a comp_mask or send_ops_flags
 * (0: none) that libibverbs or the device does not know: nothing if that is not why.
 */
struct explanation explain_extended_qp(uint32_t comp_mask, uint64_t ops,
				       enum ibv_qp_type type, int err);

struct explanation explain_create_qp(int err);
struct explanation explain_create_qp_call(struct ibv_pd *pd,
					  const struct ibv_qp_init_attr *init,
					  int err);

/* An asynchronous event (ibv_get_async_event). */
struct explanation explain_async_event(enum ibv_event_type type);

/* ---- posting: post.c -------------------------------------------- */

/* @wr: the request that was refused: *bad_wr, or the list if that is NULL. */
struct explanation explain_post_send(struct ibv_qp *qp,
				     const struct ibv_send_wr *wr, int err);

/* A datagram is posted with wr.ud.ah NULL. */
struct explanation explain_null_ah(void);

/* ibv_post_* was given a list of requests that leads back into itself. */
struct explanation explain_wr_cycle(void);

struct explanation explain_post_recv(struct ibv_qp *qp,
				     const struct ibv_recv_wr *wr, int err);
struct explanation explain_post_srq_recv(struct ibv_srq *srq,
					 const struct ibv_recv_wr *wr, int err);

/* ---- the state machine: modify_qp.c, accepted.c ---------- */

/*
 * Why ibv_modify_qp(@qp, @attr, @attr_mask) returned @err. Asks the kernel for
 * the QP's state, since the one in @qp is only what the library remembers.
 */
struct explanation explain_modify_qp(struct ibv_qp *qp,
				     const struct ibv_qp_attr *attr,
				     int attr_mask, int err);

/* Why ibv_create_ah(@pd, @ah) set errno @err: the address checks of RTR. */
struct explanation explain_create_ah(struct ibv_pd *pd,
				     const struct ibv_ah_attr *ah, int err);

/*
 * ibv_modify_qp(@qp, @attr, @attr_mask) returned 0: is there a value that will
 * hurt later, and that nothing else complains of? @before: the state before
 * the call. Writes at most @most findings to @out and returns how many.
 */
#define EXPLAIN_MOST 8
size_t explain_accepted(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
			int attr_mask, enum ibv_qp_state before,
			struct explanation *out, size_t most);

/* What one end of a connection was told. */
struct explain_side {
	const char *name;	 /* "server", "rxe1": in the sentences */
	uint32_t qp_num;	 /* its own */
	union ibv_gid gid;	 /* its own */
	struct ibv_qp_attr attr; /* as given to ibv_modify_qp */
	int attr_mask;		 /* what is valid in attr */
};

/* ibv_modify_qp(@attr, @attr_mask) has succeeded: @side was told that, too. */
void explain_side_learn(struct explain_side *side,
			const struct ibv_qp_attr *attr, int attr_mask);

/*
 * Two ends that are meant for each other: QPN, PSN, GID, path MTU, READ depth.
 * What does not match, the worst first: at most @most, returns how many; none, if one of
 * them is not known (NULL).
 */
size_t explain_pair(const struct explain_side *a, const struct explain_side *b,
		    struct explanation *out, size_t most);

/* ---- completions: wc.c, stall.c --------------------------------- */

/* What can be said without knowing the request: the row "RETRY_EXC_ERR". */
struct explanation explain_wc_status(enum ibv_wc_status status);

/* A memory region as the program registered it, or as the peer told it. */
struct explain_mr {
	const struct ibv_pd *pd; /* NULL: not known */
	uint64_t addr;
	uint64_t length;
	uint32_t lkey, rkey;
	int access; /* IBV_ACCESS_...; -1: not known */
};

/* The third argument of lkey-unknown and rkey-unknown, if no more is known. */
#define EXPLAIN_ANY_KEY "it is wrong, or the MR was deregistered"

/* What the caller knows of a request. Leave NULL and 0 what it does not. */
struct explain_request {
	const struct ibv_send_wr *send; /* this one, */
	const struct ibv_recv_wr *recv; /* or this one; NULL, NULL: unknown */
	const struct ibv_cq *polled;	/* where its completion is waited for */
	const struct explain_mr *local; /* this process's MRs: all of them */
	size_t n_local;
	const struct explain_mr *remote; /* the peer's MRs: all of them */
	size_t n_remote;
	const struct ibv_pd *peer_pd; /* of the peer's QP, as in remote */
	const struct ibv_recv_wr *peer_recv; /* the receive that it met */
	const struct ibv_send_wr *peer_send; /* the send it waits for */
	const struct explain_side *mine;     /* what this end was told */
	const struct explain_side *peer;     /* what the other end was told */
	enum ibv_qp_state peer_state;	     /* if peer_state_known */
	bool peer_state_known;
};

/*
 * Why @wc of @qp is bad (@wc->status is not SUCCESS). If the peer's QP is in
 * this very kernel, it is looked at, too.
 */
struct explanation explain_completion(struct ibv_qp *qp,
				      const struct ibv_wc *wc,
				      const struct explain_request *request);

/*
 * The same of a recording: without the kernel, by what @request tells of both ends
 * alone. @like: the QP's type, number and PD, which are only compared. Nothing (no
 * cause) if that does not prove one.
 */
struct explanation explain_recorded(const struct ibv_qp *like,
				    enum ibv_wc_status status,
				    const struct explain_request *request);

/*
 * Why there is no completion of @request after @wait_ms (stall.c).
 * For a receive, @request->peer_send is the peer's send that ended well.
 */
struct explanation explain_stall(struct ibv_qp *qp,
				 const struct explain_request *request,
				 int64_t wait_ms);

/*
 * State, PSNs and peer's QPN of another process's QP, to @attr, as `rdma resource show qp`
 * has them. False: the kernel does not tell of such a QP.
 */
bool explain_kernel_qp(const char *device, struct ibv_qp_attr *attr,
		       uint32_t qp_num);

/*
 * Why a UD receive that ended well, @wc, does not look as if it were for GID
 * @mine (grh.c). @forty: the 40 bytes before the message; over RoCE v2
 * with IPv4 they are not the GRH as which they are documented. Nothing if it
 * is for @mine, or if the bytes do not tell. IBTA annex A17.4.5.2.
 */
struct explanation explain_grh(const struct ibv_wc *wc, const void *forty,
			       const union ibv_gid *mine);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * failed.h - a verb failed: report it, with its cause, in one line at the call.
 *
 *	mr = ibv_reg_mr(pd, buf, size, access);
 *	if (!mr)
 *		return reg_mr_failed(pd, buf, size, access, errno);
 *
 * What is reported: the call with its arguments, the error, why (explain.h), and
 * what to do. Each returns the negative errno to pass up. @err is what the verb
 * returned or set errno to; explain.h says which does which. A verb of which
 * strerror() says all that is known is reported with call_failed().
 */
#ifndef EXPLAIN_FAILED_H
#define EXPLAIN_FAILED_H

#include "explain.h"

#include "base/call_failed.h"
#include "base/handshake.h"

/* ---- stages 1 to 3 ------------------------------------------------------ */

int device_list_failed(int err);

/*
 * No device is named @name, of @count, or there is none at all. @err: as for
 * explain_device_list().
 */
int no_such_device(const char *name, int count, int err);

int open_device_failed(struct ibv_device *device, int err);

/* No port of @device is ACTIVE; @state: of the last one. */
int no_active_port(struct ibv_device *device, enum ibv_port_state state);

/* @wanted (-1: any) is no RoCE v2 GID; @found: but there is one. */
int gid_refused(const char *device, unsigned int port, int wanted, bool found);
void warn_of_link_local(const char *device, unsigned int port);

/* Bytes of one message; what the port can carry. */
int size_refused(const char *device, unsigned int port, uint32_t size,
		 uint32_t most);
int no_memory_for_buffer(size_t size);

int reg_mr_failed(struct ibv_pd *pd, const void *addr, size_t length,
		  int access, int err);
int create_cq_failed(struct ibv_context *context, int cqe, int err);
int create_srq_failed(struct ibv_pd *pd, const struct ibv_srq_attr *attr,
		      int err);
int create_qp_failed(struct ibv_pd *pd, const struct ibv_qp_init_attr *init,
		     int err);

/* @call: "ibv_destroy_qp". @err 0: it did not fail. */
int check_destroyed(const char *call, int err);

int modify_qp_failed(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
		     int mask, int err);

/* It did not fail; warn of values that will hurt later. @from: the state before. */
void warn_of_accepted(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
		      int mask, enum ibv_qp_state from);

/* ---- stage 11 ----------------------------------------------------------- */

/* rdma_@call set errno @err; @peer: whom it was about. */
int cm_call_failed(const char *call, int err, const char *peer);

/* The event @type ended a wait. -ECONNREFUSED, -ECONNRESET, or the status. */
int cm_event_failed(unsigned int type, int status, const char *peer);

/* @peer is reached through @device, and not through the one @wanted. -ENODEV. */
int device_refused(const char *peer, const char *device, const char *wanted);

/* ---- stages 5 and 8 ----------------------------------------------------- */

/*
 * A request as it was posted, kept until it has completed: neither a bad
 * completion nor a stall says what had been asked for. One SGE is kept.
 */
struct posted {
	bool is_receive;
	struct ibv_send_wr send;
	struct ibv_recv_wr recv;
	struct ibv_sge sge;
};

void remember_send(struct posted *posted, const struct ibv_send_wr *wr);
void remember_receive(struct posted *posted, const struct ibv_recv_wr *wr);

int post_send_failed(struct ibv_qp *qp, const struct ibv_send_wr *wr, int err);
int post_recv_failed(struct ibv_qp *qp, const struct ibv_recv_wr *wr, int err);

/* @device has no @what ("memory windows of type 2"). -EOPNOTSUPP. */
int no_support(const char *device, const char *what);

/* @wc is good, but not what was asked for. -EIO. */
int unexpected_completion(const struct ibv_wc *wc);

/*
 * @wc is bad, or (wc NULL) there was no completion of @wr_id within @wait_ms.
 * @posted: @n requests, of which one may have that wr_id. @mr: this side's MR (the
 * SGE may be in another). @told: by the peer of its MR; NULL if that is not its
 * only one. -EIO, -ETIMEDOUT.
 */
int completion_failed(struct ibv_qp *qp, const struct ibv_wc *wc,
		      uint64_t wr_id, int wait_ms, const struct posted *posted,
		      size_t n, const struct ibv_mr *mr,
		      const struct cm_con_data_t *told);

#endif

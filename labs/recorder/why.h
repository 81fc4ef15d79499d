/* SPDX-License-Identifier: MIT */
/*
 * why.h - what the recorder knows, handed to the explainer (explain/explain.h): the
 * request, the memory regions, what the QP was told, and the peer, if that is
 * in this very process. All of it needs the writer's lock: so no QP that is
 * looked at is destroyed meanwhile.
 */
#ifndef RECORDER_WHY_H
#define RECORDER_WHY_H

#include "objects.h"

/* A request as it was posted, as far as a record tells. */
struct posted {
	struct ibv_sge sge; /* the first; all bytes of all SGEs */
	union {
		struct ibv_send_wr send;
		struct ibv_recv_wr recv;
	};
};
void why_posted(struct posted *out, const struct record *post);

/* Why the first bad completion of @qp has @status. */
struct explanation why_completion(struct object *qp, enum ibv_wc_status status);

/* Why @wr of @qp has not completed. @polled: see explain_request. */
struct explanation why_stall(struct object *qp, const struct waiting *wr,
			     const struct ibv_cq *polled, int64_t ms);

#endif

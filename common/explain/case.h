/* SPDX-License-Identifier: MIT */
/*
 * case.h - one bad completion and what is known about it, shared by
 * request.c (what the request itself proves) and wc.c (what the
 * connection proves). Not for others.
 */
#ifndef EXPLAIN_CASE_H
#define EXPLAIN_CASE_H

#include "parts.h"

struct case_of {
	struct ibv_qp *qp;
	enum ibv_wc_status status; /* SUCCESS: there is no completion */
	const struct explain_request *rq;
	bool known;
	struct ibv_qp_attr now; /* from the kernel */
	bool rxe;
	struct net_device device; /* of my GID */
	struct local_peer peer;
};

/* Each check proves a cause, or returns nothing. */
typedef struct explanation (*check_fn)(const struct case_of *c);

/* request->peer->name, or "the peer" */
const char *request_peer_name(const struct case_of *c);

struct explanation request_sges(const struct case_of *c);
struct explanation request_inline_read(const struct case_of *c);
struct explanation request_opcode(const struct case_of *c);
struct explanation request_recv_length(const struct case_of *c);
struct explanation request_remote(const struct case_of *c);
struct explanation request_window(const struct case_of *c);
struct explanation request_peer_access(const struct case_of *c);
struct explanation request_peer_recv(const struct case_of *c);

#endif

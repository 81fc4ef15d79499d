/* SPDX-License-Identifier: MIT */
/*
 * ids.h - the rdma_cm_ids that the program has. All with the writer's lock, but
 * where it is said.
 */
#ifndef RECORDER_IDS_H
#define RECORDER_IDS_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>

struct cm_id {
	const void *id; /* NULL: free */
	uint32_t number;
	bool connected, accepted;
	union ibv_gid to; /* of whom it asked; zero: nobody, or no IPv4 */
	unsigned int unacked;
};

/* Of more than it can know all are one stranger; NULL: that is not here yet. */
struct cm_id *know_id(const void *id);

/* @known is destroyed: its place is free, and whom it asked is nobody's matter. */
void forget_id(struct cm_id *known);

/* rdma_connect is called: @id's peer is @addr. Takes the lock. */
void id_connects_to(const void *id, const struct sockaddr *addr);

/* A warning for each that asked and has no answer, if its packets go astray. */
void look_at_ids(void);

#endif

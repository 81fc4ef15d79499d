/* SPDX-License-Identifier: MIT */
/*
 * match.h - tag matching alone, without a transport: which message goes
 * into which receive.
 *
 * A message carries a 64-bit tag; a receive carries a tag and a mask. They fit
 * if (message tag & mask) == (receive tag & mask): mask TAG_EXACT wants exactly
 * this tag, mask TAG_ANY takes any. Two queues:
 *
 *	posted      receives that wait for a message
 *	unexpected  messages that came before a receive that fits them
 *
 * and two rules, which are those of MPI (MPI-4.1, 3.5 "Semantics of
 * Point-to-Point Communication", order) and of UCX (ucp_tag_recv_nbx(3),
 * ucp_tag_probe_nb(3)): a message takes the OLDEST posted receive that fits, a
 * receive takes the OLDEST unexpected message that fits.
 *
 * Nothing here allocates: receives and messages are the caller's, linked in by
 * a member of theirs, and must stay where they are for as long as they are in a
 * queue. One thread per matcher. No function reports; they are all O(length of
 * the queue) at most.
 */
#ifndef TAG_MATCH_H
#define TAG_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define TAG_EXACT UINT64_MAX
#define TAG_ANY	  UINT64_C(0)

/* The struct of type @type whose member @member @pointer points to. */
#define tag_entry(pointer, type, member) \
	((type *)(void *)(((char *)(pointer)) - offsetof(type, member)))

/* A receive. The caller fills the first three members. */
struct tag_recv {
	uint64_t tag;
	uint64_t mask;
	uint64_t size; /* bytes that its buffer holds */
	bool waits;    /* in posted */
	TAILQ_ENTRY(tag_recv) node;
};

/* A message that came. The caller fills the first three members. */
struct tag_message {
	uint64_t tag;
	uint64_t length; /* bytes that were sent */
	uint64_t held;	 /* bytes it costs to keep it */
	TAILQ_ENTRY(tag_message) node;
};

struct tag_match {
	/* both: oldest first */
	TAILQ_HEAD(tag_recvs, tag_recv) posted;
	TAILQ_HEAD(tag_messages, tag_message) unexpected;
	uint64_t n_posted;
	uint64_t n_unexpected;
	uint64_t bytes;	       /* held by unexpected messages */
	uint64_t max_messages; /* n_unexpected never exceeds it, */
	uint64_t max_bytes;    /* nor bytes this */
};

/* Two empty queues, the second with limits. */
void tag_match_init(struct tag_match *match, uint64_t max_messages,
		    uint64_t max_bytes);

/*
 * A receive is posted. Returns the oldest unexpected message that fits, taken
 * out of its queue, and @recv is in none; or NULL, and @recv waits as the
 * youngest.
 */
struct tag_message *tag_match_post(struct tag_match *match,
				   struct tag_recv *recv);

/*
 * A message with @tag arrives. Returns the oldest posted receive that fits,
 * taken out of its queue; or NULL: nobody waits for it, and tag_match_keep() is
 * the next step.
 */
struct tag_recv *tag_match_arrive(struct tag_match *match, uint64_t tag);

/* Would a message that holds @held bytes be kept? */
bool tag_match_has_room(const struct tag_match *match, uint64_t held);

/* Keep @message as the youngest unexpected one. -ENOBUFS: over the limits. */
int tag_match_keep(struct tag_match *match, struct tag_message *message);

/* Take @recv out of its queue. False: it was in none (it had been matched). */
bool tag_match_cancel(struct tag_match *match, struct tag_recv *recv);

/*
 * The oldest unexpected message that a receive for @tag and @mask would take;
 * it stays where it is. NULL: there is none. tag_match_take() takes it out.
 */
struct tag_message *tag_match_probe(const struct tag_match *match, uint64_t tag,
				    uint64_t mask);
void tag_match_take(struct tag_match *match, struct tag_message *message);

/*
 * What becomes of a message of @length bytes in @recv: 0, or -EMSGSIZE if it is
 * longer than the buffer. Then not a byte is delivered, as in UCX
 * (UCS_ERR_MESSAGE_TRUNCATED), and message and receive are both used up.
 */
int tag_match_outcome(const struct tag_recv *recv, uint64_t length);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * rules.h - what the recordings prove together: the rules of cm.c, compare.c,
 * slips.c, unread.c and waits.c, and what they ask (facts.c, threads.c). blame.c
 * applies them, in its order, until one has found a cause.
 */
#ifndef LABS_REPORT_RULES_H
#define LABS_REPORT_RULES_H

#include "parts.h"

#include <stdio.h>
#include <string.h>

/* So many requests are looked at: the first wrong one is among them. */
#define MOST_POSTS 2000

/* ---- facts.c ---- */

bool is_one_of(const char *id, const char *const *ids, size_t n);
#define IS_ONE_OF(id, ids) is_one_of(id, ids, sizeof(ids) / sizeof(*(ids)))

/* It waits, and says little of what for: whatever is proven elsewhere is more. */
bool is_weak(const struct cause *cause);

/* What it waited for has come after all. */
bool was_done(const struct report *r, const struct cause *cause);

/* Somebody waits for ever, and says for what; something was suggested already. */
bool is_stalled_for(const struct report *r, const struct causes *all);
bool is_suggested(const struct causes *all);

enum ibv_wc_status status_of(const char *name);

/* @cause is @why after all. */
void cause_restate(struct cause *cause, const struct explanation *why);

/* One more, that is seen at @event; cause_suggest: that is only possible. */
void cause_add(const struct report *r, struct causes *all, size_t event,
	       const struct qp *qp, const struct explanation *why);
void cause_suggest(const struct report *r, struct causes *all, size_t event,
		   const struct explanation *why);

/* @side (-1: any) was warned of @id: that is it. False: it was not. */
bool believe(struct causes *all, int side, const char *id);

/* The last event of a side; the last ibv_modify_qp of a QP. */
size_t last_of(const struct report *r, int side);
size_t modified(const struct report *r, const struct qp *qp);

/* It succeeded in bringing @qp there: "RTR". */
bool got_to(const struct report *r, const struct qp *qp, const char *state);

/* A QP of its got there, at least to RTR. */
bool is_connected(const struct report *r, int side);

/* The last @ev with @op (NULL: any) of a side, or NOWHERE. */
size_t last_event(const struct report *r, int side, const char *ev,
		  const char *op);
/* @i is somewhere, and not before @than. */
bool is_after(size_t i, size_t than);

/* When the call @e returned. */
int64_t returned_at(const struct report *r, const struct event *e);

/* It did not end by itself, or said that it had not done its work. */
bool gave_up(const struct side *side);

/* How many receives of @qp, or of its SRQ, no message has taken. */
int64_t receives_left(const struct report *r, const struct qp *qp);

/* @post of @qp has a completion if it goes well. */
bool makes_completion(const struct report *r, const struct qp *qp,
		      const struct event *post);

/* The request that @cause is about: the last send of its proof, or its receive. */
const struct event *post_of(const struct report *r, const struct cause *cause);

/* Anything came from @qp to its peer, or back. */
bool got_through(const struct report *r, const struct qp *qp);

/* ---- threads.c ---- */

/* A post, or a completion that went well. */
bool is_work(const struct event *e);

#define END_NS \
	1500000000 /* the last steps of who was woken up or told to end */

/*
 * Where @side has stopped for good: the line of its main thread, to be given back, and its
 * event. NULL: nowhere.
 */
json_t *stopped_at(const struct report *r, int side, size_t *where);

/* One of its threads was seen to wait for a completion; it has sent or completed. */
bool is_waiting_for_completion(const struct report *r, int side);
bool side_went_up(const struct report *r, int side);

/* One of @side's threads was seen in @verb, as it stood still. */
bool any_thread_in(const struct report *r, int side, const char *verb);

/* @e: the thread was seen to sleep until an event of a CQ. */
bool sleeps_for_event(const struct report *r, const struct event *e);

/* ---- compare.c ---- */

/* What the kind of the request alone tells: of several pieces, an invalidation. */
struct explanation why_by_kind(const struct report *r,
			       const struct cause *cause);

/* Two QPs send to the same QP: @why, qpn-differs of @qp, is that. */
void find_sharer(const struct report *r, const struct qp *qp,
		 struct explanation *why);

/* No ACK, and the peer's own program had taken its QP down before: @cause is that. */
void find_closer(const struct report *r, struct cause *cause);

/* ---- slips.c ---- */

/*
 * Nothing that @side has posted will complete where the thread of the line @at waits: in
 * the CQ that it polls, or one of the channel that it sleeps on; NULL: in any.
 */
bool waits_for_nothing(const struct report *r, int side, const json_t *at);

/* ---- cm.c ---- */

/* @side has asked for a connection, or does now, and has no answer. */
bool cm_asks(const struct report *r, int side);

/*
 * @side has a route, and rdma_connect was never called; a CONNECT_REQUEST, and neither
 * rdma_accept nor rdma_reject was.
 */
bool never_connected(const struct report *r, int side);
bool never_accepted(const struct report *r, int side);

/* The call that came at the wrong time, did it? Nothing: yes. */
struct explanation why_out_of_order(const struct report *r,
				    const struct cause *cause);

/* The bytes of the address that leads nowhere are in the wrong order: which it was. */
struct explanation why_no_address(const struct report *r,
				  const struct cause *cause);

/* The program itself uses the port that it asks for: where. */
struct explanation why_port_in_use(const struct report *r,
				   const struct cause *cause);

/* ---- unread.c ---- */

/* The channel of @cq; 0: it has none. */
#define ANY_CHANNEL UINT64_MAX /* the recording does not tell */
uint64_t channel_of(const struct report *r, int side, uint64_t cq);

/* A thread of @side sleeps on the channel of @cq. */
bool sleeps_on(const struct report *r, int side, uint64_t cq);

/* @side sleeps until an event, and its @cq will give none: why. */
struct explanation why_no_event(const struct report *r, int side, uint64_t cq);

/* A thread of @qp's side sleeps until an event, and recv_cq will give none: why. */
struct explanation why_no_event_for(const struct report *r,
				    const struct qp *qp);

/* ---- balance.c ---- */

/* Names what stands behind a failed call: who holds it, what was not given back. */
void weigh_failures(const struct report *r, struct causes *all);

/* How many messages @qp has sent, and how many of them its peer has taken. */
void count_messages(const struct report *r, const struct qp *qp, size_t *sent,
		    size_t *taken);

/* @side waits for completions, and none can come: why. */
struct explanation why_nothing(const struct report *r, int side);

/* ---- balance.c, cm.c, compare.c, direction.c, slips.c, unread.c, waits.c ---- */

typedef void rule(const struct report *r, struct causes *all);
rule compare_pairs, check_writes, check_datagrams, check_receives,
	check_cq_room;
rule check_doubled, check_surplus, check_unsignaled, check_nothing_posted,
	check_unread_event, check_late_arm, check_own_requests;
rule check_sleepers, check_dead, check_cm, check_peer_gone, check_tcp,
	check_exchange, check_used_after, check_crash, check_silent_write,
	blame_other_thread, check_reuse, check_lengths, check_all_taken,
	check_forked, check_no_cm_event, check_not_flushed, check_idle_thread,
	check_half_open, check_payload, check_none_opened, check_untaken,
	check_stuck, check_lost, check_deadlock, tell_direction,
	suspect_exchange;

#endif

/* SPDX-License-Identifier: MIT */
/*
 * book.h - what a recorded program has made, and which of its work requests have not
 * completed: of one recording at a time.
 */
#ifndef REPORT_BOOK_H
#define REPORT_BOOK_H

#include "../recorder/recording.h"

#include <infiniband/verbs.h>
#include <stdbool.h>

/* A work request that was posted and has not completed. */
struct waiting {
	struct record post;
	uint64_t time;	 /* ns */
	uint64_t number; /* "n" of its line; 0: there is none */
	bool signaled;	 /* will make a completion of its own */
	bool done;	 /* completed out of order (SRQ) */
};

/* In the order of posting: slots[first % size] ... */
struct queue {
	struct waiting *slots;
	uint64_t first, last; /* last is one past the end */
	uint64_t size;	      /* a power of two, or 0 */
	uint64_t completed;   /* with status success */
};

struct object {
	const void *pointer; /* the program's handle */
	enum object_kind kind;
	uint32_t id; /* counts from 1 for each kind */
	struct object *next, *next_qpn;
	struct ibv_context *context;
	/* CQ */
	const void *channel;
	uint64_t armed; /* time of the last req_notify, 0: never */
	bool solicited; /* and that for solicited ones only */
	uint64_t event; /* time of the last CQ event, 0: never */
	uint64_t got;	/* time of the last completion, 0: never */
	/* QP, SRQ */
	uint32_t qpn;
	enum ibv_qp_type type;
	bool sq_sig_all;
	const void *send_cq, *recv_cq, *srq, *pd;
	struct queue sq, rq;
};

/* Returns NULL if there is no memory. A known handle keeps its id. */
struct object *object_add(enum object_kind kind, const void *pointer,
			  struct ibv_context *context);
struct object *object_find(enum object_kind kind, const void *pointer);
struct object *object_find_qpn(const struct ibv_context *context, uint32_t qpn);

/*
 * Destroying: detach it before the real call (its memory may be another
 * object's right after), then free it, or attach it again if the call failed.
 * NULL is a no-op.
 */
struct object *object_detach(enum object_kind kind, const void *pointer);
void object_attach(struct object *object);
void object_free(struct object *object);

/* It is destroyed, but may be asked for: who was at @pointer last, QP or CQ, or NULL. */
void object_bury(struct object *object);
const struct object *object_dead(const void *pointer);

/* Make it findable by its QPN, which is set once. */
void object_set_qpn(struct object *qp, uint32_t qpn);

/* 0 if it is not known (made before the recording). */
uint32_t object_id(enum object_kind kind, const void *pointer);

/* The object of @kind after @last, in no order; NULL is before and behind all. */
struct object *object_after(enum object_kind kind, const struct object *last);

/*
 * Book a record: a post gets the next number, a completion takes the post that
 * it completes, and the unsignaled ones before it, from its queue. Returns the
 * number (of the post), or 0 if it is not known.
 */
uint64_t objects_book(const struct record *record, uint64_t time,
		      struct object **owner);

/* The oldest one that has not completed, or NULL; the @i-th after it. */
const struct waiting *queue_oldest(const struct queue *queue);
const struct waiting *queue_at(const struct queue *queue, uint64_t i);
uint64_t queue_length(const struct queue *queue);

/* The time of the last post or completion of the process, 0: none. */
uint64_t objects_last_activity(void);

/* Begin anew: another process's. For who reads recordings. */
void objects_forget(void);

/* All work requests of @qp are gone: it went to RESET. */
void objects_reset_qp(struct object *qp);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * objects.h - what the traced program has made: a number for each handle, as long as
 * that is its. Everything here needs the writer's lock.
 */
#ifndef RECORDER_OBJECTS_H
#define RECORDER_OBJECTS_H

#include "line.h"
#include "recording.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

struct object {
	const void *_Atomic pointer; /* the program's handle; NULL: unused */
	enum object_kind kind;
	uint32_t id; /* counts from 1 for each kind */
	struct object *_Atomic next;
	struct ibv_context *context;
	_Atomic uint64_t events_got, events_acked; /* CQ, rdma_cm_id */
	uint32_t qpn;				   /* QP */
	bool to_error; /* the program moved it to ERR */
	bool failed;   /* its first bad completion was told */
};

/* Returns NULL if there is no memory. A known handle keeps its id. */
struct object *object_add(enum object_kind kind, const void *pointer,
			  struct ibv_context *context);

/* Without the lock it may be NULL while others come and go. */
struct object *object_find(enum object_kind kind, const void *pointer);

/*
 * The QP that a completion of @cq is of: by its QPN, or, if @qpn is RECORD_NO_QPN, the
 * only one that uses that CQ. NULL: not known.
 */
struct object *object_completed(const struct ibv_cq *cq, uint32_t qpn);

/*
 * Destroying: detach it before the real call (its memory may be another
 * object's right after), then free it, or attach it again if the call failed.
 * NULL is a no-op.
 */
struct object *object_detach(enum object_kind kind, const void *pointer);
void object_attach(struct object *object);
void object_free(struct object *object);

/* The object as a member, under its kind's key ("pd"), or @key. */
void line_add_object(struct line *line, enum object_kind kind,
		     const void *pointer);
void line_add_object_as(struct line *line, const char *key,
			enum object_kind kind, const void *pointer);

/* 0 if it is not known (made before the recording). */
uint32_t object_id(enum object_kind kind, const void *pointer);

#endif

// SPDX-License-Identifier: MIT
/*
 * objects.c —— 程序建了哪些对象，各是第几号
 *
 * 地址会被再用：拆掉一个 QP，下一个多半就在原处。号码不会，读记录的人靠它认得是哪一个。哪个
 * completion 了结了哪一次 post，不在这里算：那是读的人的事（labs/report/book.c）。
 */
#include "objects.h"

#include "recorder.h"

#include <string.h>

#define BUCKETS 1024u
#define CHUNK	(64u * 1024)

static struct object *_Atomic buckets[BUCKETS];
static struct object *unused;
static uint32_t ids[OBJECT_KINDS];

static struct object *_Atomic *bucket_of(const void *pointer)
{
	uint64_t hash = (uint64_t)(uintptr_t)pointer * 0x9e3779b97f4a7c15u;

	return &buckets[hash >> 54];
}

struct object *object_find(enum object_kind kind, const void *pointer)
{
	struct object *object = *bucket_of(pointer);

	while (object && (object->pointer != pointer || object->kind != kind))
		object = object->next;
	return object;
}

static struct object *take_unused(void)
{
	struct object *object = unused, *chunk;

	if (!object) {
		chunk = recorder_pages(CHUNK);
		if (!chunk)
			return NULL;
		for (size_t i = 0; i < CHUNK / sizeof(*chunk); i++) {
			chunk[i].next = unused;
			unused = &chunk[i];
		}
		object = unused;
	}
	unused = object->next;
	memset(object, 0, sizeof(*object));
	return object;
}

struct object *object_add(enum object_kind kind, const void *pointer,
			  struct ibv_context *context)
{
	struct object *object = object_find(kind, pointer);

	if (object || !pointer)
		return object;
	object = take_unused();
	if (!object)
		return NULL;
	object->kind = kind;
	object->pointer = pointer;
	object->context = context;
	object->id = ++ids[kind];
	object_attach(object);
	return object;
}

struct object *object_detach(enum object_kind kind, const void *pointer)
{
	struct object *object = object_find(kind, pointer);
	struct object *_Atomic *at = bucket_of(pointer);

	if (!object)
		return NULL;
	while (*at != object)
		at = &(*at)->next;
	*at = object->next;
	return object;
}

void object_attach(struct object *object)
{
	struct object *_Atomic *bucket;

	if (!object)
		return;
	bucket = bucket_of(object->pointer);
	object->next = *bucket;
	*bucket = object;
}

void object_free(struct object *object)
{
	if (!object)
		return;
	object->pointer = NULL; /* 不拿锁的人也许正走到这里 */
	object->next = unused;
	unused = object;
}

uint32_t object_id(enum object_kind kind, const void *pointer)
{
	const struct object *object = object_find(kind, pointer);

	return object ? object->id : 0;
}

/*
 * QPN 只在一个 device 里唯一：同时打开 rxe0 和 rxe1 的程序会有两个 QP 17。出了错才找，一个一个
 * 看过去就行。
 */
struct object *object_completed(const struct ibv_cq *cq, uint32_t qpn)
{
	struct object *found = NULL;

	for (size_t i = 0; i < BUCKETS; i++)
		for (struct object *o = buckets[i]; o; o = o->next) {
			const struct ibv_qp *qp = o->pointer;

			if (o->kind != OBJECT_QP ||
			    (qpn == RECORD_NO_QPN
				     ? qp->send_cq != cq && qp->recv_cq != cq
				     : o->qpn != qpn ||
					       o->context != cq->context))
				continue;
			if (found)
				return NULL;
			found = o;
		}
	return found;
}

void line_add_object(struct line *line, enum object_kind kind,
		     const void *pointer)
{
	static const char *const keys[] = {
		[OBJECT_CONTEXT] = "device", [OBJECT_PD] = "pd",
		[OBJECT_MR] = "mr",	     [OBJECT_CHANNEL] = "channel",
		[OBJECT_CQ] = "cq",	     [OBJECT_SRQ] = "srq",
		[OBJECT_QP] = "qp",	     [OBJECT_AH] = "ah",
		[OBJECT_CM_ID] = "cm_id",    [OBJECT_MW] = "mw",
	};

	line_add_object_as(line, keys[kind], kind, pointer);
}

void line_add_object_as(struct line *line, const char *key,
			enum object_kind kind, const void *pointer)
{
	const struct object *object = object_find(kind, pointer);
	struct member_object member = {
		.kind = kind,
		.id = object ? object->id : 0,
		.pointer = (uintptr_t)pointer,
		.context = object ? (uintptr_t)object->context : 0,
	};

	line_put(line, MEMBER_OBJECT, key, &member, sizeof(member));
}

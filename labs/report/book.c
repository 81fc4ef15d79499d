// SPDX-License-Identifier: MIT
/*
 * book.c —— 程序建了哪些对象，还有哪些 WR 没有完成
 *
 * completion 里只有 wr_id 和 QPN，没有“我是哪一次 post”。这里把两头对上：
 *   - SQ 按次序完成，没有 SIGNALED 的 WR 不产生 completion，由后面那个 signaled
 *     的 completion 一并了结；
 *   - RQ 按次序完成；SRQ 由多个 QP 共用，不保证次序；
 *   - 出错的 completion 里 opcode 是无效的，只能凭 wr_id 找。
 * 对上之后，报告才能画出“这一次 send 引出了那一个 completion”的箭头，程序卡住时
 * 才说得出在等哪一个 WR、从什么时候开始等。
 */
#include "book.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS	   1024u
#define FIRST_SIZE 64u

static struct object *buckets[BUCKETS];
static struct object *by_qpn[BUCKETS];
static uint32_t ids[OBJECT_KINDS];
static uint64_t posts;
static uint64_t last_activity;

static const void *handle_of(const struct record *record)
{
	return (const void *)(uintptr_t)record->object;
}

static struct object **bucket_of(const void *pointer)
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

struct object *object_add(enum object_kind kind, const void *pointer,
			  struct ibv_context *context)
{
	struct object *object = object_find(kind, pointer);

	if (object || !pointer)
		return object;
	object = calloc(1, sizeof(*object));
	if (!object)
		return NULL;
	object->kind = kind;
	object->pointer = pointer;
	object->context = context;
	object->id = ++ids[kind];
	object_attach(object);
	return object;
}

static void unlink_qpn(struct object *object)
{
	struct object **at = &by_qpn[object->qpn % BUCKETS];

	while (*at && *at != object)
		at = &(*at)->next_qpn;
	if (*at)
		*at = object->next_qpn;
}

struct object *object_detach(enum object_kind kind, const void *pointer)
{
	struct object *object = object_find(kind, pointer);
	struct object **at = bucket_of(pointer);

	if (!object)
		return NULL;
	while (*at != object)
		at = &(*at)->next;
	*at = object->next;
	unlink_qpn(object);
	return object;
}

void object_attach(struct object *object)
{
	struct object **bucket;
	uint32_t qpn;

	if (!object)
		return;
	bucket = bucket_of(object->pointer);
	object->next = *bucket;
	*bucket = object;
	qpn = object->qpn;
	object->qpn = 0;
	object_set_qpn(object, qpn);
}

void object_free(struct object *object)
{
	if (!object)
		return;
	free(object->sq.slots);
	free(object->rq.slots);
	free(object);
}

#define MOST_DEAD 256u

static struct object dead[MOST_DEAD];
static uint64_t buried;

void object_bury(struct object *object)
{
	if (object && (object->kind == OBJECT_QP || object->kind == OBJECT_CQ))
		dead[buried++ % MOST_DEAD] = *object;
	object_free(object);
}

const struct object *object_dead(const void *pointer)
{
	for (uint64_t i = 1; pointer && i <= MOST_DEAD && i <= buried; i++)
		if (dead[(buried - i) % MOST_DEAD].pointer == pointer)
			return &dead[(buried - i) % MOST_DEAD];
	return NULL;
}

uint32_t object_id(enum object_kind kind, const void *pointer)
{
	const struct object *object = object_find(kind, pointer);

	return object ? object->id : 0;
}

struct object *object_after(enum object_kind kind, const struct object *last)
{
	struct object **bucket = last ? bucket_of(last->pointer) : buckets;
	struct object *object = last ? last->next : *bucket;

	while (!object || object->kind != kind) {
		if (object)
			object = object->next;
		else if (++bucket < buckets + BUCKETS)
			object = *bucket;
		else
			return NULL;
	}
	return object;
}

void object_set_qpn(struct object *qp, uint32_t qpn)
{
	if (qp->qpn == qpn)
		return;
	qp->qpn = qpn;
	qp->next_qpn = by_qpn[qpn % BUCKETS];
	by_qpn[qpn % BUCKETS] = qp;
}

/* QPN 只在一个 device 里唯一：同时打开 rxe0 和 rxe1 的程序会有两个 QP 17。*/
struct object *object_find_qpn(const struct ibv_context *context, uint32_t qpn)
{
	struct object *qp = by_qpn[qpn % BUCKETS];

	while (qp && (qp->qpn != qpn || qp->context != context))
		qp = qp->next_qpn;
	return qp;
}

/* ---- 队列 ----------------------------------------------------------------- */

static struct waiting *slot(const struct queue *queue, uint64_t index)
{
	return &queue->slots[index & (queue->size - 1)];
}

static bool queue_grow(struct queue *queue)
{
	struct queue bigger = *queue;

	bigger.size = queue->size ? queue->size * 2 : FIRST_SIZE;
	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return false;
	for (uint64_t i = queue->first; i != queue->last; i++)
		*slot(&bigger, i) = *slot(queue, i);
	free(queue->slots);
	*queue = bigger;
	return true;
}

static void queue_push(struct queue *queue, struct waiting wr)
{
	if (queue_length(queue) < queue->size || queue_grow(queue))
		*slot(queue, queue->last++) = wr;
}

uint64_t queue_length(const struct queue *queue)
{
	return queue->last - queue->first;
}

const struct waiting *queue_oldest(const struct queue *queue)
{
	return queue_length(queue) ? slot(queue, queue->first) : NULL;
}

const struct waiting *queue_at(const struct queue *queue, uint64_t i)
{
	return slot(queue, queue->first + i);
}

static struct waiting *queue_find(const struct queue *queue, uint64_t wr_id,
				  bool any)
{
	for (uint64_t i = queue->first; i != queue->last; i++) {
		struct waiting *wr = slot(queue, i);

		if (wr->post.wr_id == wr_id && !wr->done &&
		    (any || wr->signaled))
			return wr;
	}
	return NULL;
}

/* 按次序的队列：@wr 和它前面的一起出队。*/
static void pop_through(struct queue *queue, const struct waiting *wr)
{
	const struct waiting *gone;

	do {
		gone = slot(queue, queue->first++);
	} while (gone != wr);
}

/* ---- 记账 ----------------------------------------------------------------- */

static uint64_t book_post(const struct record *record, uint64_t time,
			  struct object *object)
{
	bool send = record->kind == RECORD_POST_SEND;
	struct waiting wr = {
		.post = *record,
		.time = time,
		.number = ++posts,
		.signaled = !send || !object || object->sq_sig_all ||
			    (record->flags & IBV_SEND_SIGNALED),
	};

	last_activity = time;
	if (object)
		queue_push(send ? &object->sq : &object->rq, wr);
	return wr.number;
}

/* 驱动拒绝了这个 WR（以及同一次调用里它后面的）：它们从来没有进过队列。*/
static uint64_t book_refusal(const struct record *record, struct object *object)
{
	struct queue *queue;
	uint64_t number = 0;

	if (!object)
		return 0;
	queue = record->opcode ? &object->sq : &object->rq;
	for (uint32_t i = 0; i < record->length && queue_length(queue); i++)
		number = slot(queue, --queue->last)->number;
	return number;
}

static uint64_t book_receive(struct object *qp, const struct record *record)
{
	struct object *srq = qp->srq ? object_find(OBJECT_SRQ, qp->srq) : NULL;
	struct queue *queue = srq ? &srq->rq : &qp->rq;
	struct waiting *wr = queue_find(queue, record->wr_id, true);
	uint64_t number = wr ? wr->number : 0;

	if (record->status == IBV_WC_SUCCESS)
		qp->rq.completed++;
	if (!wr)
		return 0;
	if (srq) {
		wr->done = true;
		while (queue_length(queue) && slot(queue, queue->first)->done)
			queue->first++;
	} else {
		pop_through(queue, wr);
	}
	return number;
}

static uint64_t book_send(struct object *qp, const struct record *record)
{
	bool bad = record->status != IBV_WC_SUCCESS;
	struct waiting *wr = queue_find(&qp->sq, record->wr_id, bad);
	uint64_t number = wr ? wr->number : 0;

	if (!bad)
		qp->sq.completed++;
	if (wr) {
		pop_through(&qp->sq, wr);
	}
	return number;
}

/*
 * 出错的 completion 属于哪个队列？两个 CQ 分开的话一看便知；共用一个 CQ 则看
 * wr_id 在哪个队列里。两边都有（有的程序 wr_id 一律用 0）时，出错的几乎总是先完成的
 * 那一个：取先 post 的。
 */
static bool is_receive(struct object *qp, const struct record *record)
{
	const struct object *srq = object_find(OBJECT_SRQ, qp->srq);
	const struct waiting *send, *receive;

	if (record->status == IBV_WC_SUCCESS)
		return record->opcode == IBV_WC_RECV ||
		       record->opcode == IBV_WC_RECV_RDMA_WITH_IMM ||
		       record->opcode == IBV_WC_TM_RECV;
	if (qp->send_cq != qp->recv_cq)
		return qp->recv_cq == handle_of(record);
	send = queue_find(&qp->sq, record->wr_id, true);
	receive = queue_find(srq ? &srq->rq : &qp->rq, record->wr_id, true);
	if (!send || !receive)
		return receive != NULL;
	if (record->status != IBV_WC_WR_FLUSH_ERR)
		return false;
	return receive->number < send->number;
}

/*
 * ibv_create_cq_ex 的使用者可以不要 QPN（wc_flags 里没有 WITH_QP_NUM）：那就看
 * 用这个 CQ 的 QP 里，哪一个在等这个 wr_id。
 */
static struct object *find_by_wr_id(const struct record *record)
{
	struct object *qp = NULL;

	while ((qp = object_after(OBJECT_QP, qp)))
		if ((qp->send_cq == handle_of(record) &&
		     queue_find(&qp->sq, record->wr_id, true)) ||
		    (qp->recv_cq == handle_of(record) &&
		     queue_find(&qp->rq, record->wr_id, true)))
			break;
	return qp;
}

static uint64_t book_completion(const struct record *record, uint64_t time,
				struct object **owner)
{
	struct object *cq = object_find(OBJECT_CQ, handle_of(record));
	struct object *qp = NULL;

	last_activity = time;
	if (cq) {
		cq->got = time;
		qp = record->qpn == RECORD_NO_QPN
			     ? find_by_wr_id(record)
			     : object_find_qpn(cq->context, record->qpn);
	}
	*owner = qp;
	if (!qp)
		return 0;
	return is_receive(qp, record) ? book_receive(qp, record)
				      : book_send(qp, record);
}

uint64_t objects_book(const struct record *record, uint64_t time,
		      struct object **owner)
{
	switch ((enum record_kind)record->kind) {
	case RECORD_POST_SEND:
	case RECORD_POST_RECV:
		*owner = object_find(OBJECT_QP, handle_of(record));
		return book_post(record, time, *owner);
	case RECORD_POST_SRQ_RECV:
		*owner = object_find(OBJECT_SRQ, handle_of(record));
		return book_post(record, time, *owner);
	case RECORD_POST_FAILED:
		*owner = object_find(OBJECT_QP, handle_of(record));
		if (!*owner)
			*owner = object_find(OBJECT_SRQ, handle_of(record));
		return book_refusal(record, *owner);
	case RECORD_COMPLETION:
		return book_completion(record, time, owner);
	case RECORD_ARM:
	case RECORD_CQ_EVENT:
		*owner = object_find(OBJECT_CQ, handle_of(record));
		if (*owner && record->kind == RECORD_ARM) {
			(*owner)->armed = time;
			(*owner)->solicited = record->flags;
		} else if (*owner) {
			(*owner)->event = time;
		}
		return 0;
	case RECORD_ACK:
		*owner = object_find(OBJECT_CQ, handle_of(record));
		return 0;
	}
	return 0;
}

uint64_t objects_last_activity(void)
{
	return last_activity;
}

void objects_reset_qp(struct object *qp)
{
	qp->sq.first = qp->sq.last;
	qp->rq.first = qp->rq.last;
}

void objects_forget(void)
{
	for (size_t i = 0; i < BUCKETS; i++)
		while (buckets[i])
			object_free(object_detach(buckets[i]->kind,
						  buckets[i]->pointer));
	posts = last_activity = buried = 0;
}

// SPDX-License-Identifier: MIT
/*
 * note.c —— 看着的人写进记录里的：以后读它的人，看到的一样多
 */
#include "live.h"

#include "../recorder/ring.h"

#include <string.h>
#include <time.h>

static uint64_t clock_now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* 记录里有一块是看着的人的：只有它写。放不下就算了。*/
void note(const struct view *view, const struct line *line)
{
	size_t size = (sizeof(struct event_head) + line->used + 7) & ~(size_t)7;
	uint32_t index = view->header->watchers_block;
	struct event_head head = { .size = (uint32_t)size,
				   .stamp = ring_stamp(),
				   .at = ring_stamp(),
				   .ns = clock_now(CLOCK_MONOTONIC) };
	struct block *block;
	char *at;

	if (!index || index > view_blocks(view))
		return;
	block = view_block(view, index - 1);
	if (atomic_load(&block->used) + size > BLOCK_SIZE - sizeof(*block))
		return;
	head.wall = (int64_t)(clock_now(CLOCK_REALTIME) - head.ns);
	at = (char *)(block + 1) + atomic_load(&block->used);
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), line->bytes, line->used);
	memset(at + sizeof(head) + line->used, 0,
	       size - sizeof(head) - line->used);
	atomic_fetch_add_explicit(&block->used, size, memory_order_release);
}

void note_object(struct line *line, const char *key,
		 const struct object *object)
{
	struct member_object member = {
		.kind = object->kind,
		.id = object->id,
		.pointer = (uintptr_t)object->pointer,
		.context = (uintptr_t)object->context,
	};

	line_put(line, MEMBER_OBJECT, key, &member, sizeof(member));
}

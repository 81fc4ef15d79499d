/* SPDX-License-Identifier: MIT */
/*
 * line.h - the members of one event as recording.h has them, built without malloc or
 * stdio: this is called from signal handlers and from threads of programs that bring
 * their own malloc. Keys are string literals. A member that does not fit is left out.
 */
#ifndef RECORDER_LINE_H
#define RECORDER_LINE_H

#include "explain/explain.h"
#include "recording.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE_SIZE 4096

struct line {
	size_t used;
	char bytes[LINE_SIZE];
};

static inline void line_put(struct line *line, enum member_type type,
			    const char *key, const void *value, size_t size)
{
	size_t key_size = strlen(key); /* of a literal: known to the compiler */
	struct member_head head = { .type = (uint8_t)type,
				    .key_size = (uint8_t)key_size,
				    .size = (uint16_t)size };
	char *out = line->bytes + line->used;

	if (sizeof(head) + key_size + size > LINE_SIZE - line->used)
		return;
	memcpy(out, &head, sizeof(head));
	memcpy(out + sizeof(head), key, key_size);
	memcpy(out + sizeof(head) + key_size, value, size);
	line->used += sizeof(head) + key_size + size;
}

static inline void line_put_number(struct line *line, enum member_type type,
				   const char *key, uint64_t value)
{
	line_put(line, type, key, &value, sizeof(value));
}

static inline void line_start(struct line *line, const char *name)
{
	line->used = 0;
	line_put(line, MEMBER_TEXT, "ev", name, strlen(name));
}

/* The type of @value decides whether it has a sign: an int's -1 stays -1. */
#define LINE_NUMBER(line, key, value)                                \
	line_put_number(line,                                        \
			(__typeof__(value))-1 < (__typeof__(value))1 \
				? MEMBER_SIGNED                      \
				: MEMBER_NUMBER,                     \
			key, (uint64_t)(value))
#define LINE_HEX(line, key, value) \
	line_put_number(line, MEMBER_HEX, key, (uint64_t)(value))
#define LINE_TEXT(line, key, text) \
	line_put(line, MEMBER_TEXT, key, text, strlen(text))

/* Members "id", "args", "seen" of @why; none if it has no cause. */
static inline void line_add_why(struct line *line,
				const struct explanation *why)
{
	if (!why->id)
		return;
	LINE_TEXT(line, "id", why->id);
	if (why->args[0])
		LINE_TEXT(line, "args", why->args);
	if (why->seen[0])
		LINE_TEXT(line, "seen", why->seen);
}

#endif

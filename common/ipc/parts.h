/* SPDX-License-Identifier: MIT */
/*
 * parts.h - what the files of proto.h share: the messages as
 * data. Nobody else includes it.
 */
#ifndef IPC_PARTS_H
#define IPC_PARTS_H

#include "proto.h"

#include <string.h>

enum engine_kind {
	ENGINE_U16,
	ENGINE_U32,
	ENGINE_U64,
	ENGINE_BOOL,
	ENGINE_TEXT,	/* struct engine_text */
	ENGINE_TEXTS,	/* struct engine_texts */
	ENGINE_OPT_U32, /* struct engine_opt_u32 */
};

enum engine_need {
	ENGINE_REQUIRED,
	ENGINE_OPTIONAL,  /* absent: written as nil */
	ENGINE_EXTENSION, /* absent: not written; ours */
};

struct engine_field {
	enum engine_kind kind;
	enum engine_need need;
	size_t offset; /* in struct engine_message */
	struct engine_text name;
};

#define ENGINE_FIELDS_MOST 11 /* of any message */

struct engine_layout {
	struct engine_text name; /* of the message */
	const struct engine_field *fields;
	size_t count;
};

/* A string constant, whose length the compiler knows. */
// clang-format off
#define ENGINE_TEXT_OF(string) { string, sizeof(string) - 1 }
// clang-format on

/* Of each type; that of ENGINE_UNKNOWN is empty. */
extern const struct engine_layout engine_layouts[ENGINE_TYPES];

/*
 * Are these bytes exactly one MessagePack value, within ENGINE_DEPTH_MAX and
 * ENGINE_VALUES_MAX? Neither allocates nor recurses. 0, or -EBADMSG with @fault.
 */
int engine_scan(const char *data, size_t size, struct engine_fault *fault);

/* Set @fault's text. Returns -EBADMSG. */
int engine_refuse(struct engine_fault *fault, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif

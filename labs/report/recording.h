/* SPDX-License-Identifier: MIT */
/*
 * recording.h - one file of the recorder (recorder/recording.h), read and put in
 * order.
 */
#ifndef REPORT_RECORDING_H
#define REPORT_RECORDING_H

#include "../recorder/recording.h"

#include <stdbool.h>
#include <stddef.h>

/* Where an event or a record stands in the file, and from when on it counts. */
struct place {
	uint64_t effect;
	uint32_t at : 31; /* by 8 bytes */
	uint32_t is_event : 1;
	int32_t tid;
};

/* What stands there. */
struct recorded {
	const char *at;	     /* its struct record; an event: its head */
	const char *members; /* an event's; NULL: it is a record */
	uint32_t size;	     /* of all members */
	uint64_t stamp;	     /* when it began */
};

/* The same moment by three clocks. */
struct anchor {
	uint64_t stamp, ns;
	int64_t wall; /* CLOCK_REALTIME less CLOCK_MONOTONIC, ns */
};

struct recording {
	struct recording_header header;
	char *bytes;
	size_t size;
	struct place *places; /* by effect */
	size_t count;
	struct anchor *anchors; /* by stamp; one for each event */
	size_t anchor_count;
	size_t lost; /* blocks, rests of blocks, records that are not there */
};

/*
 * Returns 0, or -1, which it has said. It lives until the program ends. @mapped: the
 * file's bytes, while it is written; NULL: read it.
 */
int recording_load(struct recording *rec, const char *path, const char *mapped);

struct recorded recording_at(const struct recording *rec, struct place place);

/* CLOCK_MONOTONIC of @stamp in ns, and what makes CLOCK_REALTIME of it. */
int64_t recording_time(const struct recording *rec, uint64_t stamp);
int64_t recording_wall(const struct recording *rec, uint64_t stamp);

/* A member of an event. Begin with zeros. */
struct member {
	char type; /* enum member_type */
	const char *key, *value;
	size_t key_size, size;
	uint32_t end; /* of it, in its event */
};
bool member_next(struct member *m, const struct recorded *item);
uint64_t member_number(const struct member *m); /* an object's: its id */

/* By key. Defaults: false, 0, "". The text lasts until the next call. */
bool recorded_member(const struct recorded *item, const char *key,
		     struct member *m);
uint64_t recorded_number(const struct recorded *item, const char *key);
const char *recorded_text(const struct recorded *item, const char *key);

#endif

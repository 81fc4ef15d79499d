/* SPDX-License-Identifier: MIT */
/*
 * needle_options.h - the command line of build/needle:
 *
 *	needle put    --store DIR [--file PATH] VOLUME NEEDLE [COOKIE]
 *	needle get    --store DIR VOLUME NEEDLE [COOKIE]
 *	needle list   --store DIR [--json]
 *	needle verify --store DIR
 *	needle make   --store DIR --count N [--volumes N] [--min B] [--max B]
 *	              [--seed S]
 */
#ifndef CLIENT_NEEDLE_OPTIONS_H
#define CLIENT_NEEDLE_OPTIONS_H

#include "needle/pattern.h"

#include <stdbool.h>
#include <stdint.h>

enum needle_command {
	NEEDLE_PUT,
	NEEDLE_GET,
	NEEDLE_LIST,
	NEEDLE_VERIFY,
	NEEDLE_MAKE,
};

struct needle_options {
	enum needle_command command;
	const char *store; /* the folder */
	const char *file;  /* put: NULL is standard input */
	uint32_t volume_id;
	uint64_t needle_id;
	uint32_t cookie;
	bool have_cookie;
	bool json;
	int wait_ms; /* for another writer, for standard input */
	/* make */
	uint64_t count;	  /* needles in all volumes together */
	uint32_t volumes; /* 1 ... volumes are filled in turn */
	struct needle_pattern pattern;
};

/*
 * Parse the command line. Returns -1 to go on, or the exit code to end with: 0
 * after --help, 2 after reporting wrong usage.
 */
int needle_options_parse(struct needle_options *opt, int argc, char *argv[]);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * engine_client_options.h - the command line of engine_client.
 */
#ifndef CLIENT_ENGINE_CLIENT_OPTIONS_H
#define CLIENT_ENGINE_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum engine_command {
	ENGINE_DO_PING,
	ENGINE_DO_CAPS,
	ENGINE_DO_READ,
	ENGINE_DO_BENCH,
};

#define ENGINE_IN_FLIGHT_MOST 1024

struct engine_client_options {
	enum engine_command command;
	bool bench_reads; /* not pings */
	const char *socket;
	const char *token_file; /* NULL: no token is shown */
	const char *output;	/* NULL: stdout */
	uint64_t volume, needle, cookie;
	uint64_t offset, size; /* bytes; size 0: to the end */
	uint64_t session_secs; /* 0: the engine's default */
	uint64_t iters;	       /* 0: the command's default */
	uint64_t in_flight;    /* bench: reads at once */
	int wait_ms;	       /* each */
	bool map;	       /* bench: map and check what was read */
	bool json, quiet, progress;
};

/*
 * Parse the command line. Returns -1 to go on, or the exit code to end with: 0
 * after --help, 2 after reporting wrong usage.
 */
int engine_client_options_parse(struct engine_client_options *opt, int argc,
				char *argv[]);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * engine_options.h - the command line of rdma_engine.
 */
#ifndef SERVER_ENGINE_OPTIONS_H
#define SERVER_ENGINE_OPTIONS_H

#include "rdma_common.h"

struct engine_options {
	const char *socket;
	char host[256]; /* of the storage node */
	uint16_t port;
	const char *token_file; /* NULL: no token is needed */
	const char *device;	/* NULL: the first usable */
	int gid_index;
	uint64_t max_sessions, max_clients;
	uint64_t max_memory;   /* bytes */
	uint64_t session_secs; /* of a session that names no time-out */
	uint64_t read_secs;    /* of a StartRead, without progress */
	uint64_t client_secs;  /* of a client that stands still */
	uint64_t depth;	       /* work requests at once */
	uint64_t chunk;	       /* bytes of one */
};

/*
 * Parse the command line. Returns -1 to go on, or the exit code to end with: 0
 * after --help, 2 after reporting wrong usage.
 */
int engine_options_parse(struct engine_options *opt, int argc, char *argv[]);

#endif

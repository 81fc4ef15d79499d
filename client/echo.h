/* SPDX-License-Identifier: MIT */
/*
 * echo.h - what ucx_echo and sock_echo have in common: the command line, what is
 * sent and how the echo is checked, and the result.
 *
 *	ucx_echo server [options]
 *	ucx_echo client <server_ip> [options]
 */
#ifndef CLIENT_ECHO_H
#define CLIENT_ECHO_H

#include "base/laps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHO_MAX_SIZE	 (1u << 30)
#define ECHO_MAX_CLIENTS 1000 /* at once; each takes file descriptors */

struct echo_options {
	bool server;
	const char *address; /* client: of the server */
	uint16_t port;
	const char *message; /* client: NULL if a pattern is sent */
	uint64_t size;	     /* of an object or, with bench, of a message */
	uint64_t count;	     /* objects, or round trips */
	bool bench;
	bool busy;
	bool json;
	uint64_t clients; /* server: ends after so many; 0: goes on */
	uint64_t limit;	  /* bytes of the largest object taken */
	int info_ms;	  /* exchange of peer info */
	int timeout_ms;	  /* 0: the default of each wait */
};

/* @opt's limit for a wait whose default is @default_ms, milliseconds. */
int echo_timeout(const struct echo_options *opt, int default_ms);

/* What a server or a client has done. */
struct echo_outcome {
	char transport[64]; /* client: "tcp/lo" */
	uint64_t clients;   /* server: served to their end, */
	uint64_t failed;    /* of these, so many not in order */
	uint64_t objects;   /* echoed (client: and checked) */
	uint64_t bytes;
	char text[256]; /* client: what came back, printable */
	double seconds;
	struct lap_summary half_us; /* bench, on the client */
};

/*
 * A server or a client: 0 or -errno (reported), and what it has done. A client
 * gets the object to send, and room for the laps of a bench.
 */
typedef int echo_server_fn(const struct echo_options *opt,
			   struct echo_outcome *out);
typedef int echo_client_fn(const struct echo_options *opt, char *obj,
			   struct laps *laps, struct echo_outcome *out);

/* The whole of @program: its command line, one of the two, the result. */
int echo_main(const char *program, echo_server_fn *server,
	      echo_client_fn *client, int argc, char *argv[]);

/* Is it what was sent? -EBADMSG (reported) if @size or a byte is not. */
int echo_check(const struct echo_options *opt, const void *sent,
	       const void *got, uint64_t size);

/* Count an object of @size bytes that came back; keep its text. */
void echo_count(struct echo_outcome *out, const void *data, uint64_t size);

/*
 * An object that asks the server to play ping-pong instead: @rounds (not 0) times
 * one message of @size bytes each way, with no length before it. A server that
 * knows it echoes it with @agreed 1, any other as it is. Native byte order.
 */
struct echo_bench {
	char magic[8]; /* ECHO_BENCH_MAGIC */
	uint64_t size;
	uint64_t rounds;
	uint64_t agreed;
};
#define ECHO_BENCH_MAGIC "PINGPONG"

/* What a client with --bench sends. */
struct echo_bench echo_bench_of(const struct echo_options *opt);

/* Server: does this object ask for it, within @limit? Sets agreed. */
bool echo_bench_asked(void *object, uint64_t size, uint64_t limit);

/* Client: has the server agreed? -EPROTO (reported) if not. */
int echo_bench_agreed(const struct echo_bench *mine, const void *object,
		      uint64_t size);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * engine_bench.h - engine_client bench: how long a Ping takes, and how many
 * reads per second the engine makes with so many at once.
 */
#ifndef CLIENT_ENGINE_BENCH_H
#define CLIENT_ENGINE_BENCH_H

#include "engine_client_options.h"
#include "ipc/call.h"

/*
 * opt->iters round trips of Ping, one after another. Prints the result. 0, or
 * -errno (reported).
 */
int engine_bench_ping(const struct engine_client_options *opt);

/*
 * opt->iters reads of @request, opt->in_flight of them at once, each on a
 * connection of its own. With opt->map each is mapped and its CRC-32C checked.
 */
int engine_bench_read(const struct engine_client_options *opt,
		      const struct engine_start_read *request);

#endif

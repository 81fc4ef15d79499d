/* SPDX-License-Identifier: MIT */
/*
 * laps.h - the time of each round of a ping-pong, measured with the CPU's cycle
 * counter, which is read in nanoseconds even where clock_gettime is slow.
 */
#ifndef BASE_LAPS_H
#define BASE_LAPS_H

#include <jansson.h>
#include <stdint.h>

/* Half of each round, microseconds. */
struct lap_summary {
	double min, median, p99, max;
};

struct laps {
	uint64_t *stamps; /* one more than laps */
	uint64_t done;
	int64_t start_ns;
};

/* Room for @laps laps. -ENOMEM (reported). Undone by laps_free(). */
int laps_init(struct laps *laps, uint64_t n);
void laps_free(struct laps *laps);

/* The first lap begins; one lap ends and the next begins. */
void laps_start(struct laps *laps);
void laps_next(struct laps *laps);

/* Half of each of the laps since laps_start(), at least one. Uses them up. */
struct lap_summary laps_halved(struct laps *laps);

/* A line of result: @n round trips of @size bytes took so long. */
void report_round_trips(uint64_t n, uint64_t size,
			const struct lap_summary *half_us);

/* {"min":..., "median":..., "p99":..., "max":...}, or NULL. */
json_t *lap_summary_as_json(const struct lap_summary *s);

#endif

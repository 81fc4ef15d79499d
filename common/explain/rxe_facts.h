/* SPDX-License-Identifier: MIT */
/*
 * rxe_facts.h - what the rxe of one Linux does otherwise than that of another.
 *
 * The one table of it. Each row was measured on the kernels of Debian 12 (6.1),
 * 13 (6.12) and sid (7.2), by the fault or the test that the row names; it expects
 * what the row says of the running kernel, so a row that is wrong fails there.
 * Kernels in between were not measured: a change counts from the first one on which
 * it was seen, or from the one whose source has it.
 */
#ifndef EXPLAIN_RXE_FACTS_H
#define EXPLAIN_RXE_FACTS_H

#include <stdbool.h>
#include <stddef.h>

enum rxe_fact {
	RXE_REPEATS_LAST_WQE,
	RXE_HIDES_LOCAL_ERRORS,
	RXE_TAKES_MASKS_WITHOUT_STATE,
	RXE_LOOKS_AT_UD_ACCESS_FIRST,
	RXE_MAPS_READ_ONLY_FILES,
	RXE_REGISTERS_ON_DEMAND,
	RXE_LISTENS_IN_NAMESPACES,
	RXE_FACTS
};

struct rxe_fact_row {
	const char *name;
	unsigned int major, minor;	  /* holds from this Linux on */
	const char *before[2], *since[2]; /* English, Chinese */
	const char *seen_by;		  /* who fails if it is wrong */
};

/* The row of @fact; asserts nothing about the running kernel. */
const struct rxe_fact_row *rxe_fact_row(enum rxe_fact fact);

/* Does it hold on a Linux whose release is @release ("6.1.0-50-amd64")? */
bool rxe_fact_in(enum rxe_fact fact, const char *release);

/* Does it hold here? By uname(2). */
bool rxe_fact_holds(enum rxe_fact fact);

#endif

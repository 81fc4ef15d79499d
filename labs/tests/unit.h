/* SPDX-License-Identifier: MIT */
/*
 * unit.h - checks for the C tests: a failed one prints its line and goes on; main
 * returns unit_result().
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <stdio.h>

static int unit_failures;

/* CHECK(condition, format, ...): the format says what was tried. */
#define CHECK(cond, ...)                                          \
	do {                                                      \
		if (!(cond)) {                                    \
			unit_failures++;                          \
			printf("line %d: %s: ", __LINE__, #cond); \
			printf(__VA_ARGS__);                      \
			putchar('\n');                            \
		}                                                 \
	} while (0)

static inline int unit_result(const char *name)
{
	printf("%s: %d failures\n", name, unit_failures);
	return unit_failures ? 1 : 0;
}

#endif

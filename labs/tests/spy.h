/* SPDX-License-Identifier: MIT */
/*
 * spy.h - what the two halves of the spy share: spy.c says what is asked of it.
 */
#ifndef TESTS_SPY_H
#define TESTS_SPY_H

#include <stdbool.h>

/* They stand before nobody else's functions of these names. */
#pragma GCC visibility push(hidden)

/* A line to SPY_LOG. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Is @word in SPY_LIE? */
bool lies(const char *word);

/* Is this call of @name to fail (SPY_FAIL)? Then the errno, else 0. */
int must_fail(const char *name);

#pragma GCC visibility pop

#endif

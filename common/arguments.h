/* SPDX-License-Identifier: MIT */
/*
 * arguments.h - what every command line of this project needs.
 */
#ifndef COMMON_ARGUMENTS_H
#define COMMON_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXIT_USAGE 2

/* The whole of @text as a decimal number in [@low, @high], or false. */
bool parse_number(const char *text, uint64_t low, uint64_t high,
		  uint64_t *value);

/*
 * What is wrong after getopt_long() gave @c ('?' or ':'; opterr is 0, and
 * @short_options begins with ':'). @value: the option, as the user wrote it.
 */
const char *wrong_option(int c, char *argv[], const char *short_options,
			 char *value, size_t size);

#endif

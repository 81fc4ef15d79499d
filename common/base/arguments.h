/* SPDX-License-Identifier: MIT */
/*
 * arguments.h - what every command line of this project needs.
 */
#ifndef BASE_ARGUMENTS_H
#define BASE_ARGUMENTS_H

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

/*
 * Report @what is wrong, with the @value that the user gave (NULL: none), and
 * @next, the program's synopsis. Returns EXIT_USAGE.
 */
int wrong_usage(const char *next, const char *what, const char *value);

/* What stands where a device's name belongs, if it is none: or NULL. */
const char *not_a_device(const char *name);

/* What stands where a server's name or address belongs: or NULL. */
const char *not_a_server(const char *name);

/* An option, or an operand, that is a number in [@low, @high]. */
struct number_option {
	int option;    /* as getopt_long() returns it; 0: an operand */
	size_t offset; /* of the uint64_t where it goes */
	uint64_t low, high;
	const char *wrong; /* what to say if it is no such number */
};

/* The one of @n in @numbers that @option is, or NULL. */
const struct number_option *find_number(const struct number_option *numbers,
					size_t n, int option);

/* @text as @number says into @options, or false. */
bool take_number(void *options, const struct number_option *number,
		 const char *text);

#endif

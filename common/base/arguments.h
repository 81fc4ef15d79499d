/* SPDX-License-Identifier: MIT */
/*
 * arguments.h - the command line of a program, from one table.
 */
#ifndef BASE_ARGUMENTS_H
#define BASE_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXIT_USAGE   2
#define EXIT_CODES   "Exit code: 0 done, 1 failed, 2 wrong usage.\n"
#define OPTIONS_MOST 31 /* rows of a table */

/* What an option or an operand is; the macros below say where it goes. */
enum option_kind {
	OPTION_TEXT = 1,
	OPTION_DEVICE,	  /* a text that may be a device's name */
	OPTION_NUMBER,	  /* of any size */
	OPTION_HEX,	  /* a number that may also be 0x... */
	OPTION_SECONDS,	  /* kept as milliseconds */
	OPTION_MEBIBYTES, /* kept as bytes */
	OPTION_SET,	  /* takes no argument */
	OPTION_QUIET,	  /* the same; no steps and facts from now on */
};

struct option_row {
	char letter;	      /* 0: it has a long name only */
	const char *name;     /* "size"; NULL: a line of --help */
	const char *argument; /* "B", as --help calls it; NULL: it takes none */
	const char *help;     /* lines; @: the standard value, #: the most */
	enum option_kind kind;
	void *to;
	size_t size;	   /* of what is there, in bytes */
	uint64_t standard; /* where nothing is given */
	uint64_t least;	   /* of a number; or what is to be set */
	uint64_t most;	   /* of a number */
	const char *range; /* if it is not to be said as "least ... most" */
};

#define OPTION_TO(place) .to = &(place), .size = sizeof(place)
#define TEXT(place)	 .kind = OPTION_TEXT, OPTION_TO(place)
#define DEVICE(place)	 .kind = OPTION_DEVICE, OPTION_TO(place)
#define RANGE(a, b, c)	 .standard = (uint64_t)(a), .least = (b), .most = (c)
#define NUMBER(place, standard, least, most) \
	.kind = OPTION_NUMBER, OPTION_TO(place), RANGE(standard, least, most)
#define HEX(place, most) .kind = OPTION_HEX, OPTION_TO(place), RANGE(0, 0, most)
#define SECONDS(place, standard, least, most) \
	.kind = OPTION_SECONDS, OPTION_TO(place), RANGE(standard, least, most)
#define MEBIBYTES(place, standard, least, most) \
	.kind = OPTION_MEBIBYTES, OPTION_TO(place), RANGE(standard, least, most)
/* Nothing given: zero. */
#define SET(place, value) .kind = OPTION_SET, OPTION_TO(place), .least = (value)
#define FLAG(place)	  SET(place, true)

/* Rows that most programs have. */
#define QUIET(what) \
	.letter = 'q', .name = "quiet", .help = (what), .kind = OPTION_QUIET
#define JSON(place)                                                          \
	.letter = 'j', .name = "json",                                       \
	.help = "print the result as one JSON object", .kind = OPTION_QUIET, \
	OPTION_TO(place), .least = true
#define HELP                                                          \
	.letter = 'h', .name = "help", .help = "print this and exit", \
	.kind = OPTION_SET

struct command_line {
	const char *next; /* step after wrong usage: the synopsis */
	const char *head; /* of --help */
	const char *tail;
	int column;		       /* where the help of a row begins */
	const char *letters;	       /* that are taken now; NULL: all */
	const struct option_row *rows; /* ends with an empty one */
};

/*
 * Store what *@argv gives and, for the rest, the standard values; leave the
 * operands in *@argc and *@argv. Returns -1 to go on, or the exit code to end
 * with: 0 after --help, EXIT_USAGE after reporting what is wrong.
 */
int take_options(const struct command_line *line, int *argc, char **argv[]);

/*
 * Store @argc operands as @rows say, which end with an empty one. -1, or EXIT_USAGE
 * after reporting, with @next, which one is wrong or too many.
 */
int take_operands(const char *next, const struct option_row *rows, int argc,
		  char *argv[]);

/* Take "server", or "client <server_ip>" with @server, in the same way. */
int take_role(const char *next, int argc, char *argv[], const char **server);

/* The whole of @text as a decimal number in [@low, @high], or false. */
bool parse_number(const char *text, uint64_t low, uint64_t high,
		  uint64_t *value);

/*
 * Report @what is wrong, with the @value that the user gave (NULL: none), and
 * @next, the program's synopsis. Returns EXIT_USAGE.
 */
int wrong_usage(const char *next, const char *what, const char *value);

/* What stands where a server's name or address belongs: or NULL. */
const char *not_a_server(const char *name);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * report.h - the one place that prints.
 *
 * Steps, facts and results go to stdout, failures to stderr, all in English.
 * A failure is reported once, by whoever first knows its cause, and is passed
 * up as -errno after that.
 */
#ifndef BASE_REPORT_H
#define BASE_REPORT_H

#include <stddef.h>

enum report_level {
	REPORT_QUIET,  /* failures only */
	REPORT_NORMAL, /* steps and facts as well */
};

void report_set_level(enum report_level level);

/* "[Step N] text"; N counts up from 1 in each process. */
void report_step(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* An indented line of fact below a step. */
void report_fact(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A line that is not indented; may be empty. */
void report_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A line that is printed even when quiet: a result that was asked for. */
void report_result(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Make sure that what was printed on stdout got there. -EIO (reported) if not:
 * a full disk, a reader that is gone.
 */
int report_flush(void);

/*
 * Report a failure on stderr:
 *
 *	error: CAUSE
 *	 next: NEXT
 *
 * @next is one sentence that says what to do now (NULL: nothing to add).
 */
void report_error(const char *next, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* As report_error; returns @rc, to be passed up. */
int fail(int rc, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* As report_error, for something that works but will probably not do. */
void report_warning(const char *next, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A line on stderr that somebody else wrote, or asked for to debug. */
void report_remark(const char *who, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Make @len bytes from a peer safe to print: at most @size - 1 bytes are
 * written to @out (@size at least 32). What is printable in the program's
 * locale stays, anything else becomes \xNN, "..." marks a cut; a NUL ends the
 * text. Returns @out.
 */
const char *printable_text(char *out, size_t size, const void *data,
			   size_t len);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * call_failed.h - report a call that failed, with its error number:
 *
 *	error: CALL failed: NAME (number): cause
 *	 next: what to do
 *
 * For verbs see explain/explain.h: it knows more than strerror().
 */
#ifndef BASE_CALL_FAILED_H
#define BASE_CALL_FAILED_H

#include <stddef.h>

/*
 * @fmt: the call with its arguments. @cause NULL: strerror()'s; @next NULL: nothing,
 * but where descriptors have run out. Returns -@err (or -EIO if @err is 0 or negative,
 * which a broken library might hand back).
 */
int call_failed_for(int err, const char *cause, const char *next,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The same where no more is known: call_failed(err, fmt, ...). */
#define call_failed(err, ...) call_failed_for(err, NULL, NULL, __VA_ARGS__)

#endif

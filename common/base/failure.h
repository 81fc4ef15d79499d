/* SPDX-License-Identifier: MIT */
/*
 * failure.h - report a call that failed, with its error number:
 *
 *	error: CALL failed: NAME (number): cause
 *	 next: what to do
 *
 * For verbs see explain/explain.h: it knows more than strerror().
 */
#ifndef BASE_FAILURE_H
#define BASE_FAILURE_H

/*
 * @fmt: the call with its arguments; the cause is strerror()'s. Returns -@err (or
 * -EIO if @err is 0 or negative, which a broken library might hand back).
 */
int call_failed(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * The same where more is known. @cause NULL: strerror()'s; @next NULL: nothing, but
 * where descriptors have run out.
 */
int call_failed_for(int err, const char *cause, const char *next,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif

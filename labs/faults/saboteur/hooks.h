/* SPDX-License-Identifier: MIT */
/*
 * hooks.h - how the saboteur comes between the program and what it calls.
 *
 * It is the first of the preloaded libraries: what it changes, the recorder behind
 * it sees as the program's own doing.
 */
#ifndef SABOTEUR_HOOKS_H
#define SABOTEUR_HOOKS_H

#include "rule.h"

#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

/*
 * next.c: the @name behind this library; of @library if that was loaded by dlopen() and
 * nobody sees it. Ends the process if there is none.
 */
void *next_symbol(const char *name, const char *library);

/* An object pointer is not a function pointer in ISO C: hence the memcpy. */
#define NEXT_OF(name, library)                                           \
	static __typeof__(&name) real;                                   \
	do {                                                             \
		void *found = real ? NULL : next_symbol(#name, library); \
		if (found)                                               \
			memcpy(&real, &found, sizeof(real));             \
	} while (0)
#define NEXT(name) NEXT_OF(name, "libibverbs.so.1")

/* post.c: the calls that are pointers in the context or in a QP */
void hook_context(struct ibv_context *context);
void unhook_context(struct ibv_context *context);

#endif

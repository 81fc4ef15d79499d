/* SPDX-License-Identifier: MIT */
/*
 * real.h - for what is preloaded: REAL(name) declares "real", a pointer to the function
 * that this one stands before (dlsym(3), RTLD_NEXT), looked up at the first call.
 */
#ifndef TESTS_REAL_H
#define TESTS_REAL_H

#include <dlfcn.h>
#include <string.h>

/* ISO C lets no void * become a pointer to a function: so the bytes are copied. */
#define REAL(name)                                             \
	static __typeof__(&name) real;                         \
	do {                                                   \
		if (!real) {                                   \
			void *found = dlsym(RTLD_NEXT, #name); \
			memcpy(&real, &found, sizeof(real));   \
		}                                              \
	} while (0)

#endif

// SPDX-License-Identifier: MIT
/*
 * next.c —— 真的函数在哪里：排在我们后面的那一个，通常是记录器的
 */
#include "hooks.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * dlopen(RTLD_LOCAL) 载入的 libibverbs（UCX 的插件、Python 的模块）不在 RTLD_NEXT 的
 * 查找范围里，但它已经在进程里，RTLD_NOLOAD 取得到。
 */
void *next_symbol(const char *name, const char *library)
{
	void *found = dlsym(RTLD_NEXT, name);
	void *handle = found ? NULL : dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

	if (handle)
		found = dlsym(handle, name);
	if (!found) {
		fprintf(stderr, "saboteur: there is no %s\n", name);
		abort();
	}
	return found;
}

// SPDX-License-Identifier: MIT
/*
 * array.c —— 一次添一项的数组
 *
 * 容量总是 2 的幂，因此不必另存：数量本身是 2 的幂时恰好用满，再翻一倍。
 */
#include "array.h"

#include <stdlib.h>

void *array_room(void *items, size_t n, size_t size)
{
	if (n & (n - 1))
		return items;
	return reallocarray(items, n ? 2 * n : 1, size);
}

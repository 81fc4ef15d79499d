// SPDX-License-Identifier: MIT
/*
 * array.c —— 一次添一项的数组
 *
 * 容量不必另存：不小于 n 的 2 的幂，总是放得下的。n 本身是 2 的幂时也许恰好用满，就
 * 要 2n；减少过的数组，容量只会更大。
 */
#include "array.h"

#include <stdlib.h>

void *array_room(void *items, size_t n, size_t size)
{
	if (n & (n - 1))
		return items;
	return reallocarray(items, n ? 2 * n : 1, size);
}

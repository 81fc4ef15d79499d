/* SPDX-License-Identifier: MIT */
/*
 * array.h - arrays that grow by one item at a time.
 */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include <stddef.h>

/*
 * @items, an array of @n items of @size bytes each (NULL: @n is 0) whose memory
 * is of this function, with room for one more: perhaps elsewhere, to be freed. It may
 * have lost items at its end. NULL without memory: then @items is as it was.
 */
void *array_room(void *items, size_t n, size_t size);

#endif

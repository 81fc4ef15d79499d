// SPDX-License-Identifier: MIT
/*
 * room.c —— 对端说“我要发 n 个字节”，我们备好地方
 *
 * n 是对端说的，可能是 2^63：先与上限比，再去要内存。malloc(n + 1) 若不先比，n 取
 * 2^64 - 1 时会溢出成 0，随后的接收就写到了堆的外面。
 */
#include "room.h"

#include "report.h"

#include <errno.h>
#include <stdlib.h>

int room_for(struct room *room, uint64_t size, uint64_t limit, const char *peer)
{
	if (size > limit)
		return fail(-EMSGSIZE,
			    "the peer may be broken; --limit takes larger "
			    "objects",
			    "%s: it wants to send an object of %ju bytes, "
			    "the limit is %ju",
			    peer, size, limit);
	if (room->data && size <= room->size)
		return 0;
	/* 不用 realloc：旧内容没用了，不值得搬。*/
	room_free(room);
	room->data = malloc(size ? size : 1);
	if (!room->data)
		return fail(-ENOMEM, "lower --limit",
			    "%s: no memory for an object of %ju bytes", peer,
			    size);
	room->size = size;
	return 0;
}

void room_free(struct room *room)
{
	free(room->data);
	*room = (struct room){ 0 };
}

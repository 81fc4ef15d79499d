// SPDX-License-Identifier: MIT
/*
 * ids.c —— 程序有哪些 rdma_cm_id，各要连到哪里
 */
#include "ids.h"

#include "explain/explain.h"
#include "format.h"
#include "ring.h"
#include "writer.h"

#include <string.h>

#define MOST_IDS 256

static struct cm_id ids[MOST_IDS];

/* 认不下更多的，就都算同一个陌生的：只少说几句。*/
struct cm_id *know_id(const void *id)
{
	static uint32_t last;
	struct cm_id *free = NULL;

	for (size_t i = 0; i < MOST_IDS; i++) {
		if (ids[i].id == id)
			return &ids[i];
		if (!ids[i].id && !free)
			free = &ids[i];
	}
	if (free && id)
		*free = (struct cm_id){ .id = id, .number = ++last };
	return id ? free : NULL;
}

void forget_id(struct cm_id *known)
{
	*known = (struct cm_id){ 0 };
}

void id_connects_to(const void *id, const struct sockaddr *addr)
{
	const struct sockaddr_in *v4 = (const void *)addr;
	struct cm_id *known;

	if (!addr || addr->sa_family != AF_INET)
		return;
	writer_lock();
	known = know_id(id);
	if (known) {
		known->to = (union ibv_gid){ .raw = { [10] = 0xff, 0xff } };
		memcpy(known->to.raw + 12, &v4->sin_addr, 4);
	}
	writer_unlock();
}

/* 连接请求也是包：等不到回答，看看它们去了哪里。*/
void look_at_ids(void)
{
	struct explanation why;
	struct line line;

	for (size_t i = 0; i < MOST_IDS; i++) {
		if (!ids[i].to.raw[10])
			continue;
		why = explain_neighbour(&ids[i].to);
		if (!why.id)
			continue;
		line_start(&line, "warning");
		LINE_NUMBER(&line, "cm_id", ids[i].number);
		LINE_NUMBER(&line, "idle", 1);
		format_why(&line, &why);
		writer_add_now(&line);
	}
}

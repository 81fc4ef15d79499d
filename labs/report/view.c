// SPDX-License-Identifier: MIT
/*
 * view.c —— 映射着的记录：程序一边写，看着的人一边读
 */
#include "live.h"

#include "../recorder/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

size_t view_blocks(const struct view *view)
{
	size_t blocks = atomic_load(&view->header->blocks);

	return blocks < MOST_VIEW_BLOCKS ? blocks : MOST_VIEW_BLOCKS;
}

struct block *view_block(const struct view *view, size_t i)
{
	return (struct block *)(void *)(view->bytes + HEADER_SIZE +
					i * BLOCK_SIZE);
}

struct thread_slot *view_slot(const struct view *view,
			      const struct thread_slot *last)
{
	size_t blocks = view_blocks(view), i = 0, k = 0;

	if (last) {
		size_t at = (size_t)((const char *)last - view->bytes) -
			    HEADER_SIZE;

		i = at / BLOCK_SIZE;
		k = (at % BLOCK_SIZE - sizeof(struct block)) /
			    sizeof(struct thread_slot) +
		    1;
	}
	for (; i < blocks; i++, k = 0) {
		struct block *block = view_block(view, i);
		struct thread_slot *slots = (struct thread_slot *)(block + 1);

		if (atomic_load(&block->kind) != BLOCK_THREADS)
			continue;
		for (; k < BLOCK_SLOTS; k++)
			if (atomic_load(&slots[k].tid))
				return &slots[k];
	}
	return NULL;
}

static bool is_recording(const struct recording_header *header)
{
	return !memcmp(header->magic, RECORDING_MAGIC, sizeof(header->magic)) &&
	       header->version == RECORDING_VERSION &&
	       header->endian == RECORDING_ENDIAN &&
	       header->block_size == BLOCK_SIZE && header->pid;
}

bool view_open(struct view *view, const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	void *at = MAP_FAILED;

	view->size = HEADER_SIZE + (size_t)MOST_VIEW_BLOCKS * BLOCK_SIZE;
	if (fd >= 0 && !fstat(fd, &st) && st.st_size >= HEADER_SIZE)
		at = mmap(NULL, view->size, PROT_READ | PROT_WRITE, MAP_SHARED,
			  fd, 0);
	if (fd >= 0)
		close(fd);
	if (at == MAP_FAILED)
		return false;
	view->bytes = at;
	/* 9p 上别人此刻打开它，fstat 以后它又短了：先替我们缺页，不行时是 EFAULT，不是 SIGBUS。*/
	if ((madvise(at, HEADER_SIZE, MADV_POPULATE_READ) && errno == EFAULT) ||
	    !is_recording(view->header)) {
		munmap(at, view->size);
		return false;
	}
	view->pid = view->header->pid;
	snprintf(view->path, sizeof(view->path), "%s", path);
	return true;
}

const char *watched_bytes(const struct watcher *w, const char *path)
{
	for (size_t i = 0; w && i < w->n; i++)
		if (!strcmp(w->all[i].view.path, path))
			return w->all[i].view.bytes;
	return NULL;
}

bool is_watched(const struct watcher *w, const char *path)
{
	return watched_bytes(w, path);
}

const char *view_call(const struct thread_slot *slot)
{
	return slot->in[0] || !atomic_load(&slot->sleeps) ? slot->in
							  : "get_cq_event";
}

// SPDX-License-Identifier: MIT
/*
 * newer_verbs.c —— 旧的 libibverbs 没有的三个入口，用它有的代替；见 mr_probe.c
 *
 * 与真的一样，ibv_reg_buf_mr 自己调用 ibv_reg_mr_ex：记录器与破坏者都只许数最外面的那一次。
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ibv_pd;
struct ibv_mr;
struct mr_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_attr *attr);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, void *buf, void *addr,
			      size_t length, int access);
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, void **buf);

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_attr *attr)
{
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t,
				 unsigned int);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t,
					uint64_t, int, int);
	void *symbol =
		dlsym(RTLD_NEXT, attr->comp_mask & 4 ? "ibv_reg_dmabuf_mr"
						     : "ibv_reg_mr_iova2");

	if (!symbol)
		abort();
	memcpy(&reg_mr, &symbol, sizeof(symbol));
	memcpy(&reg_dmabuf_mr, &symbol, sizeof(symbol));
	if (attr->comp_mask & 4)
		return reg_dmabuf_mr(pd, attr->fd_offset, attr->length,
				     attr->iova, attr->fd, attr->access);
	return reg_mr(pd, attr->addr, attr->length, (uintptr_t)attr->addr,
		      (unsigned int)attr->access);
}

struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, void *buf, void *addr,
			      size_t length, int access)
{
	struct mr_attr attr = { .length = length,
				.access = access,
				.comp_mask = 0x22,
				.addr = addr,
				.buf = buf };

	return ibv_reg_mr_ex(pd, &attr);
}

void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, void **buf)
{
	(void)pd;
	*buf = aligned_alloc(4096, size);
	return *buf;
}

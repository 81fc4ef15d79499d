// SPDX-License-Identifier: MIT
/*
 * mr_probe.c —— 用新的 rdma-core 才有的入口注册内存：ibv_reg_mr_ex 与 ibv_reg_buf_mr
 *
 *	mr_probe has        这里的 libibverbs 有没有它们（退出码 0 有）
 *	mr_probe            用前者、后者各注册一次，再做一次内核不许的，再打听一次 DMA-BUF；退
 *	                    出码 4
 *
 * 编译时的头文件可能没有它们，所以都由 dlsym 取来。libibverbs 没有时，newer_verbs.c 用
 * ibv_reg_mr 代替。
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mr_attr { /* struct ibv_mr_init_attr */
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

static struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct mr_attr *);
static struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t,
				    int);
static void *(*alloc_buf)(struct ibv_pd *, size_t, void **);

static void take(const char *name, void *out)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	if (!symbol)
		exit(1);
	memcpy(out, &symbol, sizeof(symbol));
}

static void show(const char *how, const struct ibv_mr *mr)
{
	printf("%s: %s\n", how, mr ? "registered" : strerrorname_np(errno));
}

static int use(struct ibv_pd *pd)
{
	static char own[4096];
	void *buf, *addr = alloc_buf(pd, 8192, &buf);
	struct mr_attr attr = { .length = sizeof(own),
				.access = IBV_ACCESS_LOCAL_WRITE,
				.comp_mask = 2,
				.addr = own };

	if (!addr)
		return 1;
	show("ex", reg_mr_ex(pd, &attr));
	show("buf",
	     reg_buf_mr(pd, buf, addr, 8192,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	show("unchanged", attr.access == IBV_ACCESS_LOCAL_WRITE ? addr : NULL);
	attr.access = IBV_ACCESS_REMOTE_WRITE;
	show("refused", reg_mr_ex(pd, &attr));
	attr = (struct mr_attr){ .length = sizeof(own),
				 .access = IBV_ACCESS_LOCAL_WRITE,
				 .comp_mask = 1 | 4,
				 .iova = 0x1000,
				 .fd = -1 };
	printf("fd: %s\n", reg_mr_ex(pd, &attr) ? "registered" : "refused");
	return 4;
}

int main(int argc, char **argv)
{
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;

	(void)argv;
	take("ibv_reg_mr_ex", &reg_mr_ex);
	take("ibv_reg_buf_mr", &reg_buf_mr);
	take("ibv_alloc_buf", &alloc_buf);
	if (argc > 1)
		return 0;
	list = ibv_get_device_list(NULL);
	context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	pd = context ? ibv_alloc_pd(context) : NULL;
	return pd ? use(pd) : 1;
}

// SPDX-License-Identifier: MIT
/*
 * set_sl.c —— LD_PRELOAD：把每个成功的 receive 的 wc.sl 改成 2，别的一概不动
 *
 * 第 13 课的最后一个预言：UCX 从 wc.sl 读包的类型，2 是 IPv4；rxe 不写 sl。若这就是卡
 * 住的原因，那么只改这一个字节，它就该跑起来。
 *
 * ibv_poll_cq 是 inline，调的是 context->ops.poll_cq，没有符号可以盖住；能盖住的是
 * ibv_create_cq，在那里换掉这个指针。UCX 用 dlopen 装载它的 InfiniBand 模块，libibverbs
 * 不在全局的名字里，RTLD_NEXT 找不到它，所以自己再 dlopen 一次。
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SL_IPV4 2

typedef struct ibv_cq *(*create_fn)(struct ibv_context *, int, void *,
				    struct ibv_comp_channel *, int);

static int (*real_poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);

static int poll_and_set(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = real_poll(cq, n, wc);

	for (int i = 0; i < got; i++)
		if (wc[i].status == IBV_WC_SUCCESS &&
		    wc[i].opcode == IBV_WC_RECV)
			wc[i].sl = SL_IPV4;
	return got;
}

static create_fn find_create(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	void *symbol = library ? dlvsym(library, "ibv_create_cq", "IBVERBS_1.1")
			       : NULL;
	create_fn create;

	if (!symbol) {
		fprintf(stderr, "set_sl: no ibv_create_cq: %s\n", dlerror());
		abort();
	}
	memcpy(&create, &symbol, sizeof(create));
	return create;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
			     struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = find_create()(context, cqe, arg, channel, vector);

	if (cq && context->ops.poll_cq != poll_and_set) {
		real_poll = context->ops.poll_cq;
		context->ops.poll_cq = poll_and_set;
	}
	return cq;
}

// SPDX-License-Identifier: MIT
/*
 * dl_probe.c —— 不链接 libibverbs 的 verbs 程序，像 NCCL 那样自己 dlopen、自己取函数
 *
 *	dl_probe            用 dlvsym 取函数，建 PD、CQ、QP，走错一步状态机；退出码 4
 *	dl_probe symbols    dlsym 的各种问法各给出哪个库里的函数，一行一个
 *
 * 没有记录器时 symbols 给出的是 libibverbs 与 libc 自己的。
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;

static void *take(const char *name, const char *version)
{
	void *symbol;

	dlerror();
	symbol =
		version ? dlvsym(library, name, version) : dlsym(library, name);
	if (!symbol || dlerror()) {
		fprintf(stderr, "dl_probe: no %s\n", name);
		exit(1);
	}
	return symbol;
}

#define TAKE(name)                    \
	__typeof__(&name) my_##name = \
		(__typeof__(&name))take(#name, "IBVERBS_1.1")

static int use(void)
{
	TAKE(ibv_get_device_list);
	TAKE(ibv_open_device);
	TAKE(ibv_alloc_pd);
	TAKE(ibv_create_cq);
	TAKE(ibv_create_qp);
	TAKE(ibv_modify_qp);
	TAKE(ibv_destroy_qp);
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct ibv_device **list = my_ibv_get_device_list(NULL);
	struct ibv_context *context = list ? my_ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? my_ibv_alloc_pd(context) : NULL;
	struct ibv_qp *qp;
	struct ibv_wc wc;

	init.send_cq = init.recv_cq =
		pd ? my_ibv_create_cq(context, 4, NULL, NULL, 0) : NULL;
	qp = init.send_cq ? my_ibv_create_qp(pd, &init) : NULL;
	if (!qp)
		return 1;
	printf("polled: %d\n", ibv_poll_cq(init.send_cq, 1, &wc));
	printf("modify: %d\n", my_ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	printf("destroy: %d\n", my_ibv_destroy_qp(qp));
	return 4;
}

static void whose(const char *how, void *symbol)
{
	Dl_info info = { 0 };
	const char *slash;

	if (symbol)
		dladdr(symbol, &info);
	slash = info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
	printf("%s: %s\n", how, slash ? slash + 1 : "none");
}

static int show_symbols(void)
{
	const char *error;

	whose("open_device 1.1", take("ibv_open_device", "IBVERBS_1.1"));
	whose("open_device 1.0", take("ibv_open_device", "IBVERBS_1.0"));
	whose("open_device", take("ibv_open_device", NULL));
	whose("not wrapped", take("ibv_rate_to_mult", NULL));
	whose("no such", dlsym(library, "ibv_no_such"));
	error = dlerror();
	printf("%s\n", error && strstr(error, "ibv_no_such") ? "said so" : "-");
	/* 谁在问，由返回地址看出：本程序的下一个是 preload，然后才是 libc。*/
	whose("next _exit", dlsym(RTLD_NEXT, "_exit"));
	whose("default printf", dlsym(RTLD_DEFAULT, "printf"));
	return 0;
}

int main(int argc, char **argv)
{
	(void)argv;
	library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "dl_probe: %s\n", dlerror());
		return 1;
	}
	return argc > 1 ? show_symbols() : use();
}

// SPDX-License-Identifier: MIT
/*
 * net_shim_tables.c —— shim 的四张函数表，以及它背后那个真正的插件
 *
 * 版本之间的差别（参数个数、size 的宽度、properties 的字段）全在这里化解；net_shim.c
 * 只见到一套调用，后面总是真插件的 v8。不会有人调用的（iflush、regMrDmaBuf、
 * getDeviceMr）都空着。以 -DONLY_V6 编译则只导出那一版的表。
 */
#include "net_shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define PART(array) (sizeof(array) / sizeof(*(array)))

const ncclNet_v8_t *real;
static const ncclNet_v5_t *real_v5;
static const ncclNet_v7_t *real_v7;
static void *lib;

static void load_real(void)
{
	const char *path = getenv("NET_SHIM_REAL");

	lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!lib)
		violation("NET_SHIM_REAL is not the real plugin");
	real_v5 = dlsym(lib, "ncclNetPlugin_v5");
	real_v7 = dlsym(lib, "ncclNetPlugin_v7");
	real = dlsym(lib, "ncclNetPlugin_v8");
	if (!real_v5 || !real_v7 || !real)
		violation("the real plugin has not all versions");
}

/* ---- 各版只差类型与参数个数的几个函数 ------------------------------------- */

static void fill_tables(void);

static int init(nccl_logger_t log)
{
	int rc = failure("init");

	/* 参数是个 char，格式却是 %s。*/
	if (asked("badlog"))
		log(NCCL_LOG_WARN, 0, "net_ib.c", 7, "%s",
		    (char *)(intptr_t)'x');
	if (!rc)
		rc = real->init(log);
	if (!rc && asked("late"))
		fill_tables();
	return rc;
}

static int devices(int *n)
{
	int rc = failure("devices");

	return rc ? rc : real->devices(n);
}

static int properties_v5(int dev, ncclNetProperties_v5_t *p)
{
	int rc = failure("getProperties");

	return rc ? rc : real_v5->getProperties(dev, p);
}

static int properties_v7(int dev, ncclNetProperties_v7_t *p)
{
	int rc = failure("getProperties");

	if (!rc)
		rc = real_v7->getProperties(dev, p);
	p->netDeviceType = asked("unpack") ? NCCL_NET_DEVICE_UNPACK : 0;
	return rc;
}

static int properties_v8(int dev, ncclNetProperties_v8_t *p)
{
	int rc = failure("getProperties");

	if (!rc)
		rc = real->getProperties(dev, p);
	p->netDeviceType = asked("unpack") ? NCCL_NET_DEVICE_UNPACK : 0;
	return rc;
}

static int connect_v5(int dev, void *handle, void **comm)
{
	return shim_connect(false, dev, handle, comm, NULL);
}

static int connect_v7(int dev, void *handle, void **comm,
		      ncclNetDeviceHandle_t **dh)
{
	return shim_connect(true, dev, handle, comm, dh);
}

static int accept_v5(void *listen_comm, void **comm)
{
	return shim_accept(false, listen_comm, comm, NULL);
}

static int accept_v7(void *listen_comm, void **comm, ncclNetDeviceHandle_t **dh)
{
	return shim_accept(true, listen_comm, comm, dh);
}

static int reg_mr_v5(void *comm, void *data, int size, int type, void **mhandle)
{
	if (size < 0)
		violation("regMr of %d bytes", size);
	return shim_reg_mr(comm, data, (size_t)size, type, mhandle);
}

/* ---- 表 ------------------------------------------------------------------- */

/* 可写：hole 要挖掉一项。*/
#define TABLE(ver, ...)                            \
	static ncclNet_v##ver##_t table_v##ver = { \
		.name = "Shim",                    \
		.init = init,                      \
		.devices = devices,                \
		.listen = shim_listen,             \
		.deregMr = shim_dereg_mr,          \
		.isend = shim_isend,               \
		.irecv = shim_irecv,               \
		.test = shim_test,                 \
		.closeSend = shim_close_send,      \
		.closeRecv = shim_close_recv,      \
		.closeListen = shim_close_listen,  \
		__VA_ARGS__                        \
	}
#define OLD                                                    \
	.getProperties = properties_v5, .connect = connect_v5, \
	.accept = accept_v5, .regMr = reg_mr_v5
#define NEW                                         \
	.connect = connect_v7, .accept = accept_v7, \
	.irecvConsumed = shim_consumed

TABLE(5, OLD);
TABLE(6, OLD);
TABLE(7, NEW, .getProperties = properties_v7, .regMr = reg_mr_v5);
TABLE(8, NEW, .getProperties = properties_v8, .regMr = shim_reg_mr);

#define EXPORT(ver)                                    \
	extern ncclNet_v##ver##_t ncclNetPlugin_v##ver \
		__attribute__((alias("table_v" #ver), visibility("default")))

EXPORT(6);
#ifndef ONLY_V6
EXPORT(5);
EXPORT(7);
EXPORT(8);
#endif

static const struct {
	void *table;
	size_t size;
} tables[] = {
	{ &table_v5, sizeof(table_v5) },
	{ &table_v6, sizeof(table_v6) },
	{ &table_v7, sizeof(table_v7) },
	{ &table_v8, sizeof(table_v8) },
};
static char full[PART(tables)][sizeof(ncclNet_v8_t)];

/* 从 @at 起，@n 项成为 NULL。*/
static void dig(void *table, size_t at, size_t n)
{
	memset((char *)table + at * sizeof(void *), 0, n * sizeof(void *));
}

static void fill_tables(void)
{
	for (size_t i = 0; i < PART(tables); i++)
		memcpy(tables[i].table, full[i], tables[i].size);
}

/* init 之前的表，除了 name 与 init 都是空的。*/
static void empty_tables(void)
{
	for (size_t i = 0; i < PART(tables); i++) {
		memcpy(full[i], tables[i].table, tables[i].size);
		dig(tables[i].table, 2, tables[i].size / sizeof(void *) - 2);
	}
}

static __attribute__((constructor)) void begin(void)
{
	size_t hole;

	load_real();
	hole = asked("hole") ? (size_t)atoi(asked("hole")) : 0;
	/* v6 起，regMr 之后多一项。*/
	for (size_t i = 0; hole && i < PART(tables); i++)
		dig(tables[i].table, hole + (i && hole > 7), 1);
	if (asked("late"))
		empty_tables();
}

/* 卸载，或程序结束：该关的都关了吗？*/
static __attribute__((destructor)) void end(void)
{
	check_all_closed();
	dlclose(lib);
}

// SPDX-License-Identifier: MIT
/*
 * net_shim_tables.c —— shim 的四张函数表，以及它背后那个真正的插件
 *
 * 版本之间的差别（参数个数、size 的宽度、properties 的字段）全在这里化解；
 * net_shim.c 只见到一套调用。以 -DONLY=5 … 8 编译则只导出那一版的表。
 */
#include "net_shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- 真正的插件 ---------------------------------------------------------- */

static struct {
	void *lib;
	const ncclNet_v5_t *v5;
	const ncclNet_v6_t *v6;
	const ncclNet_v7_t *v7;
	const ncclNet_v8_t *v8;
	struct real_calls calls[NCCL_NET_NEWEST + 1]; /* [5] … [8] */
} real;

#define TAKE(ver)                                                         \
	do {                                                              \
		real.v##ver = dlsym(real.lib, "ncclNetPlugin_v" #ver);    \
		if (!real.v##ver)                                         \
			violation("the real plugin has no v%d", ver);     \
		real.calls[ver] = (struct real_calls){                    \
			real.v##ver->init,	real.v##ver->devices,     \
			real.v##ver->listen,	real.v##ver->deregMr,     \
			real.v##ver->isend,	real.v##ver->irecv,       \
			real.v##ver->test,	real.v##ver->closeSend,   \
			real.v##ver->closeRecv, real.v##ver->closeListen, \
		};                                                        \
	} while (0)

const struct real_calls *real_calls(int v)
{
	return &real.calls[v];
}

static void load_real(void)
{
	const char *named_path = getenv("NET_SHIM_REAL");
	char path[4096];
	Dl_info me;

	if (!named_path && dladdr(&real, &me)) {
		const char *end = strrchr(me.dli_fname, '/');

		snprintf(path, sizeof(path), "%.*slibnccl-net-lab.so",
			 end ? (int)(end + 1 - me.dli_fname) : 0, me.dli_fname);
		named_path = path;
	}
	real.lib = dlopen(named_path, RTLD_NOW | RTLD_LOCAL);
	if (!real.lib)
		violation("no real plugin: %s", dlerror());
	TAKE(5);
	TAKE(6);
	TAKE(7);
	TAKE(8);
}

int real_connect(int v, int dev, void *handle, void **comm)
{
	ncclNetDeviceHandle_t *dh = NULL;

	if (v == 5)
		return real.v5->connect(dev, handle, comm);
	if (v == 6)
		return real.v6->connect(dev, handle, comm);
	if (v == 7)
		return real.v7->connect(dev, handle, comm, &dh);
	return real.v8->connect(dev, handle, comm, &dh);
}

int real_accept(int v, void *listen_comm, void **comm)
{
	ncclNetDeviceHandle_t *dh = NULL;

	if (v == 5)
		return real.v5->accept(listen_comm, comm);
	if (v == 6)
		return real.v6->accept(listen_comm, comm);
	if (v == 7)
		return real.v7->accept(listen_comm, comm, &dh);
	return real.v8->accept(listen_comm, comm, &dh);
}

int real_reg_mr(int v, void *comm, void *data, size_t size, int type,
		void **mhandle)
{
	if (v == 5)
		return real.v5->regMr(comm, data, (int)size, type, mhandle);
	if (v == 6)
		return real.v6->regMr(comm, data, (int)size, type, mhandle);
	if (v == 7)
		return real.v7->regMr(comm, data, (int)size, type, mhandle);
	return real.v8->regMr(comm, data, size, type, mhandle);
}

/* 拼错的吩咐会让测试什么都没测到，却通过。*/
static void check_words(void)
{
	static const char known[] =
		" slow busy sleepy lazy late devhandle nosize zerosize "
		"shortsize longsize roomsize notags nullmr unpack corrupt "
		"overrun leap early linger devices nolisten crash badlog "
		"hole fail rc lost ";
	const char *list = getenv("NET_SHIM");
	char word[64];

	for (; list && *list; list += strcspn(list, ",")) {
		list += *list == ',';
		snprintf(word, sizeof(word), " %.*s ", (int)strcspn(list, ",="),
			 list);
		if (!strstr(known, word))
			violation("NET_SHIM has an unknown word:%s", word);
	}
}

/* late：init 之前的表，除了 name 与 init 都是空的。*/
static void fill_tables(void);

static int shim_init(int v, nccl_logger_t log)
{
	int rc = failure("init");

	/* 参数是个 char，格式却是 %s。*/
	if (asked("badlog"))
		log(NCCL_LOG_WARN, 0, "net_ib.c", 7, "%s",
		    (char *)(intptr_t)'x');
	if (!rc)
		rc = real_calls(v)->init(log);
	if (!rc && asked("late"))
		fill_tables();
	return rc;
}

static int shim_devices(int v, int *n)
{
	const char *count = asked("devices");
	int rc = failure("devices");

	if (!rc)
		rc = real_calls(v)->devices(n);
	if (!rc && count)
		*n = atoi(count);
	return rc;
}

#define DEVICE_TYPE(p) \
	((p)->netDeviceType = asked("unpack") ? NCCL_NET_DEVICE_UNPACK : 0)

/* 各版只差类型与参数个数的几个函数。*/
#define WRAPPERS(ver, props_v, after_props, dh_param, dh_arg)                  \
	static int init_v##ver(nccl_logger_t log)                              \
	{                                                                      \
		return shim_init(ver, log);                                    \
	}                                                                      \
	static int devices_v##ver(int *n)                                      \
	{                                                                      \
		return shim_devices(ver, n);                                   \
	}                                                                      \
	static int properties_v##ver(int dev,                                  \
				     ncclNetProperties_##props_v##_t *p)       \
	{                                                                      \
		int rc = failure("getProperties");                             \
                                                                               \
		if (!rc)                                                       \
			rc = real.v##ver->getProperties(dev, p);               \
		after_props;                                                   \
		return rc;                                                     \
	}                                                                      \
	static int listen_v##ver(int dev, void *handle, void **comm)           \
	{                                                                      \
		return shim_listen(ver, dev, handle, comm);                    \
	}                                                                      \
	static int connect_v##ver(int dev, void *handle, void **comm dh_param) \
	{                                                                      \
		return shim_connect(ver, dev, handle, comm, dh_arg);           \
	}                                                                      \
	static int accept_v##ver(void *listen_comm, void **comm dh_param)      \
	{                                                                      \
		return shim_accept(ver, listen_comm, comm, dh_arg);            \
	}

#define COMMA_DH , ncclNetDeviceHandle_t **dh
WRAPPERS(5, v5, , , NULL)
WRAPPERS(6, v5, , , NULL)
WRAPPERS(7, v7, DEVICE_TYPE(p), COMMA_DH, dh)
WRAPPERS(8, v8, DEVICE_TYPE(p), COMMA_DH, dh)

/* 表可写：hole 要挖掉一项。*/
#define TABLE(ver, reg_mr, ...)                     \
	static ncclNet_v##ver##_t table_v##ver = {  \
		.name = "Shim",                     \
		.init = init_v##ver,                \
		.devices = devices_v##ver,          \
		.getProperties = properties_v##ver, \
		.listen = listen_v##ver,            \
		.connect = connect_v##ver,          \
		.accept = accept_v##ver,            \
		.regMr = reg_mr,                    \
		.deregMr = shim_dereg_mr,           \
		.isend = shim_isend,                \
		.irecv = shim_irecv,                \
		.iflush = shim_iflush,              \
		.test = shim_test,                  \
		.closeSend = shim_close_send,       \
		.closeRecv = shim_close_recv,       \
		.closeListen = shim_close_listen,   \
		__VA_ARGS__                         \
	}

TABLE(5, shim_reg_mr_int);
TABLE(6, shim_reg_mr_int);
TABLE(7, shim_reg_mr_int, .getDeviceMr = shim_get_device_mr,
      .irecvConsumed = shim_consumed);
TABLE(8, shim_reg_mr, .getDeviceMr = shim_get_device_mr,
      .irecvConsumed = shim_consumed);

#define EXPORT(ver)                                    \
	extern ncclNet_v##ver##_t ncclNetPlugin_v##ver \
		__attribute__((alias("table_v" #ver), visibility("default")))

#if !defined(ONLY) || ONLY == 5
EXPORT(5);
#endif
#if !defined(ONLY) || ONLY == 6
EXPORT(6);
#endif
#if !defined(ONLY) || ONLY == 7
EXPORT(7);
#endif
#if !defined(ONLY) || ONLY == 8
EXPORT(8);
#endif

#define HOLE_NEWER(call)                                                   \
	do {                                                               \
		if (!strcmp(hole, #call))                                  \
			table_v7.call = NULL, table_v8.call = NULL, dug++; \
	} while (0)
#define HOLE(call)                                                  \
	do {                                                        \
		if (!strcmp(hole, #call))                           \
			table_v5.call = NULL, table_v6.call = NULL; \
		HOLE_NEWER(call);                                   \
	} while (0)

static void dig(const char *hole)
{
	int dug = 0;

	HOLE(name);
	HOLE(init);
	HOLE(devices);
	HOLE(getProperties);
	HOLE(listen);
	HOLE(connect);
	HOLE(accept);
	HOLE(regMr);
	HOLE(deregMr);
	HOLE(isend);
	HOLE(irecv);
	HOLE(iflush);
	HOLE(test);
	HOLE(closeSend);
	HOLE(closeRecv);
	HOLE(closeListen);
	HOLE_NEWER(regMrDmaBuf);
	HOLE_NEWER(getDeviceMr);
	HOLE_NEWER(irecvConsumed);
	if (!dug)
		violation("hole=%s: no such call", hole);
}

static ncclNet_v5_t full_v5;
static ncclNet_v6_t full_v6;
static ncclNet_v7_t full_v7;
static ncclNet_v8_t full_v8;

#define EMPTY(ver)                                                   \
	(full_v##ver = table_v##ver,                                 \
	 table_v##ver = (ncclNet_v##ver##_t){ .name = "Shim before", \
					      .init = init_v##ver })

static void fill_tables(void)
{
	table_v5 = full_v5;
	table_v6 = full_v6;
	table_v7 = full_v7;
	table_v8 = full_v8;
}

static __attribute__((constructor)) void begin(void)
{
	check_words();
	load_real();
	if (asked("hole"))
		dig(asked("hole"));
	if (asked("late"))
		EMPTY(5), EMPTY(6), EMPTY(7), EMPTY(8);
}

/* 卸载，或程序结束：该关的都关了吗？*/
static __attribute__((destructor)) void end(void)
{
	check_all_closed();
	dlclose(real.lib);
}

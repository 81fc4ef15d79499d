// SPDX-License-Identifier: MIT
/*
 * pass.c —— common/ 的解释器要用的 libibverbs 函数，原样转交
 *
 * 本库不能链接 libibverbs：那样每个被 preload 的程序（包括 ls）都会载入它，自带另一
 * 份 libibverbs 的程序还会拿到错的那一份。所以解释器用到的每个名字在这里有一个只在
 * 库内可见的替身，真的要用时再去找。
 */
#include "event.h"

#include <errno.h>

#undef ibv_query_port
#undef ibv_query_gid

#define PASS(type, name, version, failure, PARAMS, ...) \
	type name PARAMS                                \
	{                                               \
		REAL(name, version, failure);           \
		return real(__VA_ARGS__);               \
	}
PASS(int, ibv_query_gid, "IBVERBS_1.1", -1,
     (struct ibv_context * context, uint8_t port, int index,
      union ibv_gid *gid),
     context, port, index, gid)
PASS(int, ibv_query_device, "IBVERBS_1.1", ENOSYS,
     (struct ibv_context * context, struct ibv_device_attr *attr), context,
     attr)
PASS(int, ibv_query_srq, "IBVERBS_1.1", ENOSYS,
     (struct ibv_srq * srq, struct ibv_srq_attr *attr), srq, attr)
PASS(int, ibv_query_port, "IBVERBS_1.1", ENOSYS,
     (struct ibv_context * context, uint8_t port,
      struct _compat_ibv_port_attr *attr),
     context, port, attr)
PASS(int, _ibv_query_gid_ex, "IBVERBS_1.11", ENOSYS,
     (struct ibv_context * context, uint32_t port, uint32_t index,
      struct ibv_gid_entry *entry, uint32_t flags, size_t size),
     context, port, index, entry, flags, size)
PASS(ssize_t, _ibv_query_gid_table, "IBVERBS_1.11", -ENOSYS,
     (struct ibv_context * context, struct ibv_gid_entry *entries, size_t max,
      uint32_t flags, size_t size),
     context, entries, max, flags, size)

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

/* RDMA_EXPLAIN=0 说的是程序自己，不是记录器：后者的开关是 --quiet。*/
bool explain_is_on(void)
{
	return true;
}

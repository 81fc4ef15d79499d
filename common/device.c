// SPDX-License-Identifier: MIT
/*
 * device.c —— 第 1 阶段：找到设备、打开它、选定 port 与 GID
 *
 * 一切 verbs 调用都要一个 struct ibv_context，它就是“打开的设备”：内部是
 * /dev/infiniband/uverbsN 的文件描述符，加上用户态 provider（rxe 的是
 * librxe-rdmav34.so）的函数表。本阶段回答三个问题：
 *   1. 用哪个设备？   ibv_get_device_list / ibv_open_device
 *   2. 它能不能用？   ibv_query_device / ibv_query_port（state 必须 ACTIVE）
 *   3. 我是谁？       GID：RoCE 里它就是一个 IP 地址，写进每个包的 IP 头
 */
#include "base/failure.h"
#include "base/report.h"
#include "explain/explain.h"
#include "rdma_common.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

const char *gid_type_name(uint32_t gid_type)
{
	switch (gid_type) {
	case IBV_GID_TYPE_IB:
		return "IB";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	}
	return "unknown";
}

// region gid-rank
/*
 * 数值越小越好。为什么首选 IPv4-mapped（::ffff:a.b.c.d）？因为两台机器之间
 * 通常有 IPv4 路由，对端也最可能有同族的 GID；而 fe80:: 只在同一个二层网络里
 * 有效，且 sgid 与 dgid 必须同族，否则 INIT→RTR 得到 EINVAL。
 */
static int gid_rank(const struct ibv_gid_entry *entry)
{
	const struct in6_addr *ip = (const struct in6_addr *)entry->gid.raw;

	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return -1;
	if (IN6_IS_ADDR_V4MAPPED(ip))
		return 1;
	return IN6_IS_ADDR_LINKLOCAL(ip) ? 3 : 2;
}
// endregion gid-rank

static int refuse_gid(const struct rdma_resources *res, int wanted,
		      const char *why)
{
	report_error("list the GIDs with build/01-device-open and name a "
		     "filled RoCE v2 slot, or leave the GID index out",
		     "GID index %d of %s port %u %s", wanted,
		     ibv_get_device_name(res->context->device), res->ib_port,
		     why);
	return -EADDRNOTAVAIL;
}

// region take-gid
static int take_gid(struct rdma_resources *res, const struct ibv_gid_entry *gid,
		    int wanted)
{
	if (!gid)
		return refuse_gid(res, wanted,
				  wanted == GID_INDEX_AUTO
					  ? "(automatic): no RoCE v2 GID there"
					  : "is empty");
	if (gid->gid_type != IBV_GID_TYPE_ROCE_V2)
		return refuse_gid(res, wanted, "is not RoCE v2");
	if (wanted == GID_INDEX_AUTO && gid_rank(gid) == 3)
		report_warning("give the network device an IPv4 address, or "
			       "use GIDs of this kind on both sides",
			       "%s port %u has only a link-local GID",
			       ibv_get_device_name(res->context->device),
			       res->ib_port);
	res->gid_index = (uint8_t)gid->gid_index;
	res->gid = gid->gid;
	return 0;
}
// endregion take-gid

int rdma_read_gid_table(struct ibv_context *context,
			struct ibv_gid_entry **table)
{
	ssize_t n = -EINVAL;

	*table = NULL;
	/* 给的数组太小时内核回 EINVAL，而不告诉你要多大：放大四倍再问。*/
	for (size_t most = 256; n == -EINVAL && most <= 65536; most *= 4) {
		free(*table);
		*table = calloc(most, sizeof(**table));
		if (!*table)
			return call_failed(ENOMEM, "calloc(%zu GIDs)", most);
		n = ibv_query_gid_table(context, *table, most, 0);
	}
	if (n >= 0)
		return (int)n;
	free(*table);
	*table = NULL;
	return call_failed((int)-n, "ibv_query_gid_table(%s)",
			   ibv_get_device_name(context->device));
}

// region choose-gid
int rdma_choose_gid(struct rdma_resources *res, int wanted)
{
	struct ibv_gid_entry *table;
	const struct ibv_gid_entry *best = NULL;
	/*
	 * 表里只有非空的槽位，并带着类型。千万不要写死“index 1”：rxe 上 0 是 fe80、
	 * 1 是 IPv4；mlx5 上常是 3；加一个 IP 地址就会变。
	 */
	int n = rdma_read_gid_table(res->context, &table);
	int rc;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		const struct ibv_gid_entry *e = &table[i];

		/* AV 里的 sgid_index 只有 8 位，更靠后的槽位用不上。*/
		if (e->port_num != res->ib_port || e->gid_index > 255)
			continue;
		if (wanted != GID_INDEX_AUTO) {
			if (e->gid_index == (uint32_t)wanted)
				best = e;
		} else if (gid_rank(e) > 0 &&
			   (!best || gid_rank(e) < gid_rank(best))) {
			best = e;
		}
	}
	rc = take_gid(res, best, wanted);
	free(table);
	return rc;
}
// endregion choose-gid

/* 有些设备有多个 port：取第一个 ACTIVE 的。port 从 1 开始数，0 是无效值。*/
static int find_active_port(struct rdma_resources *res)
{
	const char *name = ibv_get_device_name(res->context->device);
	int err;

	for (int port = 1; port <= res->device_attr.phys_port_cnt; port++) {
		err = ibv_query_port(res->context, (uint8_t)port,
				     &res->port_attr);
		if (err)
			return call_failed(err, "ibv_query_port(%s, port %d)",
					   name, port);
		if (res->port_attr.state == IBV_PORT_ACTIVE) {
			res->ib_port = (uint8_t)port;
			return 0;
		}
	}
	report_error("set the network device behind it up (ip link set DEV "
		     "up) and see `rdma link`",
		     "%s has no active port (port 1 is %s)", name,
		     ibv_port_state_str(res->port_attr.state));
	return -ENETDOWN;
}

// region open-one
/* 打开一个具体的设备并把它查清楚；任何一步失败都把它关上，不留半成品。*/
static int open_one(struct rdma_resources *res, struct ibv_device *device,
		    int gid_index)
{
	int err;

	/* ibv_open_device 失败时返回 NULL 并设 errno（不是返回错误码）。*/
	res->context = ibv_open_device(device);
	if (!res->context)
		return verb_failed(errno, explain_open_device(errno),
				   "ibv_open_device(%s)",
				   ibv_get_device_name(device));
	/* ibv_query_device 则相反：直接返回错误码。两类不能混。*/
	err = ibv_query_device(res->context, &res->device_attr);
	if (err)
		err = call_failed(err, "ibv_query_device(%s)",
				  ibv_get_device_name(device));
	else
		err = find_active_port(res);
	if (!err)
		err = rdma_choose_gid(res, gid_index);
	if (err)
		rdma_close_device(res);
	return err;
}
// endregion open-one

/* 安静地试一下：有没有至少一个 ACTIVE 的 port。只用于“替用户选设备”。*/
static bool has_active_port(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	bool found = false;

	if (!context)
		return false;
	if (ibv_query_device(context, &attr))
		attr.phys_port_cnt = 0;
	for (int port = 1; port <= attr.phys_port_cnt && !found; port++)
		found = !ibv_query_port(context, (uint8_t)port, &port_attr) &&
			port_attr.state == IBV_PORT_ACTIVE;
	ibv_close_device(context);
	return found;
}

// region pick-device
/*
 * 用户点了名就只认那个名字；没点名则取第一个能用的。一个都不能用时仍返回
 * 第一个：随后打开它的那一步会说清楚它为什么不能用。
 */
static struct ibv_device *pick_device(struct ibv_device **list,
				      const char *name)
{
	for (int i = 0; list[i]; i++) {
		if (name ? !strcmp(ibv_get_device_name(list[i]), name)
			 : has_active_port(list[i]))
			return list[i];
	}
	return name ? NULL : list[0];
}
// endregion pick-device

static int no_device(const char *name, int count, int err)
{
	char next[EXPLAIN_NEXT_SIZE];
	struct explanation why;

	if (name && count) {
		report_error("list the devices with build/01-device-open or "
			     "`rdma link`",
			     "no RDMA device is named \"%s\"", name);
		return -ENODEV;
	}
	why = explain_device_list(err);
	report_error(explain_next(next, &why),
		     "there is no RDMA device on this machine%s%s",
		     why.cause[0] ? ": " : "", why.cause);
	return -ENODEV;
}

// region open-device
int rdma_open_device(struct rdma_resources *res,
		     const struct rdma_config *config)
{
	struct ibv_device **list;
	struct ibv_device *device;
	int count = 0;
	int rc;

	/*
	 * 列表以 NULL 结尾。没有设备时返回的是空列表而不是 NULL，所以
	 * “直接取 list[0] 去 open”在没有网卡的机器上会因 NULL 而崩溃。
	 */
	list = ibv_get_device_list(&count);
	if (!list && errno == ENOSYS) /* ib_uverbs 没有装载：一个设备也没有 */
		return no_device(config->device_name, 0, ENOSYS);
	if (!list)
		return verb_failed(errno, explain_device_list(errno),
				   "ibv_get_device_list()");
	device = pick_device(list, config->device_name);
	if (device)
		rc = open_one(res, device, config->gid_index);
	else
		rc = no_device(config->device_name, count, 0);
	/*
	 * 打开之后列表就可以释放：context 自己持有设备的引用。反过来，先释放
	 * 列表再 open 则是 use-after-free。
	 */
	ibv_free_device_list(list);
	return rc;
}
// endregion open-device

int rdma_close_device(struct rdma_resources *res)
{
	int rc = 0;

	if (res->context && ibv_close_device(res->context))
		rc = verb_failed(errno, explain_destroy(errno),
				 "ibv_close_device()");
	res->context = NULL;
	return rc;
}

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
#include "rdma_common.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

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
		return 9;
	if (IN6_IS_ADDR_V4MAPPED(ip))
		return 1;
	return IN6_IS_ADDR_LINKLOCAL(ip) ? 3 : 2;
}
// endregion gid-rank

// region choose-gid
int choose_gid(struct rdma_resources *res, int wanted)
{
	struct ibv_gid_entry e, best = { .gid_type = UINT32_MAX };
	const char *device = ibv_get_device_name(res->context->device);
	bool found = false;
	int err;

	/*
	 * 槽位可以是空的（ENODATA），也各有各的类型。千万不要写死“index 1”：rxe 上 0 是
	 * fe80、1 是 IPv4；mlx5 上常是 3；加一个 IP 地址就会变。AV 里的 sgid_index 只有
	 * 8 位，更靠后的槽位用不上。
	 */
	for (int i = 0; i < res->port_attr.gid_tbl_len && i < 256; i++) {
		err = ibv_query_gid_ex(res->context, res->ib_port, (uint32_t)i,
				       &e, 0);
		if (err && err != ENODATA)
			return call_failed(err, "ibv_query_gid_ex(%s, %d)",
					   device, i);
		if (!err &&
		    (wanted == GID_INDEX_AUTO ? gid_rank(&e) < gid_rank(&best)
					      : i == wanted)) {
			best = e;
			found = true;
		}
	}
	if (best.gid_type != IBV_GID_TYPE_ROCE_V2)
		return gid_refused(device, res->ib_port, wanted, found);
	if (wanted == GID_INDEX_AUTO && gid_rank(&best) == 3)
		warn_of_link_local(device, res->ib_port);
	res->gid_index = (uint8_t)best.gid_index;
	res->gid = best.gid;
	return 0;
}
// endregion choose-gid

/* 有些设备有多个 port：取第一个 ACTIVE 的。port 从 1 开始数，0 表示一个也没有。*/
static int query_device(struct rdma_resources *res)
{
	int err = ibv_query_device(res->context, &res->device_attr);

	res->ib_port = 0;
	for (int i = 1;
	     !err && !res->ib_port && i <= res->device_attr.phys_port_cnt;
	     i++) {
		err = ibv_query_port(res->context, (uint8_t)i, &res->port_attr);
		if (!err && res->port_attr.state == IBV_PORT_ACTIVE)
			res->ib_port = (uint8_t)i;
	}
	return err;
}

// region open-one
/* 打开一个具体的设备并把它查清楚；任何一步失败都把它关上，不留半成品。*/
static int open_one(struct rdma_resources *res, struct ibv_device *device,
		    int gid_index)
{
	int rc;

	/* ibv_open_device 失败时返回 NULL 并设 errno（不是返回错误码）。*/
	res->context = ibv_open_device(device);
	if (!res->context)
		return open_device_failed(device, errno);
	/* ibv_query_* 则相反：直接返回错误码。两类不能混。*/
	rc = query_device(res);
	if (rc)
		rc = call_failed(rc, "ibv_query_device or ibv_query_port(%s)",
				 ibv_get_device_name(device));
	else if (!res->ib_port)
		rc = no_active_port(device, res->port_attr.state);
	else
		rc = choose_gid(res, gid_index);
	if (rc)
		close_device(res);
	return rc;
}
// endregion open-one

// region pick-device
/* 安静地试一下：有没有至少一个 ACTIVE 的 port。只用于“替用户选设备”。*/
static bool has_active_port(struct ibv_device *device)
{
	struct rdma_resources res = { .context = ibv_open_device(device) };

	if (!res.context)
		return false;
	query_device(&res);
	ibv_close_device(res.context);
	return res.ib_port;
}

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

// region open-device
int open_device(struct rdma_resources *res, const struct rdma_config *config)
{
	int count = 0;
	/*
	 * 列表以 NULL 结尾。没有设备时返回的是空列表而不是 NULL，所以
	 * “直接取 list[0] 去 open”在没有网卡的机器上会因 NULL 而崩溃。
	 */
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_device *device;
	int rc;

	if (!list)
		return device_list_failed(errno);
	device = pick_device(list, config->device_name);
	rc = device ? open_one(res, device, config->gid_index)
		    : no_such_device(config->device_name, count, 0);
	/*
	 * 打开之后列表就可以释放：context 自己持有设备的引用。反过来，先释放
	 * 列表再 open 则是 use-after-free。
	 */
	ibv_free_device_list(list);
	return rc;
}
// endregion open-device

int close_device(struct rdma_resources *res)
{
	int rc = 0;

	if (res->context && ibv_close_device(res->context))
		rc = check_destroyed("ibv_close_device", errno);
	res->context = NULL;
	return rc;
}

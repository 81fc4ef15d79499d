// SPDX-License-Identifier: MIT
/*
 * 第 1 课：打开设备
 *
 * 先把系统里所有 RDMA 设备、port 和 GID 列出来（相当于一个迷你 ibv_devinfo），
 * 再让 common/device.c 按它的规则挑一个，并说明挑中的是什么。
 */
#include "../lesson.h"
#include "base/call_failed.h"
#include "base/report.h"

#include <errno.h>
#include <net/if.h>

static const struct lesson_break breaks[] = {
	{ .name = "device", .what = "ask for a device that does not exist" },
	{ .name = "gid", .what = "ask for an empty slot of the GID table" },
	{ 0 },
};

// region show-gids
static void show_gids(struct ibv_context *context, uint32_t port, int size)
{
	char text[GID_TEXT_SIZE], netdev[IF_NAMESIZE];
	struct ibv_gid_entry e;

	for (int i = 0; i < size; i++) {
		if (ibv_query_gid_ex(context, port, (uint32_t)i, &e, 0))
			continue; /* 空的槽位：ENODATA */
		/* 每个 GID 都属于某个网络设备（netdev）上的某个 IP 地址。*/
		if (!if_indextoname(e.ndev_ifindex, netdev))
			netdev[0] = '\0';
		report_fact("  GID %-3u %-28s %-8s %s", e.gid_index,
			    gid_text(text, e.gid.raw),
			    gid_type_name(e.gid_type), netdev);
	}
}
// endregion show-gids

static int show_device(struct ibv_device *device)
{
	const char *name = ibv_get_device_name(device);
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int err;

	if (!context)
		return open_device_failed(device, errno);
	err = ibv_query_device(context, &attr);
	if (!err)
		report_fact("%s: %u port(s), max_qp %d, max_mr %d, max_cqe %d",
			    name, attr.phys_port_cnt, attr.max_qp, attr.max_mr,
			    attr.max_cqe);
	for (uint8_t i = 1; !err && i <= attr.phys_port_cnt; i++) {
		err = ibv_query_port(context, i, &port);
		if (err)
			break;
		report_fact("port %u: %s, active_mtu %u, link layer %s, "
			    "LID %u",
			    i, ibv_port_state_str(port.state),
			    mtu_bytes(port.active_mtu),
			    port.link_layer == IBV_LINK_LAYER_ETHERNET
				    ? "Ethernet"
				    : "InfiniBand",
			    port.lid);
		show_gids(context, i, port.gid_tbl_len);
	}
	if (err)
		err = call_failed(err, "querying %s", name);
	ibv_close_device(context);
	return err;
}

static int show_all_devices(void)
{
	int count = 0;
	int rc = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	if (!list)
		return device_list_failed(errno);
	report_step("list the RDMA devices: %d found", count);
	for (int i = 0; i < count && !rc; i++)
		rc = show_device(list[i]);
	ibv_free_device_list(list);
	return rc;
}

int main(int argc, char *argv[])
{
	struct rdma_resources res = { 0 };
	struct lesson lesson;
	char gid[GID_TEXT_SIZE];
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	if (lesson_breaks(&lesson, "device"))
		lesson.config.device_name = "mlx5_99";
	if (lesson_breaks(&lesson, "gid"))
		lesson.config.gid_index = 7;

	rc = show_all_devices();
	if (!rc) {
		report_step("choose and open one: open_device()");
		rc = open_device(&res, &lesson.config);
	}
	if (rc)
		return 1;
	report_fact("chosen: %s port %u, GID index %u = %s",
		    ibv_get_device_name(res.context->device), res.ib_port,
		    res.gid_index, gid_text(gid, res.gid.raw));

	report_step("close it");
	return close_device(&res) ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * network.c —— 网络与设备的错误：地址、路由、邻居、链路、防火墙、设备节点
 *
 * 带 undo 的会改动机器（拉下网卡、加防火墙、删设备）：只在用完即弃的虚拟机里跑，而且
 * 各自带着回去的路，好让下一个故障从同样的起点开始。
 */
#include "faults.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* 先把机器弄坏，再照常去做。*/
#define BROKEN(function, command, then)       \
	static void function(struct rig *rig) \
	{                                     \
		shell(command);               \
		then;                         \
	}

/* A 的 RTR，但对端的 GID 是 @address。*/
static void rtr_to(struct rig *rig, const char *address)
{
	struct step s = step_rtr(&rig->a);

	inet_pton(AF_INET6, address, s.attr.ah_attr.grh.dgid.raw);
	try_step(rig, s);
}

FAULT(no_neighbour, rtr_to(rig, "::ffff:10.99.0.77"))
FAULT(no_route, rtr_to(rig, "::ffff:192.0.2.1"))
FAULT(loopback, rtr_to(rig, "::ffff:127.0.0.1"))
FAULT(zero_address, rtr_to(rig, "::ffff:0.0.0.0"))

WRONG_STEP(no_ipv6_route, step_rtr, s.attr.ah_attr.grh.sgid_index = 0;
	   inet_pton(AF_INET6, "2001:db8::1", s.attr.ah_attr.grh.dgid.raw))

/* UD 的地址检查不在 RTR，而在 ibv_create_ah。*/
static void ah_no_neighbour(struct rig *rig)
{
	struct ibv_ah_attr ah = rig->a.plan.ah_attr;
	struct ibv_ah *made;

	inet_pton(AF_INET6, "::ffff:10.99.0.77", ah.grh.dgid.raw);
	errno = 0;
	made = ibv_create_ah(rig->a.pd, &ah);
	saw_error(rig, "ibv_create_ah", made ? 0 : errno);
	if (!made)
		rig->why = explain_create_ah(rig->a.pd, &ah, errno);
}

BROKEN(dead_gateway, "ip route add 192.0.2.0/24 via 10.99.0.88 dev veth0",
       rtr_to(rig, "::ffff:192.0.2.1"))
BROKEN(refused_route, "ip route add unreachable 192.0.2.0/24",
       rtr_to(rig, "::ffff:192.0.2.1"))

WRONG_STEP(netdev_down, step_rtr, shell("ip link set veth0 down"))
BROKEN(no_carrier, "ip link set veth1 down", rtr_to(rig, "::ffff:10.99.0.77"))

/* 地址没了，GID 就没了：早先选好的 index 成了空槽。*/
static void address_removed(struct rig *rig)
{
	struct step s = step_rtr(&rig->a);
	union ibv_gid gid;

	shell("ip addr del 10.99.0.1/24 dev veth0");
	for (int i = 0; i < 100; i++) {
		if (ibv_query_gid(rig->a.context, rig->a.port, rig->a.gid_index,
				  &gid) ||
		    !gid.global.interface_id)
			break;
		usleep(10000);
	}
	try_step(rig, s);
}

BROKEN(udp_blocked,
       "nft 'add table inet wall; add chain inet wall in { type filter hook "
       "input priority 0; }; add rule inet wall in udp dport 4791 drop'",
       send_message(rig, 64))
BROKEN(all_lost, "tc qdisc add dev veth0 root netem loss 100%",
       send_message(rig, 64))
/* 去的路通，回的路不通：对端收到了，ACK 丢了。*/
BROKEN(acks_lost, "tc qdisc add dev veth1 root netem loss 100%",
       send_message(rig, 64))

/* 先有一个来回，然后去的路断了：对端收到过包，只是不是这些。*/
static void lost_later(struct rig *rig)
{
	send_message(rig, 64);
	shell("tc qdisc add dev veth0 root netem loss 100%");
	send_message(rig, 64);
}

/* 邻居表里是错的 MAC（ARP flux、克隆的虚拟机、写死的条目）。*/
static void wrong_mac(struct rig *rig)
{
	shell("ip neigh replace 10.99.0.2 lladdr 02:99:00:00:00:99 dev veth0");
	connect_ends(rig);
	send_message(rig, 64);
}

/* 连接时 MTU 4200，后来有人把网卡改成了 1500：小消息通，大消息不通。*/
BROKEN(mtu_lowered, "ip link set veth0 mtu 1500", send_message(rig, 8192))
BROKEN(link_down_later, "ip link set veth0 down", send_message(rig, 64))

/* ---- 设备 ------------------------------------------------------------------ */

static void list_devices(struct rig *rig)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	int err = list ? 0 : errno;

	if (list && count)
		return;
	snprintf(rig->saw, sizeof(rig->saw), "ibv_get_device_list: %s",
		 list ? "0 devices" : strerrorname_np(err));
	rig->why = explain_device_list(err);
}

BROKEN(no_device, "rdma link del rxe0 && rdma link del rxe1", list_devices(rig))
BROKEN(no_device_node, "mv /dev/infiniband /dev/elsewhere", list_devices(rig))

static void not_permitted(struct rig *rig)
{
	struct ibv_device **list;
	struct ibv_context *context;

	shell("chmod 600 /dev/infiniband/uverbs*");
	list = ibv_get_device_list(NULL);
	if (!list || !list[0] || !become_nobody())
		return;
	errno = 0;
	context = ibv_open_device(list[0]);
	saw_error(rig, "ibv_open_device", context ? 0 : errno);
	if (!context)
		rig->why = explain_open_device(errno);
}

/* 网卡一拉下，经过它的路由和写死的邻居就都没了；labs/rxe.sh 当初怎么加，就怎么加回去。*/
#define ROUTE(dev, mine, peers)                                                \
	"ip route add 10.99.0." peers " dev veth" dev " src 10.99.0." mine ";" \
	" "
#define NEIGHBOUR(dev, peers)                                              \
	"ip neigh replace 10.99.0." peers " lladdr 02:99:00:00:00:0" peers \
	" dev veth" dev "; "
#define VETH_UP(dev, mine, peers)                                         \
	"ip link set veth" dev " up; " ROUTE(dev, mine, peers) NEIGHBOUR( \
		dev, peers) "ip neigh replace fe80::99:ff:fe00:" peers    \
			    " lladdr 02:99:00:00:00:0" peers " dev veth" dev

const struct fault network_faults[] = {
	ROW("rtr-no-neighbour", "nobody has the peer's address on this network",
	    "ibv_modify_qp: ETIMEDOUT", "no-neighbour", INIT, no_neighbour),
	ROW("rtr-no-route", "the peer is on another network, without a route",
	    "ibv_modify_qp: ETIMEDOUT", "no-route", INIT, no_route),
	ROW("rtr-loopback", "the peer's GID is 127.0.0.1",
	    "ibv_modify_qp: ETIMEDOUT", "peer-is-local-address", INIT,
	    loopback),
	ROW("rtr-zero-ipv4", "the peer's GID is ::ffff:0.0.0.0",
	    "ibv_modify_qp: ENODEV", "gid-zero-ipv4", INIT, zero_address),
	ROW("rtr-no-ipv6-route", "IPv6 GIDs of two networks without a route",
	    "ibv_modify_qp: ENETUNREACH", "no-ipv6-route", INIT, no_ipv6_route),
	ROW("ah-no-neighbour", "the same for a UD address handle",
	    "ibv_create_ah: ETIMEDOUT", "no-neighbour", OPEN, ah_no_neighbour),
	{ "rtr-dead-gateway", "the gateway does not answer",
	  "ibv_modify_qp: ETIMEDOUT", "gateway-silent", READY_INIT,
	  dead_gateway, "ip route del 192.0.2.0/24" },
	{ "rtr-unreachable-route", "a route of type unreachable",
	  "ibv_modify_qp: ETIMEDOUT", "route-refused", READY_INIT,
	  refused_route, "ip route del unreachable 192.0.2.0/24" },
	{ "rtr-netdev-down", "the network device is down",
	  "ibv_modify_qp: ENETUNREACH", "netdev-down", READY_INIT, netdev_down,
	  VETH_UP("0", "1", "2") },
	{ "rtr-no-carrier", "the cable is out, or the other end is down",
	  "ibv_modify_qp: ETIMEDOUT", "no-carrier", READY_INIT, no_carrier,
	  VETH_UP("1", "2", "1") },
	{ "rtr-address-removed", "the IP address of the GID was taken away",
	  "ibv_modify_qp: ENODATA", "gid-slot-empty", READY_INIT,
	  address_removed,
	  "ip addr add 10.99.0.1/24 dev veth0; " ROUTE("0", "1", "2")
		  NEIGHBOUR("0", "2") },
	{ "udp-4791-blocked", "a firewall drops UDP 4791", "wc.status 12 ",
	  "nothing-arrives", READY_CONNECTED, udp_blocked,
	  "nft delete table inet wall" },
	{ "all-packets-lost", "a link that loses everything", "wc.status 12 ",
	  "nothing-arrives", READY_CONNECTED, all_lost,
	  "tc qdisc del dev veth0 root" },
	{ "acks-lost", "only the way back is blocked", "wc.status 12 ",
	  "acks-lost", READY_CONNECTED, acks_lost,
	  "tc qdisc del dev veth1 root" },
	{ "link-loses-later", "a link that begins to lose everything",
	  "wc.status 12 ", "lost-on-the-way", READY_CONNECTED, lost_later,
	  "tc qdisc del dev veth0 root" },
	{ "wrong-mac", "a wrong MAC address in the neighbour table",
	  "wc.status 12 ", "wrong-mac", READY_RESET, wrong_mac,
	  NEIGHBOUR("0", "2") },
	{ "mtu-lowered", "the MTU of the link is lower than path_mtu",
	  "wc.status 12 |no completion", "path-mtu-above-active",
	  READY_CONNECTED, mtu_lowered, "ip link set veth0 mtu 4200" },
	{ "link-went-down", "the network device goes down under a connection",
	  "wc.status (2|5|12) ", "netdev-down", READY_CONNECTED,
	  link_down_later, VETH_UP("0", "1", "2") },
	{ "no-device", "there is no RDMA device",
	  "ibv_get_device_list: 0 devices", "no-rdma-device", READY_NOT,
	  no_device,
	  "rdma link add rxe0 type rxe netdev veth0; "
	  "rdma link add rxe1 type rxe netdev veth1" },
	{ "no-device-node", "a container without /dev/infiniband",
	  "ibv_get_device_list: 0 devices", "no-device-node", READY_NOT,
	  no_device_node, "mv /dev/elsewhere /dev/infiniband" },
	{ "device-not-permitted", "the device node is root's",
	  "ibv_open_device: (ENOENT|EACCES|EPERM)", "node-not-permitted",
	  READY_NOT, not_permitted, "chmod 666 /dev/infiniband/uverbs*" },
	{ 0 },
};

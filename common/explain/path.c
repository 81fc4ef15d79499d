// SPDX-License-Identifier: MIT
/*
 * path.c —— 地址检查：INIT→RTR（和 ibv_create_ah）里与 QP 无关的那一半
 *
 * RoCE v2 的包要有源和目的 MAC、IP。内核在 RTR 时就把它们定下来：
 *
 *	sgid_index ──GID 表──> 我的 IP 与网卡 ──路由──> 下一跳 ──ARP/ND──> MAC
 *	  空：ENODATA            down：ENETUNREACH         没人应：ETIMEDOUT
 *
 * 每一段失败都有自己的 errno，可是同一个 errno 往往对应几种情形。这里把当时那几个
 * 问题再问内核一遍（路由表、邻居表、网卡状态），答案能分出来的就分出来。
 */
#include "parts.h"

#include <stdio.h>
#include <string.h>

#define MOST_GIDS 256 /* sgid_index 只有 8 位 */

struct path {
	struct ibv_context *context;
	const struct ibv_ah_attr *ah;
	const union ibv_gid *to;
	char to_text[GID_TEXT_SIZE], my_text[GID_TEXT_SIZE];
	union ibv_gid mine;
	bool mine_known; /* the slot could be read, and is not empty */
	struct net_device device;
	struct net_route route;	 /* by the GID's own network device */
	struct net_route chosen; /* as the routing table would choose */
};

static bool is_roce(struct ibv_context *context, uint8_t port)
{
	struct ibv_port_attr attr;

	return !ibv_query_port(context, port, &attr) &&
	       attr.link_layer == IBV_LINK_LAYER_ETHERNET;
}

static struct path look_at(struct ibv_context *context,
			   const struct ibv_ah_attr *ah)
{
	struct path p = { .context = context, .ah = ah, .to = &ah->grh.dgid };

	p.mine_known = !ibv_query_gid(context, ah->port_num, ah->grh.sgid_index,
				      &p.mine) &&
		       !gid_is_zero(&p.mine);
	gid_text(p.to_text, p.to->raw);
	gid_text(p.my_text, p.mine.raw);
	return p;
}

static void look_at_network(struct path *p)
{
	p->device = net_device_of_gid(p->context, p->ah->port_num,
				      p->ah->grh.sgid_index);
	p->route = net_route_to(p->to, p->device.index);
	p->chosen = net_route_to(p->to, 0);
}

static void see_path(struct explanation *why, const struct path *p)
{
	if (p->mine_known)
		also_seen(why, "my-gid", "%u\t%s\t%s\t%s\t%s",
			  p->ah->grh.sgid_index, p->my_text,
			  p->device.name[0] ? p->device.name
					    : "no network device",
			  p->device.up ? "up" : "down",
			  p->device.carrier ? "carrier" : "no carrier");
	also_seen(why, "peer-gid", "%s", p->to_text);
}

/* GID 表里哪些槽位是满的：选错了的人最想知道这个。*/
static void see_filled_slots(struct explanation *why, struct path *p)
{
	struct ibv_gid_entry table[MOST_GIDS] = { 0 };
	char gid[GID_TEXT_SIZE];
	ssize_t n = ibv_query_gid_table(p->context, table, MOST_GIDS, 0);

	for (ssize_t i = 0; i < n && i < 8; i++)
		if (table[i].port_num == p->ah->port_num)
			also_seen(why, "gid-slot", "%u\t%s\t%s",
				  table[i].gid_index,
				  gid_text(gid, table[i].gid.raw),
				  gid_type_name(table[i].gid_type));
}

static struct explanation empty_slot(struct path *p)
{
	struct explanation why =
		because("gid-slot-empty", "%u", p->ah->grh.sgid_index);

	see_filled_slots(&why, p);
	return why;
}

/* ENETUNREACH 只有两种来历，而网卡是不是 down 一问便知。*/
static struct explanation unreachable(const struct path *p)
{
	if (p->device.index && !p->device.up)
		return because("netdev-down", "%s\tis down", p->device.name);
	return because("no-ipv6-route", "%s\t%s", p->to_text,
		       p->device.name[0] ? p->device.name
					 : "no network device");
}

static struct explanation no_device(const struct path *p)
{
	static const uint8_t none[4];

	if (gid_is_ipv4(p->to) && !memcmp(p->to->raw + 12, none, 4))
		return because("gid-zero-ipv4");
	if (!p->device.index)
		return because("gid-without-netdev", "%u",
			       p->ah->grh.sgid_index);
	return because("peer-on-loopback", "%s", p->to_text);
}

static bool is_loopback(const union ibv_gid *gid)
{
	static const union ibv_gid one = { .raw = { [15] = 1 } };

	if (gid_is_ipv4(gid))
		return gid->raw[12] == 127;
	return !memcmp(gid->raw, one.raw, sizeof(one.raw));
}

/* 没有应答的是谁：对端自己，还是去它那里的网关？*/
static struct explanation nobody_answers(const struct path *p)
{
	bool behind = p->route.kind == NET_ROUTE_GATEWAY;
	const union ibv_gid *asked = behind ? &p->route.gateway : p->to;
	enum net_neighbour_state state;
	char text[GID_TEXT_SIZE];
	struct explanation why;
	uint8_t mac[6];

	gid_text(text, asked->raw);
	state = net_neighbour(asked, p->device.index, mac);
	why = because(behind ? "gateway-silent" : "no-neighbour", "%s\t%s\t%s",
		      text, p->device.name,
		      gid_is_ipv4(asked) ? "ARP" : "neighbour discovery");
	also_seen(&why, "neighbour", "%s\t%s\t%s", text, p->device.name,
		  state == NET_NEIGHBOUR_KNOWN	  ? "known now"
		  : state == NET_NEIGHBOUR_FAILED ? "FAILED"
		  : state == NET_NEIGHBOUR_ASKING ? "INCOMPLETE"
		  : state == NET_NEIGHBOUR_NONE	  ? "no entry"
						  : "could not be asked");
	return why;
}

/*
 * 最费解的一种：IPv4 没有路由时并不是 ENETUNREACH。查找绑在 GID 的网卡上，Linux
 * 便假定“就在这条链路上”，于是发 ARP，等 1 秒，ETIMEDOUT。
 */
static struct explanation no_route(const struct path *p)
{
	if (p->chosen.kind == NET_ROUTE_REFUSED)
		return because("route-refused", "%s", p->to_text);
	return because("no-route", "%s\t%s", p->to_text, p->device.name);
}

static bool leads_elsewhere(const struct path *p)
{
	return p->chosen.kind == NET_ROUTE_NONE ||
	       p->chosen.kind == NET_ROUTE_REFUSED ||
	       ((p->chosen.kind == NET_ROUTE_LINK ||
		 p->chosen.kind == NET_ROUTE_GATEWAY) &&
		p->chosen.device != p->device.index &&
		p->route.kind != NET_ROUTE_GATEWAY);
}

static struct explanation timed_out(const struct path *p)
{
	if (p->device.index && !p->device.carrier)
		return because("no-carrier", "%s", p->device.name);
	if (p->chosen.kind == NET_ROUTE_LOCAL || is_loopback(p->to))
		return because("peer-is-local-address", "%s\t%s", p->to_text,
			       p->device.name);
	return leads_elsewhere(p) ? no_route(p) : nobody_answers(p);
}

static struct explanation families_differ(const struct path *p)
{
	bool mine_is_4 = gid_is_ipv4(&p->mine);
	struct explanation why;

	if (gid_is_zero(p->to))
		why = because("gid-zero");
	else
		why = because("gid-families-differ", "%u\t%s\t%s",
			      p->ah->grh.sgid_index,
			      mine_is_4 ? "IPv4-mapped" : "IPv6",
			      mine_is_4 ? "IPv6" : "IPv4-mapped");
	also_seen(&why, "my-slot", "%u\t%s", p->ah->grh.sgid_index, p->my_text);
	also_seen(&why, "peer-gid", "%s", p->to_text);
	return why;
}

struct explanation explain_path_values(struct ibv_context *context,
				       const struct ibv_ah_attr *ah)
{
	struct path p = look_at(context, ah);

	if (!is_roce(context, ah->port_num))
		return no_idea();
	if (!ah->is_global)
		return because("no-grh");
	if (p.mine_known && gid_is_ipv4(&p.mine) != gid_is_ipv4(p.to))
		return families_differ(&p);
	return no_idea();
}

struct explanation explain_path(struct ibv_context *context,
				const struct ibv_ah_attr *ah, int err)
{
	struct path p = look_at(context, ah);
	struct explanation why = no_idea();

	if (err == EINVAL)
		return explain_path_values(context, ah);
	if (err == ENODATA)
		return empty_slot(&p);
	look_at_network(&p);
	if (err == ENETUNREACH)
		why = unreachable(&p);
	else if (err == ETIMEDOUT)
		why = timed_out(&p);
	else if (err == ENODEV)
		why = no_device(&p);
	see_path(&why, &p);
	return why;
}

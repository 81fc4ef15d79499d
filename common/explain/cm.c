// SPDX-License-Identifier: MIT
/*
 * cm.c —— librdmacm：调用与事件
 *
 * 连接管理器的失败分两处说：调用自己返回 errno（参数不对、次序不对），或者过一会儿来一个
 * 事件（没有人听、路不通、对端拒绝）。事件的 status 是负的 errno，REJECTED 的却是 IBTA
 * 12.6.7.2 里的 reject 原因。
 */
#include "parts.h"

#include <arpa/inet.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_ROOM 56	 /* 92 字节的 REQ，IP 头占去 36 */
#define ACCEPT_ROOM  196 /* REP */

#define REJ_NO_LISTENER	 8
#define SIDR_NO_LISTENER 1 /* IBTA 12.11.2：UD 的 SIDR */
#define REJ_STALE	 10
#define REJ_CONSUMER	 28

const char *cm_event_name(unsigned int type)
{
	static const char *const names[] = {
		"ADDR_RESOLVED",  "ADDR_ERROR",	     "ROUTE_RESOLVED",
		"ROUTE_ERROR",	  "CONNECT_REQUEST", "CONNECT_RESPONSE",
		"CONNECT_ERROR",  "UNREACHABLE",     "REJECTED",
		"ESTABLISHED",	  "DISCONNECTED",    "DEVICE_REMOVAL",
		"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE",
		"TIMEWAIT_EXIT",
	};

	return type < sizeof(names) / sizeof(names[0]) ? names[type]
						       : "UNKNOWN";
}

/* 这台主机上，哪些地址是 RDMA 设备的："10.0.0.1 (rxe0), ..."。*/
static void my_addresses(char *out, size_t size)
{
	glob_t gids = { 0 };
	size_t used = 0;

	out[0] = '\0';
	glob("/sys/class/infiniband/*/ports/*/gids/*", 0, NULL, &gids);
	for (size_t i = 0; i < gids.gl_pathc; i++) {
		const char *device =
			gids.gl_pathv[i] + strlen("/sys/class/infiniband/");
		FILE *file = fopen(gids.gl_pathv[i], "re");
		char text[64] = "", ip[INET_ADDRSTRLEN];
		union ibv_gid gid;

		if (file && fscanf(file, "%63s", text) == 1 &&
		    inet_pton(AF_INET6, text, gid.raw) == 1 &&
		    gid_is_ipv4(&gid) &&
		    inet_ntop(AF_INET, gid.raw + 12, ip, sizeof(ip)) &&
		    !strstr(out, ip) && used + 80 < size)
			used += (size_t)snprintf(out + used, size - used,
						 "%s%s (%.*s)",
						 used ? ", " : "", ip,
						 (int)strcspn(device, "/"),
						 device);
		if (file)
			fclose(file);
	}
	globfree(&gids);
}

/* 与地址有关的 errno，每个调用都一样。*/
static struct explanation bad_address(int err)
{
	static const struct {
		int err;
		const char *id;
	} rows[] = {
		{ ENODEV, "cm-no-device" },
		{ ENETUNREACH, "cm-no-route" },
		{ EHOSTUNREACH, "cm-no-route" },
		{ ETIMEDOUT, "cm-no-arp" },
	};
	struct explanation why = no_idea();
	char mine[512];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].err == err)
			why = because(rows[i].id);
	if (why.id) {
		my_addresses(mine, sizeof(mine));
		also_seen(&why, "cm-addresses", "%s", *mine ? mine : "none");
	}
	return why;
}

static struct explanation rejected(int status)
{
	if (status == REJ_NO_LISTENER)
		return because("cm-rejected");
	if (status == REJ_STALE)
		return because("cm-stale");
	if (status == REJ_CONSUMER)
		return because("cm-refused-by-peer");
	return because("cm-refused", " (status %d)", status);
}

static struct explanation address_error(int status)
{
	struct explanation why = bad_address(-status);

	return why.id ? why : because("cm-addr-error");
}

struct explanation explain_cm_event(unsigned int type, int status)
{
	const char *name = cm_event_name(type);

	if (!strcmp(name, "REJECTED"))
		return rejected(status);
	if (!strcmp(name, "UNREACHABLE") && status == SIDR_NO_LISTENER)
		return because("cm-rejected");
	if (!strcmp(name, "UNREACHABLE"))
		return because("cm-unreachable");
	if (!strcmp(name, "ADDR_ERROR"))
		return address_error(status);
	if (!strcmp(name, "ROUTE_ERROR"))
		return because("cm-route-error");
	if (!strcmp(name, "CONNECT_ERROR"))
		return because("cm-connect-error");
	if (!strcmp(name, "DEVICE_REMOVAL"))
		return because("cm-device-gone");
	return no_idea();
}

static struct explanation too_long(const char *call, unsigned int len)
{
	bool connects = !strcmp(call, "connect");
	unsigned int room = connects ? CONNECT_ROOM : ACCEPT_ROOM;

	if ((!connects && strcmp(call, "accept")) || len <= room)
		return no_idea();
	return because("cm-private-data", "%u\t%s\t%u", len, call, room);
}

/* 次序不对：这个调用要它先到哪一步。*/
static struct explanation out_of_order(const char *call)
{
	static const struct {
		const char *call, *needs;
	} rows[] = {
		{ "resolve_addr", "an id that is new or only bound" },
		{ "bind_addr", "an id that is new" },
		{ "listen", "rdma_bind_addr" },
		{ "resolve_route", "the event ADDR_RESOLVED" },
		{ "create_qp", "the event ADDR_RESOLVED or CONNECT_REQUEST" },
		{ "connect", "the event ROUTE_RESOLVED and a QP" },
		{ "accept", "the id of a CONNECT_REQUEST" },
		{ "reject", "the id of a CONNECT_REQUEST" },
		{ "get_request", "an id that listens and has no channel" },
		{ "join_multicast", "an id that is bound or resolved" },
		{ "disconnect", "the event ESTABLISHED" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].call, call))
			return because("cm-order", "%s\t%s", call,
				       rows[i].needs);
	return no_idea();
}

struct explanation explain_cm_call(const char *call, int err, bool again,
				   unsigned int private_data_len,
				   bool foreign_pd)
{
	KEEP_ERRNO;
	struct explanation why = no_idea();

	if (err == EINVAL)
		why = too_long(call, private_data_len);
	if (why.id)
		return why;
	if (err == EINVAL && foreign_pd)
		return because("cm-foreign-pd");
	if (err == EINVAL && again)
		return because("cm-has-qp", "%s", call);
	if (err == EINVAL)
		return out_of_order(call);
	if (err == EBADF)
		return because("cm-channel-closed", "%s", call);
	if (err == ECONNREFUSED)
		return because("cm-refused");
	if (err == EADDRINUSE)
		return because("cm-port-in-use");
	if (err == EADDRNOTAVAIL)
		return because(!strcmp(call, "bind_addr") ? "cm-bind"
							  : "cm-not-mine");
	return bad_address(err);
}

struct explanation explain_cm_unacked(uint64_t unacked)
{
	return because("cm-event-not-acked", "%ju", (uintmax_t)unacked);
}

struct explanation explain_cm_without_qp(void)
{
	return because("cm-without-qp");
}

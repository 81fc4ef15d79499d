// SPDX-License-Identifier: MIT
/*
 * cm.c —— librdmacm：调用与事件
 *
 * 连接管理器的失败分两处说：调用自己返回 errno（参数不对、次序不对），或者过一会儿来一个
 * 事件（没有人听、路不通、对端拒绝）。事件的 status 是负的 errno，REJECTED 的却是 IBTA
 * 12.6.7.2 里的 reject 原因。
 */
#include "parts.h"

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

static struct explanation rejected(int status)
{
	if (status == REJ_NO_LISTENER)
		return because("cm-rejected", "%d", status);
	if (status == REJ_STALE)
		return because("cm-stale");
	if (status == REJ_CONSUMER)
		return because("cm-refused-by-peer");
	return because("cm-refused", " (status %d)", status);
}

struct explanation explain_cm_event(unsigned int type, int status)
{
	const char *name = cm_event_name(type);

	if (!strcmp(name, "REJECTED"))
		return rejected(status);
	if (!strcmp(name, "UNREACHABLE") && status == SIDR_NO_LISTENER)
		return because("cm-rejected", "%d", status);
	if (!strcmp(name, "UNREACHABLE"))
		return because("cm-unreachable", "%d", status);
	if (!strcmp(name, "ADDR_ERROR"))
		return because("cm-addr-error", "%d", status);
	if (!strcmp(name, "ROUTE_ERROR"))
		return because("cm-route-error", "%d", status);
	if (!strcmp(name, "CONNECT_ERROR"))
		return because("cm-connect-error", "%d", status);
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

struct explanation explain_cm_call(const char *call, int err, bool again,
				   unsigned int private_data_len,
				   bool foreign_pd)
{
	struct explanation why = no_idea();

	if (err == EINVAL)
		why = too_long(call, private_data_len);
	if (why.id)
		return why;
	if (err == EINVAL && foreign_pd)
		return because("cm-foreign-pd");
	if (err == EINVAL && again)
		return because("cm-state", "%s", call);
	if (err == ECONNREFUSED)
		return because("cm-refused");
	if (err == EADDRINUSE)
		return because("cm-port-in-use");
	if (err == ENODEV)
		return because("cm-no-device");
	if (err == ENETUNREACH || err == EHOSTUNREACH)
		return because("cm-no-route");
	if (err == EADDRNOTAVAIL)
		return because(!strcmp(call, "bind_addr") ? "cm-bind"
							  : "cm-not-mine");
	return no_idea();
}

struct explanation explain_cm_unacked(unsigned int unacked)
{
	return because("cm-event-not-acked", "%u", unacked);
}

struct explanation explain_cm_without_qp(void)
{
	return because("cm-without-qp");
}

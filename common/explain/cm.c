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

static const char let_it_listen[] =
	"start the server first, and compare the port of rdma_resolve_addr "
	"with that of its rdma_bind_addr (network byte order, once); it has to "
	"call rdma_listen";

static struct explanation rejected(int status)
{
	if (status == REJ_NO_LISTENER)
		return because("cm-rejected", let_it_listen,
			       "nobody listens on that port at the peer: it "
			       "rejected the connection with status 8");
	if (status == REJ_STALE)
		return because("cm-stale",
			       "wait for TIMEWAIT_EXIT, or use a new QP",
			       "the peer still holds an old connection of this "
			       "QP: it rejected the new one with status 10");
	if (status == REJ_CONSUMER)
		return because("cm-refused-by-peer",
			       "look at the server: it called rdma_reject, or "
			       "ended before rdma_accept",
			       "the peer's program rejected the connection "
			       "(status 28)");
	return because("cm-refused",
		       "look at the server's side, and at IBTA 12.6.7.2 for "
		       "the status",
		       "the peer rejected the connection with status %d",
		       status);
}

struct explanation explain_cm_event(unsigned int type, int status)
{
	const char *name = cm_event_name(type);

	if (!strcmp(name, "REJECTED"))
		return rejected(status);
	if (!strcmp(name, "UNREACHABLE") && status == SIDR_NO_LISTENER)
		return because("cm-rejected", let_it_listen,
			       "nobody listens on that port at the peer: the "
			       "request for its UD QP came back with status 1");
	if (!strcmp(name, "UNREACHABLE"))
		return because(
			"cm-unreachable",
			"does the server get the request (does it call "
			"rdma_get_cm_event and rdma_accept in time), and "
			"does UDP port 4791 pass both ways?",
			"the peer did not answer the connection request "
			"(status %d)",
			status);
	if (!strcmp(name, "ADDR_ERROR"))
		return because("cm-addr-error",
			       "ping the address; it has to be reached by a "
			       "network device that has an RDMA device",
			       "the address could not be resolved to an RDMA "
			       "device (status %d)",
			       status);
	if (!strcmp(name, "ROUTE_ERROR"))
		return because("cm-route-error",
			       "see `ip route get ADDRESS` and `ip neigh`",
			       "no route to the peer was found (status %d)",
			       status);
	if (!strcmp(name, "CONNECT_ERROR"))
		return because(
			"cm-connect-error",
			"look at the calls before: the QP could not be "
			"brought to RTR or RTS with what both sides gave",
			"the connection could not be set up (status %d)",
			status);
	return no_idea();
}

static struct explanation too_long(const char *call, unsigned int len)
{
	bool connects = !strcmp(call, "connect");
	unsigned int room = connects ? CONNECT_ROOM : ACCEPT_ROOM;

	if ((!connects && strcmp(call, "accept")) || len <= room)
		return no_idea();
	return because("cm-private-data",
		       "send less, or send it after the connection is there",
		       "private_data_len %u is too long: over RoCE rdma_%s "
		       "carries at most %u bytes",
		       len, call, room);
}

struct explanation explain_cm_call(const char *call, int err, bool again,
				   unsigned int private_data_len,
				   bool foreign_pd)
{
	struct explanation why = no_idea();

	if (err == EINVAL)
		why = too_long(call, private_data_len);
	if (why.cause[0])
		return why;
	if (err == EINVAL && foreign_pd)
		return because("cm-foreign-pd",
			       "allocate the PD from id->verbs, which is there "
			       "after ADDR_RESOLVED or CONNECT_REQUEST",
			       "the PD is of another device, or of another "
			       "ibv_open_device(), than the id");
	if (err == EINVAL && again)
		return because(
			"cm-state", "call it once for each id",
			"rdma_%s was called for this id before: it is no "
			"more in the state for it",
			call);
	if (err == ECONNREFUSED)
		return because("cm-refused",
			       "look at the event before, and at the server",
			       "the peer rejected the connection");
	if (err == EADDRINUSE)
		return because("cm-port-in-use",
			       "choose another port, or end who has it: rdma "
			       "resource show cm_id",
			       "somebody has that port already");
	return no_idea();
}

struct explanation explain_cm_unacked(unsigned int unacked)
{
	return because("cm-event-not-acked",
		       "call rdma_ack_cm_event for each event that "
		       "rdma_get_cm_event gave, before rdma_destroy_id",
		       "rdma_destroy_id waits until all events of the id are "
		       "acknowledged, and %u are not",
		       unacked);
}

struct explanation explain_cm_without_qp(void)
{
	return because("cm-without-qp",
		       "call rdma_create_qp for the id of the CONNECT_REQUEST "
		       "before rdma_accept",
		       "rdma_accept of an id that has no QP, and conn_param "
		       "names none");
}

// SPDX-License-Identifier: MIT
/*
 * cm.c —— librdmacm 的调用
 */
#include "hooks.h"

#include <netinet/in.h>

/*
 * 课程别处不用 librdmacm，不为这几个调用要求人装 librdmacm-dev：它的 ABI（.so.1）
 * 从未变过，指针原样转交，只有 struct rdma_conn_param（rule.h）要看里面。
 */
struct rdma_cm_id;
struct rdma_cm_event;

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
		      struct sockaddr *dst, int timeout_ms);
int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int rdma_listen(struct rdma_cm_id *id, int backlog);
int rdma_disconnect(struct rdma_cm_id *id);
int rdma_ack_cm_event(struct rdma_cm_event *event);
int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);

#define NEXT_CM(name) NEXT_OF(name, "librdmacm.so.1")

/* 只有 IPv4 与 IPv6：端口都在同一个位置。*/
EXPORTED int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
			       struct sockaddr *dst, int timeout_ms)
{
	NEXT_CM(rdma_resolve_addr);
	struct sockaddr_in6 to = { 0 };
	struct sockaddr_in *to4 = (void *)&to;
	size_t size = dst->sa_family == AF_INET6 ? sizeof(to) : sizeof(*to4);
	struct resolve_args args = { 0, timeout_ms };

	memcpy(&to, dst, size);
	args.port = to4->sin_port;
	rule_apply(CALL_RESOLVE_ADDR, &args);
	to4->sin_port = args.port;
	return real(id, src, (void *)&to, args.timeout);
}

EXPORTED int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	NEXT_CM(rdma_resolve_route);

	rule_apply(CALL_RESOLVE_ROUTE, NULL);
	return real(id, timeout_ms);
}

EXPORTED int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	NEXT_CM(rdma_listen);

	return rule_apply(CALL_LISTEN, NULL) == SKIP ? 0 : real(id, backlog);
}

EXPORTED int rdma_disconnect(struct rdma_cm_id *id)
{
	NEXT_CM(rdma_disconnect);

	return rule_apply(CALL_DISCONNECT, NULL) == SKIP ? 0 : real(id);
}

EXPORTED int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	NEXT_CM(rdma_ack_cm_event);

	return rule_apply(CALL_ACK_CM, NULL) == SKIP ? 0 : real(event);
}

/*
 * private_data 变长了，长出来的部分要有内存可读：那不是要犯的错。
 */
static enum deed change_connection(const struct rdma_conn_param *param,
				   struct rdma_conn_param *out,
				   unsigned char data[256])
{
	memset(out, 0, sizeof(*out));
	if (param)
		*out = *param;
	memset(data, 0, 256);
	if (out->private_data)
		memcpy(data, out->private_data, out->private_data_len);
	out->private_data = data;
	return rule_strike(out);
}

#define CONNECTION(call, CALL)                                         \
	EXPORTED int call(struct rdma_cm_id *id,                       \
			  struct rdma_conn_param *param)               \
	{                                                              \
		NEXT_CM(call);                                         \
		struct rdma_conn_param changed;                        \
		unsigned char data[256];                               \
		enum deed deed;                                        \
		int rc;                                                \
                                                                       \
		if (!rule_hits(CALL, IBV_QPS_RESET))                   \
			return real(id, param);                        \
		deed = change_connection(param, &changed, data);       \
		if (deed == SKIP)                                      \
			return 0;                                      \
		rc = real(id, &changed);                               \
		return deed == TWICE && !rc ? real(id, &changed) : rc; \
	}
CONNECTION(rdma_connect, CALL_CONNECT)
CONNECTION(rdma_accept, CALL_ACCEPT)

// SPDX-License-Identifier: MIT
/*
 * net.c —— 问内核的 IP 栈：这个 GID 背后是哪块网卡，怎么走到那个地址
 *
 * RoCE v2 的 GID 就是 IP 地址，所以 INIT→RTR 失败时，要看的不是 RDMA，而是路由表
 * 与邻居表。ib_core 解析地址时把查找绑在“GID 所属的网卡”上（oif），这里用
 * netlink 问同样的问题，得到的就是内核当时得到的回答；而不去读 /proc/net/route，
 * 因为那里只有 main 表，看不到策略路由。
 */
#include "parts.h"

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_SIZE    8192
#define NETLINK_WAIT_S 1 /* 内核总会回答；万一不答，也不能卡住被调试的程序 */

struct net_device net_device_of_gid(struct ibv_context *context, uint8_t port,
				    uint32_t index)
{
	struct net_device device = { 0 };
	struct ibv_gid_entry entry;
	struct ifreq request = { 0 };
	int sock;

	if (ibv_query_gid_ex(context, port, index, &entry, 0) ||
	    !entry.ndev_ifindex)
		return device;
	device.index = (int)entry.ndev_ifindex;
	if (!if_indextoname(entry.ndev_ifindex, device.name))
		return device;
	sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	memcpy(request.ifr_name, device.name, sizeof(request.ifr_name));
	if (!ioctl(sock, SIOCGIFFLAGS, &request)) {
		device.up = request.ifr_flags & IFF_UP;
		device.carrier = request.ifr_flags & IFF_RUNNING;
	}
	close(sock);
	return device;
}

int open_netlink(int protocol)
{
	const struct timeval limit = { .tv_sec = NETLINK_WAIT_S };
	int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return sock;
}

/* 一条问话：消息头、固定部分、属性，依次接在后面。*/
struct question {
	struct nlmsghdr head;
	char body[240] __attribute__((aligned(4)));
};

static struct question new_question(unsigned short type, const void *fixed,
				    size_t size)
{
	struct question question = {
		.head = { .nlmsg_len = NLMSG_HDRLEN,
			  .nlmsg_type = type,
			  .nlmsg_flags = NLM_F_REQUEST },
	};

	memcpy(question.body, fixed, size);
	question.head.nlmsg_len += (unsigned int)NLMSG_ALIGN(size);
	return question;
}

/*
 * 一问一答。返回答案的第一条消息，或 NULL；*err 是内核在 NLMSG_ERROR 里给的
 * 错误码（问不成，就是原来的值）。没有 sock 时（-1），这几个调用都只是失败。
 */
static struct nlmsghdr *ask(const struct question *question, void *answer,
			    int *err)
{
	struct nlmsghdr *head = answer;
	int sock = open_netlink(NETLINK_ROUTE);
	ssize_t n = -1;

	if (send(sock, question, question->head.nlmsg_len, 0) ==
	    (ssize_t)question->head.nlmsg_len)
		n = recv(sock, answer, ANSWER_SIZE, 0);
	close(sock);
	if (!NLMSG_OK(head, n))
		return NULL;
	if (head->nlmsg_type != NLMSG_ERROR)
		return head;
	*err = -((struct nlmsgerr *)NLMSG_DATA(head))->error;
	return NULL;
}

static void add(struct question *question, const void *data, size_t size)
{
	memcpy((char *)question + question->head.nlmsg_len, data, size);
	question->head.nlmsg_len += (unsigned int)NLMSG_ALIGN(size);
}

static void add_attribute(struct question *question, unsigned short type,
			  const void *data, size_t size)
{
	const struct rtattr attr = {
		.rta_type = type,
		.rta_len = (unsigned short)RTA_LENGTH(size),
	};

	add(question, &attr, sizeof(attr));
	add(question, data, size);
}

/* IPv4 的地址是 ::ffff:a.b.c.d 的末四个字节。*/
static void add_address(struct question *question, unsigned short type,
			const union ibv_gid *gid)
{
	if (gid_is_ipv4(gid))
		add_attribute(question, type, gid->raw + 12, 4);
	else
		add_attribute(question, type, gid->raw, 16);
}

static void read_gateway(union ibv_gid *gateway, const struct rtattr *attr)
{
	if (RTA_PAYLOAD(attr) == 4) {
		gateway->raw[10] = gateway->raw[11] = 0xff;
		memcpy(gateway->raw + 12, RTA_DATA(attr), 4);
	} else if (RTA_PAYLOAD(attr) == 16) {
		memcpy(gateway->raw, RTA_DATA(attr), 16);
	}
}

static struct net_route read_route(struct nlmsghdr *head)
{
	struct rtmsg *message = NLMSG_DATA(head);
	struct net_route route = { .kind = NET_ROUTE_LINK };
	int left = (int)RTM_PAYLOAD(head);

	for (struct rtattr *a = RTM_RTA(message); RTA_OK(a, left);
	     a = RTA_NEXT(a, left)) {
		if (a->rta_type == RTA_OIF)
			memcpy(&route.device, RTA_DATA(a), sizeof(int));
		if (a->rta_type == RTA_GATEWAY) {
			read_gateway(&route.gateway, a);
			route.kind = NET_ROUTE_GATEWAY;
		}
	}
	if (message->rtm_type == RTN_LOCAL)
		route.kind = NET_ROUTE_LOCAL;
	else if (message->rtm_type >= RTN_BLACKHOLE &&
		 message->rtm_type <= RTN_PROHIBIT)
		route.kind = NET_ROUTE_REFUSED;
	return route;
}

struct net_route net_route_to(const union ibv_gid *to, int device)
{
	const struct rtmsg fixed = {
		.rtm_family = gid_is_ipv4(to) ? AF_INET : AF_INET6,
		.rtm_dst_len = gid_is_ipv4(to) ? 32 : 128,
	};
	struct question question =
		new_question(RTM_GETROUTE, &fixed, sizeof(fixed));
	char answer[ANSWER_SIZE] __attribute__((aligned(8)));
	struct nlmsghdr *head;
	int err = 0;

	add_address(&question, RTA_DST, to);
	if (device)
		add_attribute(&question, RTA_OIF, &device, sizeof(device));
	head = ask(&question, answer, &err);
	if (head && head->nlmsg_type == RTM_NEWROUTE)
		return read_route(head);
	/* unreachable、prohibit 这类路由不是答案，而是作为错误码返回的。*/
	if (err == EHOSTUNREACH || err == EACCES || err == EINVAL)
		return (struct net_route){ .kind = NET_ROUTE_REFUSED };
	if (err == ENETUNREACH)
		return (struct net_route){ .kind = NET_ROUTE_NONE };
	return (struct net_route){ .kind = NET_ROUTE_UNKNOWN };
}

static enum net_neighbour_state read_neighbour(struct nlmsghdr *head,
					       uint8_t mac[6])
{
	struct ndmsg *message = NLMSG_DATA(head);
	int left = (int)(head->nlmsg_len - NLMSG_LENGTH(sizeof(*message)));
	struct rtattr *a = (struct rtattr *)((char *)message +
					     NLMSG_ALIGN(sizeof(*message)));

	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == NDA_LLADDR && RTA_PAYLOAD(a) == 6)
			memcpy(mac, RTA_DATA(a), 6);
	if (message->ndm_state & NUD_FAILED)
		return NET_NEIGHBOUR_FAILED;
	if (message->ndm_state & NUD_INCOMPLETE)
		return NET_NEIGHBOUR_ASKING;
	return NET_NEIGHBOUR_KNOWN;
}

enum net_neighbour_state net_neighbour(const union ibv_gid *to, int device,
				       uint8_t mac[6])
{
	const struct ndmsg fixed = {
		.ndm_family = gid_is_ipv4(to) ? AF_INET : AF_INET6,
		.ndm_ifindex = device,
	};
	struct question question =
		new_question(RTM_GETNEIGH, &fixed, sizeof(fixed));
	char answer[ANSWER_SIZE] __attribute__((aligned(8)));
	struct nlmsghdr *head;
	int err = 0;

	memset(mac, 0, 6);
	add_address(&question, NDA_DST, to);
	head = ask(&question, answer, &err);
	if (head && head->nlmsg_type == RTM_NEWNEIGH)
		return read_neighbour(head, mac);
	return err == ENOENT ? NET_NEIGHBOUR_NONE : NET_NEIGHBOUR_UNKNOWN;
}

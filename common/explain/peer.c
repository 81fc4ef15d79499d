// SPDX-License-Identifier: MIT
/*
 * peer.c —— 对端若就在本机的内核里，看一眼它的 QP
 *
 * status = 12 只说明“没有 ACK”。为什么没有，只有对端知道：QP 不存在、还在 INIT、
 * 已经 ERR，还是根本在等另一个 PSN。两台机器时只能去那边看；可是在实验室里（以及
 * 任何一机两进程的测试里）对端的 QP 就在同一个内核中，`rdma resource show qp` 看得
 * 见它。这里用 NETLINK_RDMA 问同样的问题，不另起进程。
 */
#include "parts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_SIZE  32768
#define GSI_QPN	     1
#define GIDS_TO_READ 32 /* 每个槽位一个 sysfs 文件；表有 1024 项，够用即止 */

/* 一个文件的第一行；读不到则为空串。*/
static void read_line(char *out, size_t size, const char *path)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(out, (int)size, file))
		out[0] = '\0';
	if (file)
		fclose(file);
	out[strcspn(out, "\n")] = '\0';
}

long long hw_counter(const char *device, const char *name)
{
	char path[256], text[32];

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/1/hw_counters/%s", device,
		 name);
	read_line(text, sizeof(text), path);
	return text[0] ? atoll(text) : -1;
}

/* rxe 在 sysfs 里有一个 parent 文件，写着它骑在哪块网卡上。*/
bool device_mac(const char *device, uint8_t mac[6])
{
	char path[256], text[64];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/parent",
		 device);
	read_line(text, sizeof(text), path);
	snprintf(path, sizeof(path), "/sys/class/net/%.64s/address", text);
	read_line(text, sizeof(text), path);
	return sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1],
		      &mac[2], &mac[3], &mac[4], &mac[5]) == 6;
}

static bool device_has_gid(const char *device, const union ibv_gid *gid)
{
	char path[256], text[64];
	union ibv_gid found;

	for (int i = 0; i < GIDS_TO_READ; i++) {
		snprintf(path, sizeof(path),
			 "/sys/class/infiniband/%.64s/ports/1/gids/%d", device,
			 i);
		read_line(text, sizeof(text), path);
		if (inet_pton(AF_INET6, text, found.raw) == 1 &&
		    !memcmp(found.raw, gid->raw, sizeof(found.raw)))
			return true;
	}
	return false;
}

void device_with_gid(char *name, size_t size, const union ibv_gid *gid)
{
	DIR *dir = opendir("/sys/class/infiniband");
	struct dirent *entry;

	name[0] = '\0';
	if (!dir)
		return;
	while (!name[0] && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' &&
		    device_has_gid(entry->d_name, gid))
			snprintf(name, size, "%.*s", (int)size - 1,
				 entry->d_name);
	closedir(dir);
}

/* 请内核把某类对象全部列出来（dump）。device < 0：不限设备。*/
static bool start_dump(int sock, int command, int device)
{
	struct {
		struct nlmsghdr head;
		struct rtattr attr;
		uint32_t device;
	} question = {
		.head = { .nlmsg_len = NLMSG_LENGTH(0),
			  .nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(
				  RDMA_NL_NLDEV, command),
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.attr = { .rta_len = RTA_LENGTH(sizeof(uint32_t)),
			  .rta_type = RDMA_NLDEV_ATTR_DEV_INDEX },
		.device = (uint32_t)device,
	};

	if (device >= 0)
		question.head.nlmsg_len = sizeof(question);
	return send(sock, &question, question.head.nlmsg_len, 0) ==
	       (ssize_t)question.head.nlmsg_len;
}

typedef bool (*see_message)(const struct rtattr *attrs, int size,
			    void *context);

/* 把 dump 的每一条消息交给 @see，直到它说够了。*/
static void each_message(int sock, see_message see, void *context)
{
	char *answer = malloc(ANSWER_SIZE);
	bool more = answer != NULL;

	while (more) {
		ssize_t n = recv(sock, answer, ANSWER_SIZE, 0);
		struct nlmsghdr *head = (struct nlmsghdr *)(void *)answer;
		size_t left = n < 0 ? 0 : (size_t)n;

		more = left > 0;
		for (; more && NLMSG_OK(head, left);
		     head = NLMSG_NEXT(head, left))
			more = head->nlmsg_type != NLMSG_DONE &&
			       head->nlmsg_type != NLMSG_ERROR &&
			       see(NLMSG_DATA(head),
				   (int)NLMSG_PAYLOAD(head, 0), context);
	}
	free(answer);
}

/* 一串属性中第一个类型为 @type 的；没有则 NULL。*/
static const struct rtattr *find(const struct rtattr *attrs, int size, int type)
{
	for (; RTA_OK(attrs, size); attrs = RTA_NEXT(attrs, size))
		if ((attrs->rta_type & NLA_TYPE_MASK) == type)
			return attrs;
	return NULL;
}

static uint32_t number(const struct rtattr *attrs, int size, int type)
{
	const struct rtattr *attr = find(attrs, size, type);
	uint32_t value = 0;

	if (attr && RTA_PAYLOAD(attr) <= sizeof(value))
		memcpy(&value, RTA_DATA(attr), RTA_PAYLOAD(attr));
	return value;
}

struct device_search {
	const char *name;
	int index;
};

static bool see_device(const struct rtattr *attrs, int size, void *context)
{
	struct device_search *search = context;
	const struct rtattr *name = find(attrs, size, RDMA_NLDEV_ATTR_DEV_NAME);

	if (!name || strncmp(RTA_DATA(name), search->name, RTA_PAYLOAD(name)))
		return true;
	search->index = (int)number(attrs, size, RDMA_NLDEV_ATTR_DEV_INDEX);
	return false;
}

/*
 * 列表里有内核自己的 QP 1（GSI），才敢相信它是全的：有的内核按 PID namespace 过滤，
 * 那时“没找到”不等于“没有”。
 */
static bool read_qp(struct local_peer *peer, const struct rtattr *fields,
		    int size)
{
	uint32_t qp_num = number(fields, size, RDMA_NLDEV_ATTR_RES_LQPN);

	if (qp_num == GSI_QPN)
		peer->sees_all = true;
	if (qp_num != peer->qp_num)
		return false;
	peer->found = true;
	peer->dest_qp_num = number(fields, size, RDMA_NLDEV_ATTR_RES_RQPN);
	peer->rq_psn = number(fields, size, RDMA_NLDEV_ATTR_RES_RQ_PSN);
	peer->sq_psn = number(fields, size, RDMA_NLDEV_ATTR_RES_SQ_PSN);
	peer->state = (enum ibv_qp_state)number(fields, size,
						RDMA_NLDEV_ATTR_RES_STATE);
	return true;
}

/* 一条消息里有一个设备的许多 QP，每个是一个嵌套的属性表。*/
static bool see_qps(const struct rtattr *attrs, int size, void *context)
{
	const struct rtattr *table = find(attrs, size, RDMA_NLDEV_ATTR_RES_QP);
	const struct rtattr *qp = table ? RTA_DATA(table) : NULL;
	int left = table ? (int)RTA_PAYLOAD(table) : 0;

	for (; RTA_OK(qp, left); qp = RTA_NEXT(qp, left))
		if (read_qp(context, RTA_DATA(qp), (int)RTA_PAYLOAD(qp)))
			return false;
	return true;
}

/*
 * 每次新开一个 socket：上一次 dump 可能没有读完。没有 fd 可用时（-1），这几个调用都只是
 * 失败。
 */
static void ask_for_all(int command, int device, see_message see, void *context)
{
	int sock = open_netlink(NETLINK_RDMA);

	if (start_dump(sock, command, device))
		each_message(sock, see, context);
	close(sock);
}

struct local_peer find_local_peer(const union ibv_gid *gid, uint32_t qp_num)
{
	struct local_peer peer = { .qp_num = qp_num };
	struct device_search search = { peer.device, -1 };

	device_with_gid(peer.device, sizeof(peer.device), gid);
	/* 在别的机器上：不必问 */
	if (!peer.device[0])
		return peer;
	ask_for_all(RDMA_NLDEV_CMD_GET, -1, see_device, &search);
	if (search.index >= 0)
		ask_for_all(RDMA_NLDEV_CMD_RES_QP_GET, search.index, see_qps,
			    &peer);
	return peer;
}

bool explain_kernel_qp(const char *device, struct ibv_qp_attr *attr,
		       uint32_t qp_num)
{
	struct local_peer qp = { .qp_num = qp_num };
	struct device_search search = { device, -1 };

	ask_for_all(RDMA_NLDEV_CMD_GET, -1, see_device, &search);
	if (search.index >= 0)
		ask_for_all(RDMA_NLDEV_CMD_RES_QP_GET, search.index, see_qps,
			    &qp);
	if (qp.found) {
		attr->qp_state = qp.state;
		attr->rq_psn = qp.rq_psn;
		attr->sq_psn = qp.sq_psn;
		attr->dest_qp_num = qp.dest_qp_num;
	}
	return qp.found;
}

// SPDX-License-Identifier: MIT
/*
 * device.c —— 把网络接口说成 NCCL 的“设备”
 *
 * NCCL 按 PCI 拓扑给每块 GPU 挑最近的网卡，所以它要知道的不是 IP，而是：这块网卡
 * 插在哪条 PCI 路径上、有多快、能不能直接读写 GPU 内存。IB 插件从 ibv_get_device_
 * list 得到这些；我们没有 HCA，就从 getifaddrs 和 /sys/class/net 得到。
 *
 * ABI 的函数都没有 context 参数，devices() 与 getProperties() 只带一个下标，所以
 * 设备表（与调用者的 logger）不得不是进程级的状态。它只在第一次 init 时写一次，此后只读，不需要锁。
 */
#include "net_lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN_SPEED 10000 /* Mbit/s, what NCCL assumes too */

struct device_table {
	pthread_mutex_t lock;
	bool found;
	int n;
	struct lab_device device[LAB_MAX_DEVICES];
};

/* init 给一次，此后只读。*/
nccl_logger_t lab_logger;

static struct device_table table = { .lock = PTHREAD_MUTEX_INITIALIZER };

/*
 * NCCL_SOCKET_IFNAME 的写法沿用 NCCL：“eth,ib”是前缀，“=eth0”是全名，开头的“^”表示
 * 排除。容器里常有 docker0、veth*，它们也 up、也有 IPv4，却通不到别的机器；选错
 * 接口的表现是“listen 成功、connect 超时”。
 */
static bool name_allowed(const char *rule, const char *name)
{
	bool exclude, exact, hit = false;

	if (!rule || !*rule)
		return true;
	exclude = *rule == '^';
	rule += exclude;
	exact = *rule == '=';
	rule += exact;
	while (*rule && !hit) {
		size_t len = strcspn(rule, ",");

		if (len)
			hit = !strncmp(name, rule, len) &&
			      (!exact || !name[len]);
		rule += len;
		rule += *rule == ',';
	}
	return hit != exclude;
}

/* 驱动不知道速率时（virtio、lo、网线没插）读出 -1，或者干脆读失败。*/
static int read_speed(const char *name)
{
	char path[64];
	int speed = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%d", &speed) != 1)
			speed = -1;
		fclose(f);
	}
	return speed > 0 ? speed : UNKNOWN_SPEED;
}

/*
 * device 是个符号链接，指向 PCI 设备目录。NCCL 拿它与 GPU 的路径比较，公共前缀越长
 * 越近，所以必须是解开符号链接之后的真实路径。lo 之类没有硬件，就没有这个链接。
 */
static void read_pci_path(const char *name, char pci[static PATH_MAX])
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
	if (!realpath(path, pci))
		pci[0] = '\0';
}

/* 同一接口的第二个地址（别名 eth0:1 也算）不另成设备：硬件只有一份。*/
static bool seen(const char *name)
{
	for (int i = 0; i < table.n; i++)
		if (!strcmp(table.device[i].name, name))
			return true;
	return false;
}

static void consider(const struct ifaddrs *ifa, const char *rule)
{
	struct lab_device *d = &table.device[table.n];
	const struct sockaddr_in *sin = (const void *)ifa->ifa_addr;
	size_t len = strcspn(ifa->ifa_name, ":");
	char name[sizeof(d->name)];

	if (!sin || sin->sin_family != AF_INET || !(ifa->ifa_flags & IFF_UP))
		return;
	if (len >= sizeof(name) || table.n == LAB_MAX_DEVICES)
		return;
	memcpy(name, ifa->ifa_name, len);
	name[len] = '\0';
	if (seen(name) || !name_allowed(rule, name))
		return;
	memcpy(d->name, name, sizeof(name));
	d->addr = sin->sin_addr;
	d->index = if_nametoindex(name);
	d->loopback = ifa->ifa_flags & IFF_LOOPBACK;
	d->speed = read_speed(name);
	read_pci_path(name, d->pci);
	table.n++;
}

/* lo 排在最后：device 0 是多数程序的默认值，它应当通得到别的机器。*/
static int compare(const void *a, const void *b)
{
	const struct lab_device *x = a, *y = b;

	if (x->loopback != y->loopback)
		return x->loopback ? 1 : -1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static int find_locked(void)
{
	const char *rule = getenv("NCCL_SOCKET_IFNAME");
	struct ifaddrs *list;

	if (getifaddrs(&list))
		return LAB_REFUSE(NCCL_SYSTEM_ERROR, "getifaddrs() failed: %s",
				  strerror(errno));
	for (const struct ifaddrs *i = list; i; i = i->ifa_next)
		consider(i, rule);
	freeifaddrs(list);
	qsort(table.device, (size_t)table.n, sizeof(table.device[0]), compare);
	table.found = true;
	if (!table.n)
		LAB_WARN("no device: no interface that is up has an IPv4 "
			 "address and fits NCCL_SOCKET_IFNAME=%s",
			 rule ? rule : "(not set)");
	return NCCL_SUCCESS;
}

int lab_devices_find(void)
{
	int rc = NCCL_SUCCESS;

	pthread_mutex_lock(&table.lock);
	if (!table.found)
		rc = find_locked();
	pthread_mutex_unlock(&table.lock);
	for (int i = 0; !rc && i < table.n; i++) {
		const struct lab_device *d = &table.device[i];
		char addr[INET_ADDRSTRLEN];

		inet_ntop(AF_INET, &d->addr, addr, sizeof(addr));
		LAB_INFO("device %d: %s, %s, %d Mbit/s, %s", i, d->name, addr,
			 d->speed, d->pci[0] ? d->pci : "not on a PCI bus");
	}
	return rc;
}

int lab_devices(int *n)
{
	if (!n)
		return LAB_REFUSE(NCCL_INVALID_ARGUMENT,
				  "devices() needs a place for the number");
	*n = table.n;
	return NCCL_SUCCESS;
}

struct lab_device *lab_device_get(int dev)
{
	if (dev >= 0 && dev < table.n)
		return &table.device[dev];
	LAB_WARN("there is no device %d: devices() gave %d (has init been "
		 "called?)",
		 dev, table.n);
	return NULL;
}

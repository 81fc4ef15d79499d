// SPDX-License-Identifier: MIT
/*
 * net_hostile_devices.c —— 网络接口由我们来编：哪些成为设备，放不下的怎么办
 */
#include "net_hostile.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#define CROWD 40

/* 别的 CASE 里只有 lo。从别名 eth0:1 起，都成不了设备。*/
static const struct interface {
	const char *name;
	int family; /* 0：没有地址 */
	unsigned int flags;
} interfaces[] = {
	{ "lo", AF_INET, IFF_UP | IFF_LOOPBACK },
	{ "eth0", AF_INET, IFF_UP },
	{ "eth1", AF_INET, IFF_UP },
	{ "ib0", AF_INET, IFF_UP },
	{ "eth0:1", AF_INET, IFF_UP },
	{ "down0", AF_INET, 0 },
	{ "six0", AF_INET6, IFF_UP },
	{ "bare0", 0, IFF_UP },
	{ "sixteen-letters0", AF_INET, IFF_UP },
};
#define INTERFACES (sizeof(interfaces) / sizeof(*interfaces))

static struct ifaddrs list[INTERFACES + CROWD];
static unsigned int shown;

static void show(const struct interface *what)
{
	static struct sockaddr_in addr[INTERFACES + CROWD];
	struct sockaddr_in *a = &addr[shown];

	a->sin_family = (sa_family_t)what->family;
	a->sin_addr.s_addr = htonl(INADDR_LOOPBACK + shown);
	if (shown)
		list[shown - 1].ifa_next = &list[shown];
	list[shown++] = (struct ifaddrs){
		.ifa_name = (char *)what->name,
		.ifa_flags = what->flags,
		.ifa_addr = what->family ? (struct sockaddr *)a : NULL,
	};
}

/* 这三个盖住 libc 的：插件看到的就是这些。*/
int getifaddrs(struct ifaddrs **out)
{
	if (!shown)
		show(&interfaces[0]);
	*out = list;
	return 0;
}

void freeifaddrs(struct ifaddrs *given)
{
	(void)given;
}

#define PCI_PATH "/sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0"

/* 只有 eth0 有硬件。没有的，与 glibc 一样，留下没能解开的那条路径。*/
char *realpath(const char *restrict path, char *restrict out)
{
	const bool found = !strcmp(path, "/sys/class/net/eth0/device");

	snprintf(out, PATH_MAX, "%s", found ? PCI_PATH : path);
	return found ? out : NULL;
}

struct device_case {
	const char *name; /* 冒号之后是 NCCL_SOCKET_IFNAME */
	int devices;
};

static const struct device_case rules[] = {
	{ "devices: ", 4 },	   { "devices: lo", 1 },
	{ "devices: =lo", 1 },	   { "devices: ^lo", 3 },
	{ "devices: l", 1 },	   { "devices: =l", 0 },
	{ "devices: xx", 0 },	   { "devices: ^xx", 4 },
	{ "devices: xx,lo", 1 },   { "devices: eth,", 2 },
	{ "devices: =eth0", 1 },   { "devices: ,=eth0", 0 },
	{ "devices: ^eth,lo", 1 }, { "devices: ^=eth0,lo", 2 },
};

static void run_devices(const void *arg)
{
	const struct device_case *c = arg;
	ncclNetProperties_v8_t props;
	int n = -1;

	for (size_t i = 0; i < INTERFACES; i++)
		show(&interfaces[i]);
	setenv("NCCL_SOCKET_IFNAME", c->name + strlen("devices: "), 1);
	start();
	CHECK(!net->devices(&n) && n == c->devices, "%d devices", n);
	if (n != 4)
		return;
	CHECK(!net->getProperties(3, &props) && !strcmp(props.name, "lo"),
	      "lo is not the last one");
	for (int i = 0; i < n; i++) {
		CHECK(!net->getProperties(i, &props), "device %d", i);
		CHECK(strcmp(props.name, "eth0")
			      ? !props.pciPath
			      : props.pciPath &&
					!strcmp(props.pciPath, PCI_PATH),
		      "%s is on PCI bus %s", props.name, props.pciPath);
	}
}

static void run_crowd(const void *arg)
{
	static char names[CROWD][8];
	int n = -1;

	(void)arg;
	for (int i = 0; i < CROWD; i++) {
		snprintf(names[i], sizeof(names[i]), "v%d", i);
		show(&(struct interface){ names[i], AF_INET, IFF_UP });
	}
	start();
	CHECK(!net->devices(&n) && n == 32, "%d devices", n);
}

void device_cases(void)
{
	EACH(rules, run_devices);
	in_child("devices: a crowd", run_crowd, NULL);
}

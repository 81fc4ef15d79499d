// SPDX-License-Identifier: MIT
/*
 * arguments.c —— 各程序命令行共用的检查
 *
 * 每个数都检查到底：atoi("70000abc") 会悄悄给出 70000，再截成 16 位就是 4464。
 */
#include "arguments.h"

#include "report.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool parse_number(const char *text, uint64_t low, uint64_t high,
		  uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9') /* strtoull 会接受 "-1" 和空白 */
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end && *value >= low && *value <= high;
}

/* getopt_long 说不出“下一步”，所以让它安静（opterr = 0），由我们来说。*/
const char *wrong_option(int c, char *argv[], const char *short_options,
			 char *value, size_t size)
{
	snprintf(value, size, "%s", argv[optind - 1]);
	if (c == ':')
		return "this option needs an argument";
	if (!optopt)
		return "unknown or ambiguous option";
	if (strchr(short_options, optopt))
		return "this option takes no argument";
	snprintf(value, size, "-%c", optopt);
	return "unknown option";
}

int wrong_usage(const char *next, const char *what, const char *value)
{
	report_error(next, "%s%s%s", what, value ? ": " : "",
		     value ? value : "");
	return EXIT_USAGE;
}

/*
 * 参数写反了（rdma_client rxe1 10.99.0.1）或漏了（rdma_server 18515）：没有设备会
 * 叫这样的名字，与其等到“no device is named”，不如现在就说出写反的是什么。
 */
const char *not_a_device(const char *name)
{
	unsigned char address[sizeof(struct in6_addr)];
	uint64_t n;

	if (inet_pton(AF_INET, name, address) == 1 ||
	    inet_pton(AF_INET6, name, address) == 1)
		return "an IP address stands where device_name belongs";
	if (parse_number(name, 0, UINT64_MAX, &n))
		return "a number stands where device_name belongs";
	return NULL;
}

const char *not_a_server(const char *name)
{
	char path[300];

	if (!*name || *name == '.' || strchr(name, '/'))
		return NULL; /* 不是 sysfs 目录里的一个名字 */
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", name);
	return access(path, F_OK) ? NULL
				  : "a device stands where the server belongs";
}

const struct number_option *find_number(const struct number_option *numbers,
					size_t n, int option)
{
	for (size_t i = 0; i < n; i++)
		if (numbers[i].option == option)
			return &numbers[i];
	return NULL;
}

bool take_number(void *options, const struct number_option *number,
		 const char *text)
{
	uint64_t n;

	if (!parse_number(text, number->low, number->high, &n))
		return false;
	memcpy((char *)options + number->offset, &n, sizeof(n));
	return true;
}

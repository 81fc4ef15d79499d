// SPDX-License-Identifier: MIT
/*
 * again.c —— 在同一个进程里一遍遍地打开与关闭：留下的东西会越积越多
 *
 *	again open [DEVICE [GID]]   第 1 阶段：open_device、close_device
 *	again objects [DEVICE]      第 1、2 阶段：init_、destroy_rdma_resources
 *
 * 打印每一遍是否成功，以及后 16 遍里文件描述符与堆内存各多了多少；objects 还打印
 * 这一端的缓冲是怎样分的。
 */
#include "base/report.h"
#include "rdma_common.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 36
#define WARM   20 /* 库自己的缓存此后不再增长 */

static int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void show_buffer(const struct rdma_resources *r)
{
	const char *mr = r->mr->addr, *end = mr + r->mr->length;
	const char *last = send_slot(r, r->send_slots - 1);

	printf("slots %u %u apart %d covered %d state %d\n", r->recv_slots,
	       r->send_slots, send_slot(r, 0) - recv_slot(r, 0) >= r->msg_size,
	       mr <= r->buf && last + r->msg_size <= end, r->qp->state);
}

static int once(const char *what, const struct rdma_config *config, int round)
{
	struct rdma_resources res = { 0 };
	int rc;

	if (!strcmp(what, "open")) {
		rc = open_device(&res, config);
		if (!rc)
			rc = close_device(&res);
		if (!rc && res.context)
			rc = -1;
		return rc;
	}
	rc = init_rdma_resources(&res, config);
	if (!rc && !round)
		show_buffer(&res);
	if (!rc)
		rc = destroy_rdma_resources(&res);
	return rc;
}

int main(int argc, char *argv[])
{
	struct rdma_config config = {
		.device_name = argc > 2 ? argv[2] : NULL,
		.gid_index = argc > 3 ? atoi(argv[3]) : GID_INDEX_AUTO,
		.msg_size = 5000,
		.recv_slots = 3,
		.send_slots = 2,
		.events = true,
	};
	int good = 0, files = 0;
	size_t heap = 0;

	for (int i = 0; i < ROUNDS; i++) {
		if (i == WARM) {
			files = open_files();
			heap = mallinfo2().uordblks;
		}
		good += !once(argc > 1 ? argv[1] : "open", &config, i);
	}
	printf("good %d of %d, files %+d, heap %+ld\n", good, ROUNDS,
	       open_files() - files, (long)(mallinfo2().uordblks - heap));
	return 0;
}

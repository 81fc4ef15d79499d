// SPDX-License-Identifier: MIT
/*
 * switch.c —— 环境变量 RDMA_EXPLAIN=0 让程序只报 errno，不解释
 *
 * 单独一个文件：labs/qptrace 的记录器也用解释器，但这个开关说的是被记录的程序，不是
 * 它，所以它链接自己的一份。
 */
#include "explain.h"

#include <stdlib.h>
#include <string.h>

bool explain_is_on(void)
{
	const char *value = getenv("RDMA_EXPLAIN");

	return !value || strcmp(value, "0") != 0;
}

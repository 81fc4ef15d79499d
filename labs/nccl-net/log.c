// SPDX-License-Identifier: MIT
/*
 * log.c —— 调用者的 logger
 *
 * init 给一次，此后只读。ABI 的函数都没有 context 参数，所以它不得不是进程级的状态。
 */
#include "net_lab.h"

nccl_logger_t lab_logger;

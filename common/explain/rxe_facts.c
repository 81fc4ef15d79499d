// SPDX-License-Identifier: MIT
/*
 * rxe_facts.c —— 各版本 Linux 的 rxe 有哪些不同
 *
 * 同一个错误，6.1 上报 2，6.12 上报 5；同一个调用，6.1 拒绝，6.12 装作成功。这些差别
 * 只写在这里：解释器、故障目录、测试和课文都来问它，不各记各的。问的是正在跑的内核，
 * 不是编译时的头文件：同一个程序，换一台机器就换一个 rxe。
 */
#include "rxe_facts.h"

#include <stdio.h>
#include <sys/utsname.h>

#define SINCE(x, y) .major = (x), .minor = (y)

/* 次序同 enum rxe_fact。*/
static const struct rxe_fact_row rows[] = {
	{ .name = "repeats-last-wqe",
	  SINCE(6, 5),
	  .before = { "IBV_EVENT_QP_LAST_WQE_REACHED never comes",
		      "IBV_EVENT_QP_LAST_WQE_REACHED 从不出现" },
	  .since = { "it comes whenever the receiving side of a QP in "
		     "ERR has work to do",
		     "QP 在 ERR 时，接收侧每次有工作要做都会产生一次" },
	  .seen_by = "labs/tests/ucx/long_ucx_hang.sh" },
	{ .name = "hides-local-errors",
	  SINCE(6, 12),
	  .before = { "a send with a bad lkey, address, length or path MTU "
		      "ends with its own status: 2, 4, 6",
		      "send 的 lkey、地址、长度或 path MTU 不对，各有自己的 "
		      "status：2、4、6" },
	  .since = { "it ends with 5, as if it had only been flushed",
		     "一律是 5，好像只是被冲刷" },
	  .seen_by = "labs/faults/run lkey-wrong" },
	{ .name = "takes-masks-without-state",
	  SINCE(6, 12),
	  .before = { "ibv_modify_qp without IBV_QP_STATE in the mask: EINVAL",
		      "ibv_modify_qp 的 mask 里没有 IBV_QP_STATE：EINVAL" },
	  .since = { "0, and the QP stays where it is",
		     "返回 0，QP 的状态不变" },
	  .seen_by = "labs/faults/run state-bit-forgotten" },
	{ .name = "looks-at-ud-access-first",
	  SINCE(6, 12),
	  .before = { "ibv_modify_qp of a UD QP with ACCESS_FLAGS: EINVAL from "
		      "the table",
		      "UD 的 QP 带 ACCESS_FLAGS 调 ibv_modify_qp：查表之后 "
		      "EINVAL" },
	  .since = { "EINVAL before the table is consulted",
		     "不等查表就 EINVAL" },
	  .seen_by = "labs/tests/explain/qp_sweep.c" },
	{ .name = "maps-read-only-files",
	  SINCE(6, 12),
	  .before = { "ibv_reg_mr of a file mapped MAP_SHARED and read-only: "
		      "EFAULT",
		      "ibv_reg_mr 注册一个 "
		      "MAP_SHARED、只读的文件映射：EFAULT" },
	  .since = { "it can be registered, without LOCAL_WRITE",
		     "可以注册，只要不带 LOCAL_WRITE" },
	  .seen_by = "labs/faults/run mr-shared-read-only" },
	/* d03fb5c6599e；实测的是 6.12 与 7.2。*/
	{ .name = "registers-on-demand",
	  SINCE(6, 15),
	  .before = { "ibv_reg_mr with IBV_ACCESS_ON_DEMAND: EINVAL or "
		      "EOPNOTSUPP",
		      "ibv_reg_mr 带 IBV_ACCESS_ON_DEMAND：EINVAL 或 "
		      "EOPNOTSUPP" },
	  .since = { "it can be registered", "可以注册" },
	  .seen_by = "labs/faults/run mr-on-demand" },
	/* 13f2a53c2a71 与 f1327abd6abe；实测的是 6.12 与 7.2。*/
	{ .name = "listens-in-namespaces",
	  SINCE(7, 1),
	  .before = { "a device that is not in the first network namespace "
		      "sends and receives nothing",
		      "不在第一个 network namespace 里的设备，发不出也收不到" },
	  .since = { "it works: each namespace has its own UDP socket",
		     "可以用：每个 namespace 有自己的 UDP socket" },
	  .seen_by = "labs/tests/lab/test_rxe.sh" },
};

_Static_assert(sizeof(rows) / sizeof(rows[0]) == RXE_FACTS, "a row for each");

const struct rxe_fact_row *rxe_fact_row(enum rxe_fact fact)
{
	return &rows[fact];
}

bool rxe_fact_in(enum rxe_fact fact, const char *release)
{
	const struct rxe_fact_row *row = &rows[fact];
	unsigned int major = 0, minor = 0;

	if (sscanf(release, "%u.%u", &major, &minor) != 2)
		return false;
	return major > row->major ||
	       (major == row->major && minor >= row->minor);
}

bool rxe_fact_holds(enum rxe_fact fact)
{
	struct utsname kernel;

	return !uname(&kernel) && rxe_fact_in(fact, kernel.release);
}

// SPDX-License-Identifier: MIT
/*
 * qp_table.c —— 状态机的表：合法的路、每条路必须带与可以带的位，以及它们的名字
 *
 * ibv_modify_qp() 失败时内核只给一个 EINVAL。要看懂它，第一步就是把“从哪个状态
 * 到哪个状态、带了哪些位”用人能读的名字打印出来，而不是 mask=0x121181。
 */
#include "qp_table.h"

#include <stdio.h>

const char *qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT",
		[IBV_QPS_RTR] = "RTR",	   [IBV_QPS_RTS] = "RTS",
		[IBV_QPS_SQD] = "SQD",	   [IBV_QPS_SQE] = "SQE",
		[IBV_QPS_ERR] = "ERR",
	};

	if ((unsigned int)state >= sizeof(names) / sizeof(names[0]))
		return "UNKNOWN";
	return names[state];
}

static const struct {
	int bit;
	const char *name;
} mask_bits[] = {
	{ IBV_QP_STATE, "STATE" },
	{ IBV_QP_CUR_STATE, "CUR_STATE" },
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY" },
	{ IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS" },
	{ IBV_QP_PKEY_INDEX, "PKEY_INDEX" },
	{ IBV_QP_PORT, "PORT" },
	{ IBV_QP_QKEY, "QKEY" },
	{ IBV_QP_AV, "AV" },
	{ IBV_QP_PATH_MTU, "PATH_MTU" },
	{ IBV_QP_TIMEOUT, "TIMEOUT" },
	{ IBV_QP_RETRY_CNT, "RETRY_CNT" },
	{ IBV_QP_RNR_RETRY, "RNR_RETRY" },
	{ IBV_QP_RQ_PSN, "RQ_PSN" },
	{ IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC" },
	{ IBV_QP_ALT_PATH, "ALT_PATH" },
	{ IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER" },
	{ IBV_QP_SQ_PSN, "SQ_PSN" },
	{ IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC" },
	{ IBV_QP_PATH_MIG_STATE, "PATH_MIG_STATE" },
	{ IBV_QP_CAP, "CAP" },
	{ IBV_QP_DEST_QPN, "DEST_QPN" },
	{ IBV_QP_RATE_LIMIT, "RATE_LIMIT" },
};

static size_t append(char *out, size_t size, size_t used, const char *text)
{
	int n;

	if (used >= size)
		return used;
	n = snprintf(out + used, size - used, "%s%s", used ? "|" : "", text);
	return used + (size_t)n;
}

const char *qp_mask_text(char *out, size_t size, int attr_mask)
{
	size_t used = 0;
	char hex[16];

	out[0] = '\0';
	for (size_t i = 0; i < sizeof(mask_bits) / sizeof(mask_bits[0]); i++) {
		if (!(attr_mask & mask_bits[i].bit))
			continue;
		used = append(out, size, used, mask_bits[i].name);
		attr_mask &= ~mask_bits[i].bit;
	}
	if (attr_mask) {
		snprintf(hex, sizeof(hex), "0x%x", (unsigned int)attr_mask);
		append(out, size, used, hex);
	}
	return out;
}

/* 很多行的“可选”部分相同，先起个名字。*/
#define OPT_PATH                                                        \
	(IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | \
	 IBV_QP_PATH_MIG_STATE)
#define OPT_INIT (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)

// region rc-table
/*
 * 不在表里的路一律 EINVAL：没有 RESET→ERR，没有 INIT→RTS，没有任何一条通往
 * SQE 的路（那个状态只能由出错进入）。
 */
static const struct qp_transition rc_table[] = {
	{ IBV_QPS_RESET, IBV_QPS_RESET, 0, 0 },
	{ IBV_QPS_RESET, IBV_QPS_INIT, OPT_INIT, 0 },
	{ IBV_QPS_INIT, IBV_QPS_RESET, 0, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, OPT_INIT },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_INIT, IBV_QPS_ERR, 0, 0 },
	{ IBV_QPS_RTR, IBV_QPS_RESET, 0, 0 },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  OPT_PATH | IBV_QP_CUR_STATE },
	{ IBV_QPS_RTR, IBV_QPS_ERR, 0, 0 },
	{ IBV_QPS_RTS, IBV_QPS_RESET, 0, 0 },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, OPT_PATH | IBV_QP_CUR_STATE },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_RTS, IBV_QPS_ERR, 0, 0 },
	{ IBV_QPS_SQD, IBV_QPS_RESET, 0, 0 },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, OPT_PATH | IBV_QP_CUR_STATE },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0,
	  OPT_PATH | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT |
		  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		  IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
		  IBV_QP_PKEY_INDEX },
	{ IBV_QPS_SQD, IBV_QPS_ERR, 0, 0 },
	{ IBV_QPS_SQE, IBV_QPS_RESET, 0, 0 },
	{ IBV_QPS_SQE, IBV_QPS_RTS, 0, 0 },
	{ IBV_QPS_SQE, IBV_QPS_ERR, 0, 0 },
	{ IBV_QPS_ERR, IBV_QPS_RESET, 0, 0 },
	{ IBV_QPS_ERR, IBV_QPS_ERR, 0, 0 },
};
// endregion rc-table

const struct qp_transition *qp_rc_transition(enum ibv_qp_state from,
					     enum ibv_qp_state to)
{
	for (size_t i = 0; i < sizeof(rc_table) / sizeof(rc_table[0]); i++)
		if (rc_table[i].from == from && rc_table[i].to == to)
			return &rc_table[i];
	return NULL;
}

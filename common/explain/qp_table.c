// SPDX-License-Identifier: MIT
/*
 * qp_table.c —— 查状态机的表：名字、合法的路、最短的路、内核会不会放行
 *
 * ibv_modify_qp() 失败时内核只给一个 EINVAL。要看懂它，第一步就是把“从哪个状态
 * 到哪个状态、带了哪些位”用人能读的名字打印出来，而不是 mask=0x121181。
 */
#include "qp_table.h"

#include <stdio.h>
#include <strings.h>

#define UNKNOWN "UNKNOWN"

const char *qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[QP_STATES] = {
		[IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT",
		[IBV_QPS_RTR] = "RTR",	   [IBV_QPS_RTS] = "RTS",
		[IBV_QPS_SQD] = "SQD",	   [IBV_QPS_SQE] = "SQE",
		[IBV_QPS_ERR] = "ERR",
	};

	return (unsigned int)state < QP_STATES ? names[state] : UNKNOWN;
}

const char *qp_type_name(enum ibv_qp_type type)
{
	/* verbs.h 叫它们 XRC_SEND/RECV，规范与内核叫 INI/TGT：同一样东西。*/
	static const char *const names[] = {
		[IBV_QPT_RC] = "RC",
		[IBV_QPT_UC] = "UC",
		[IBV_QPT_UD] = "UD",
		[IBV_QPT_RAW_PACKET] = "RAW_PACKET",
		[IBV_QPT_XRC_SEND] = "XRC_INI",
		[IBV_QPT_XRC_RECV] = "XRC_TGT",
	};

	if (type == IBV_QPT_DRIVER)
		return "DRIVER";
	return type < sizeof(names) / sizeof(names[0]) && names[type]
		       ? names[type]
		       : UNKNOWN;
}

const char *qp_attr_source_name(enum qp_attr_source source, bool chinese)
{
	static const char *const names[][2] = {
		{ "mine", "本端" },
		{ "from the peer", "对端" },
		{ "chosen", "程序" },
	};

	return names[source][chinese];
}

bool qp_state_by_name(const char *name, enum ibv_qp_state *state)
{
	for (int s = 0; s < QP_STATES; s++) {
		if (strcasecmp(name, qp_state_name(s)))
			continue;
		*state = s;
		return true;
	}
	return false;
}

bool qp_type_by_name(const char *name, enum ibv_qp_type *type)
{
	size_t count;
	const enum ibv_qp_type *types = qp_types(&count);

	for (size_t i = 0; i < count; i++) {
		if (strcasecmp(name, qp_type_name(types[i])))
			continue;
		*type = types[i];
		return true;
	}
	return false;
}

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
	size_t used = 0, count;
	const struct qp_attr_info *info = qp_attr_infos(&count);
	char hex[16];

	out[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		if (!(attr_mask & info[i].bit))
			continue;
		used = append(out, size, used, info[i].name);
		attr_mask &= ~info[i].bit;
	}
	if (attr_mask) {
		snprintf(hex, sizeof(hex), "0x%x", (unsigned int)attr_mask);
		append(out, size, used, hex);
	}
	return out;
}

const struct qp_transition *qp_transition(enum ibv_qp_type type,
					  enum ibv_qp_state from,
					  enum ibv_qp_state to)
{
	const struct qp_transition *row;

	for (size_t i = 0; i < QP_TRANSITIONS; i++) {
		row = qp_transition_at(type, i);
		if (row && row->from == from && row->to == to)
			return row;
	}
	return NULL;
}

// region mask-allowed
/*
 * 内核的全部判断就是这几行。两处出人意料：带了 CUR_STATE，内核就不看自己的记
 * 录，而以你给的为准，即使不真实：QP 真的会从 RESET 到 RTS，只是没有 AV，发不
 * 出包。另外，除了去 RTR，uverbs 见到 AV 就自动加上 PORT，因为换了路径，port 也
 * 可能要换。所以 UC 的 SQD→SQD 虽然在表里允许 AV，从用户态却用不了：那一行不允
 * 许 PORT。
 */
bool qp_mask_allowed(enum ibv_qp_type type, enum ibv_qp_state now,
		     enum ibv_qp_state claimed, enum ibv_qp_state to,
		     int attr_mask)
{
	bool claims = attr_mask & IBV_QP_CUR_STATE;
	bool moves = attr_mask & IBV_QP_STATE;
	enum ibv_qp_state from = claims ? claimed : now;
	const struct qp_transition *row =
		qp_transition(type, from, moves ? to : from);

	if (claims && (from < IBV_QPS_RTR || from > IBV_QPS_SQE))
		return false;
	if ((attr_mask & IBV_QP_AV) && !(moves && to == IBV_QPS_RTR))
		attr_mask |= IBV_QP_PORT;
	if (!row || (row->required & ~attr_mask))
		return false;
	return !(attr_mask & ~(row->required | row->optional | IBV_QP_STATE));
}
// endregion mask-allowed

/* 从 to 往回走 came_from，数出步数，再正着写出来。*/
static size_t write_path(const int came_from[QP_STATES], enum ibv_qp_state from,
			 enum ibv_qp_state to,
			 enum ibv_qp_state path[QP_PATH_MAX])
{
	size_t length = 2, i;
	int at;

	for (at = came_from[to]; at != (int)from; at = came_from[at])
		length++;
	path[0] = from;
	for (i = length, at = to; i > 1; at = came_from[at])
		path[--i] = at;
	return length;
}

/*
 * 广度优先：七个状态、每条路一步。起点不算“到过”，所以 RTR→RTR 这种不合法的
 * 原地踏步也能得到答案：绕一圈回来（RTR→RESET→INIT→RTR）。不是状态的，没有路。
 */
size_t qp_path(enum ibv_qp_type type, enum ibv_qp_state from,
	       enum ibv_qp_state to, enum ibv_qp_state path[QP_PATH_MAX])
{
	int came_from[QP_STATES] = { -1, -1, -1, -1, -1, -1, -1 };
	enum ibv_qp_state queue[QP_PATH_MAX] = { from };
	size_t tail = 1;

	for (size_t head = 0; head < tail; head++) {
		for (int next = 0; next < QP_STATES; next++) {
			if (came_from[next] >= 0 ||
			    !qp_transition(type, queue[head], next))
				continue;
			came_from[next] = queue[head];
			if (next == (int)to)
				return write_path(came_from, from, to, path);
			/* 起点又被碰到（自环）：它已经展开过，不再排队。*/
			if (next != (int)from)
				queue[tail++] = next;
		}
	}
	return 0;
}

/* 每一步做了什么，与类型无关；去 RESET 与 ERR 的见下。*/
static const struct {
	enum ibv_qp_state from, to;
	const char *text[2];
} step_texts[] = {
	{ IBV_QPS_RESET,
	  IBV_QPS_INIT,
	  { "port and rights are set; receives may be posted from here on",
	    "设定 port 和权限；从这里起可以 post receive" } },
	{ IBV_QPS_INIT,
	  IBV_QPS_INIT,
	  { "port, P_Key and rights may be set again",
	    "可以重新设定 port、P_Key 和权限" } },
	{ IBV_QPS_INIT,
	  IBV_QPS_RTR,
	  { "the QP receives from here on; with an AV the kernel first "
	    "resolves "
	    "the path to the peer (up to 1 s)",
	    "从这里起能收；有 AV 时，内核先解析到对端的路径（最多 1 秒）" } },
	{ IBV_QPS_RTR,
	  IBV_QPS_RTS,
	  { "the QP sends from here on, too", "从这里起也能发" } },
	{ IBV_QPS_RTS,
	  IBV_QPS_RTS,
	  { "a few attributes may be changed while it runs",
	    "不停止收发，修改少数几个属性" } },
	{ IBV_QPS_RTS,
	  IBV_QPS_SQD,
	  { "sends under way are finished, new ones wait; drained when "
	    "sq_draining is 0",
	    "已开始发送的发完，新的等待；sq_draining 为 0 就排空了" } },
	{ IBV_QPS_SQD,
	  IBV_QPS_RTS,
	  { "sending goes on; EINVAL while still draining",
	    "继续发送；还没排空时是 EINVAL" } },
	{ IBV_QPS_SQD,
	  IBV_QPS_SQD,
	  { "path and limits may be changed while nothing is being sent",
	    "停止发送期间，修改路径和各种上限" } },
	{ IBV_QPS_SQE,
	  IBV_QPS_RTS,
	  { "sending goes on after a failed send", "send 失败之后继续发送" } },
};

const char *const *qp_transition_text(enum ibv_qp_state from,
				      enum ibv_qp_state to)
{
	static const char *const same[] = { "nothing changes", "什么也不变" };
	static const char *const flush[] = {
		"what is posted completes with IBV_WC_WR_FLUSH_ERR",
		"已经 post 的都以 IBV_WC_WR_FLUSH_ERR 完成",
	};
	static const char *const out[] = {
		"the only way out of ERR; the queues are emptied, without "
		"completions",
		"离开 ERR 的唯一出路；清空队列，没有 completion",
	};
	static const char *const empty[] = {
		"the queues are emptied, without completions",
		"清空队列，没有 completion",
	};

	if (!qp_transition(IBV_QPT_RC, from, to))
		return NULL;
	for (size_t i = 0; i < sizeof(step_texts) / sizeof(step_texts[0]); i++)
		if (step_texts[i].from == from && step_texts[i].to == to)
			return step_texts[i].text;
	if (from == to)
		return same;
	if (to == IBV_QPS_ERR)
		return flush;
	return from == IBV_QPS_ERR ? out : empty;
}

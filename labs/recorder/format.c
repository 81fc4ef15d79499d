// SPDX-License-Identifier: MIT
/*
 * format.c —— 把数字变成名字：opcode、status、flags、QP 的属性
 *
 * 记录文件是给人和 jq 看的：写 "RETRY_EXC_ERR" 而不是 12，写 1024 而不是
 * IBV_MTU_1024 的枚举值 3（两者混淆正是常见的错误之一，所以枚举外的值原样写出）。
 */
#include "format.h"

#include "base/verbs_names.h"
#include "explain/explain.h"
#include "explain/qp_table.h"
#include "recorder.h"

#include <stdio.h>
#include <string.h>

struct flag_name {
	unsigned int bit;
	const char *name;
};

// clang-format off
#define FLAG(kind, name) { IBV_##kind##_##name, #name }
// clang-format on
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *name_in(const char *const *names, size_t count,
			   unsigned int value)
{
	return value < count && names[value] ? names[value] : "UNKNOWN";
}

static const char *flags_in(const struct flag_name *names, size_t count,
			    unsigned int flags, char *out, size_t size)
{
	size_t used = 0, len;

	for (size_t i = 0; i < count; i++) {
		len = strlen(names[i].name);
		if (!(flags & names[i].bit) || used + len + 2 > size)
			continue;
		if (used)
			out[used++] = '|';
		memcpy(out + used, names[i].name, len);
		used += len;
	}
	if (!used)
		out[used++] = '0';
	out[used] = '\0';
	return out;
}

const char *async_event_name(unsigned int type)
{
#define EVENT(type) [IBV_EVENT_##type] = #type
	static const char *const names[] = {
		EVENT(CQ_ERR),
		EVENT(QP_FATAL),
		EVENT(QP_REQ_ERR),
		EVENT(QP_ACCESS_ERR),
		EVENT(COMM_EST),
		EVENT(SQ_DRAINED),
		EVENT(PATH_MIG),
		EVENT(PATH_MIG_ERR),
		EVENT(DEVICE_FATAL),
		EVENT(PORT_ACTIVE),
		EVENT(PORT_ERR),
		EVENT(LID_CHANGE),
		EVENT(PKEY_CHANGE),
		EVENT(SM_CHANGE),
		EVENT(SRQ_ERR),
		EVENT(SRQ_LIMIT_REACHED),
		EVENT(QP_LAST_WQE_REACHED),
		EVENT(CLIENT_REREGISTER),
		EVENT(GID_CHANGE),
		EVENT(WQ_FATAL),
	};

	return name_in(names, COUNT(names), type);
}

const char *access_text(char *out, size_t size, unsigned int flags)
{
	static const struct flag_name names[] = {
		FLAG(ACCESS, LOCAL_WRITE),	FLAG(ACCESS, REMOTE_WRITE),
		FLAG(ACCESS, REMOTE_READ),	FLAG(ACCESS, REMOTE_ATOMIC),
		FLAG(ACCESS, MW_BIND),		FLAG(ACCESS, ZERO_BASED),
		FLAG(ACCESS, ON_DEMAND),	FLAG(ACCESS, HUGETLB),
		FLAG(ACCESS, RELAXED_ORDERING),
	};

	return flags_in(names, COUNT(names), flags, out, size);
}

/* ---- QP 的属性 ------------------------------------------------------------ */

/* 属性里只有 sgid_index；对端看到的是槽里的 GID，所以把它也查出来。*/
static void format_av(struct line *line, struct ibv_qp *qp,
		      const struct ibv_ah_attr *ah)
{
	char text[GID_TEXT_SIZE];
	union ibv_gid mine;

	LINE_NUMBER(line, "is_global", ah->is_global);
	LINE_NUMBER(line, "ah_port", ah->port_num);
	if (!ah->is_global) {
		LINE_NUMBER(line, "dlid", ah->dlid);
		return;
	}
	LINE_NUMBER(line, "sgid_index", ah->grh.sgid_index);
	if (!ibv_query_gid(qp->context, ah->port_num, ah->grh.sgid_index,
			   &mine))
		LINE_TEXT(line, "sgid", gid_text(text, mine.raw));
	LINE_TEXT(line, "dgid", gid_text(text, ah->grh.dgid.raw));
	LINE_NUMBER(line, "hop_limit", ah->grh.hop_limit);
	LINE_NUMBER(line, "traffic_class", ah->grh.traffic_class);
	LINE_NUMBER(line, "sl", ah->sl);
}

#define NUMBER(bit, key, member)                              \
	do {                                                  \
		if (mask & (bit))                             \
			LINE_NUMBER(line, key, attr->member); \
	} while (0)

static void format_ladder(struct line *line, const struct ibv_qp_attr *attr,
			  int mask)
{
	NUMBER(IBV_QP_DEST_QPN, "dest_qpn", dest_qp_num);
	NUMBER(IBV_QP_RQ_PSN, "rq_psn", rq_psn);
	NUMBER(IBV_QP_SQ_PSN, "sq_psn", sq_psn);
	/* 枚举之外的值原样写出：“1024 不是 enum ibv_mtu”正是要让人看见的。*/
	if ((mask & IBV_QP_PATH_MTU) && mtu_bytes(attr->path_mtu))
		LINE_NUMBER(line, "path_mtu", mtu_bytes(attr->path_mtu));
	else
		NUMBER(IBV_QP_PATH_MTU, "path_mtu_bad", path_mtu);
	NUMBER(IBV_QP_TIMEOUT, "timeout", timeout);
	NUMBER(IBV_QP_RETRY_CNT, "retry_cnt", retry_cnt);
	NUMBER(IBV_QP_RNR_RETRY, "rnr_retry", rnr_retry);
	NUMBER(IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", min_rnr_timer);
	NUMBER(IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", max_rd_atomic);
	NUMBER(IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic",
	       max_dest_rd_atomic);
}

void format_qp_attr(struct line *line, struct ibv_qp *qp,
		    const struct ibv_qp_attr *attr, int mask)
{
	char text[160];

	if (mask & IBV_QP_CUR_STATE)
		LINE_TEXT(line, "cur_state", qp_state_name(attr->cur_qp_state));
	NUMBER(IBV_QP_PKEY_INDEX, "pkey_index", pkey_index);
	NUMBER(IBV_QP_PORT, "port", port_num);
	if (mask & IBV_QP_ACCESS_FLAGS)
		LINE_TEXT(line, "access",
			  access_text(text, sizeof(text),
				      attr->qp_access_flags));
	if (mask & IBV_QP_QKEY)
		LINE_HEX(line, "qkey", attr->qkey);
	if (mask & IBV_QP_AV)
		format_av(line, qp, &attr->ah_attr);
	format_ladder(line, attr, mask);
	NUMBER(IBV_QP_RATE_LIMIT, "rate_limit", rate_limit);
}

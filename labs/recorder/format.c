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

static const char *wc_opcode_name(unsigned int opcode)
{
#define WC(opcode) [IBV_WC_##opcode] = #opcode
	static const char *const names[] = {
		WC(SEND),      WC(RDMA_WRITE),
		WC(RDMA_READ), WC(COMP_SWAP),
		WC(FETCH_ADD), WC(BIND_MW),
		WC(LOCAL_INV), WC(TSO),
		WC(RECV),      WC(RECV_RDMA_WITH_IMM),
		WC(TM_ADD),    WC(TM_DEL),
		WC(TM_SYNC),   WC(TM_RECV),
		WC(TM_NO_TAG),
	};

	return name_in(names, COUNT(names), opcode);
}

const char *wc_status_name(unsigned int status)
{
	const struct explain_status *row = explain_status_row(status);

	return row ? row->name : "UNKNOWN";
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

static const char *send_flags_text(char *out, size_t size, unsigned int flags)
{
	static const struct flag_name names[] = {
		FLAG(SEND, FENCE),  FLAG(SEND, SIGNALED), FLAG(SEND, SOLICITED),
		FLAG(SEND, INLINE), FLAG(SEND, IP_CSUM),
	};

	return flags_in(names, COUNT(names), flags, out, size);
}

static const char *wc_flags_text(char *out, size_t size, unsigned int flags)
{
	static const struct flag_name names[] = {
		FLAG(WC, GRH),
		FLAG(WC, WITH_IMM),
		FLAG(WC, IP_CSUM_OK),
		FLAG(WC, WITH_INV),
	};

	return flags_in(names, COUNT(names), flags, out, size);
}

/* ---- 记录 ----------------------------------------------------------------- */

static void format_owner(struct line *line, const struct object *owner)
{
	if (!owner)
		return;
	if (owner->kind == OBJECT_SRQ) {
		LINE_NUMBER(line, "srq", owner->id);
		return;
	}
	LINE_NUMBER(line, "qp", owner->id);
	LINE_NUMBER(line, "qpn", owner->qpn);
}

static void format_sges(struct line *line, const struct record *record)
{
	LINE_NUMBER(line, "len", record->length);
	LINE_NUMBER(line, "sges", record->num_sge);
	if (record->num_sge && !(record->flags & IBV_SEND_INLINE))
		LINE_HEX(line, "lkey", record->qpn);
}

static void format_post_send(struct line *line, const struct record *record)
{
	char flags[64];

	LINE_WORD(line, "op", wr_opcode_name(record->opcode));
	LINE_WORD(line, "flags",
		  send_flags_text(flags, sizeof(flags), record->flags));
	if (record->remote) {
		LINE_NUMBER(line, "remote_qpn", record->remote);
		LINE_HEX(line, "remote_qkey", record->rkey);
	} else if (record->rkey || record->remote_addr) {
		LINE_HEX(line, "rkey", record->rkey);
	}
}

static void format_completion(struct line *line, const struct record *record,
			      const struct object *owner)
{
	char flags[64];

	LINE_NUMBER(line, "cq", object_id(OBJECT_CQ, record->object));
	if (!owner && record->qpn != RECORD_NO_QPN)
		LINE_NUMBER(line, "qpn", record->qpn);
	LINE_WORD(line, "status", wc_status_name(record->status));
	/* 出错时驱动不填 opcode 与长度，读到的是上一次剩下的。*/
	if (record->status != IBV_WC_SUCCESS) {
		LINE_NUMBER(line, "vendor_err", record->rkey);
		return;
	}
	LINE_WORD(line, "op", wc_opcode_name(record->opcode));
	if (record->length != RECORD_NO_LENGTH)
		LINE_NUMBER(line, "len", record->length);
	if (record->flags)
		LINE_WORD(line, "flags",
			  wc_flags_text(flags, sizeof(flags), record->flags));
}

/* 没有单独成对的调用：从哪一个 WR 起被拒绝，共几个。*/
static void format_refusal(struct line *line, const struct record *record,
			   const struct object *owner)
{
	LINE_WORD(line, "call",
		  record->opcode		       ? "ibv_post_send"
		  : owner && owner->kind == OBJECT_SRQ ? "ibv_post_srq_recv"
						       : "ibv_post_recv");
	LINE_NUMBER(line, "count", record->length);
	LINE_NUMBER(line, "err", record->status);
}

/* 一个程序往往一遍遍做同样的事，每一遍都一样的部分。*/
static void format_same(struct line *line, const struct record *record,
			const struct object *owner)
{
	static const char *const names[] = {
		[RECORD_POST_SEND] = "post_send",
		[RECORD_POST_RECV] = "post_recv",
		[RECORD_POST_SRQ_RECV] = "post_srq_recv",
		[RECORD_POST_FAILED] = "post_failed",
		[RECORD_COMPLETION] = "completion",
		[RECORD_ARM] = "arm",
		[RECORD_CQ_EVENT] = "cq_event",
		[RECORD_ACK] = "ack",
	};

	line_start(line, names[record->kind]);
	switch ((enum record_kind)record->kind) {
	case RECORD_ARM:
	case RECORD_CQ_EVENT:
		line_add_object(line, OBJECT_CQ, record->object);
		if (record->flags)
			LINE_NUMBER(line, "solicited", 1);
		return;
	case RECORD_ACK:
		line_add_object(line, OBJECT_CQ, record->object);
		LINE_NUMBER(line, "count", record->length);
		return;
	case RECORD_POST_FAILED:
		format_owner(line, owner);
		format_refusal(line, record, owner);
		return;
	case RECORD_COMPLETION:
		format_owner(line, owner);
		format_completion(line, record, owner);
		return;
	case RECORD_POST_SEND:
	case RECORD_POST_RECV:
	case RECORD_POST_SRQ_RECV:
		format_owner(line, owner);
		format_sges(line, record);
		if (record->kind == RECORD_POST_SEND)
			format_post_send(line, record);
		return;
	}
}

/* 每一遍不同的：编号、wr_id、地址。*/
static void format_own(struct line *line, const struct record *record,
		       uint64_t number)
{
	if (record->kind == RECORD_ARM || record->kind == RECORD_CQ_EVENT ||
	    record->kind == RECORD_ACK)
		return;
	LINE_HEX(line, "wr_id", record->wr_id);
	if (record->kind == RECORD_COMPLETION) {
		if (number)
			LINE_NUMBER(line, "of", number);
		return;
	}
	LINE_NUMBER(line, "n", number);
	if (record->num_sge)
		LINE_HEX(line, "addr", record->addr);
	if (record->remote_addr)
		LINE_HEX(line, "remote_addr", record->remote_addr);
}

/*
 * 拼一行的大半功夫花在每一遍都一样的部分上：记住近来的文本，一样就整段抄。名字
 * （"qp":1）来自 id 而不是指针，所以还要看主人是不是同一个：地址可以被新的对象重用。
 */
#define MEMOS 64u

struct memo {
	struct record like;
	uint32_t owner;
	size_t len;
	char text[320];
};

#define SAME_FROM  offsetof(struct record, object)
#define SAME_BYTES (sizeof(struct record) - SAME_FROM)

static struct memo *memo_of(const struct record *record)
{
	static struct memo memos[MEMOS];
	uint64_t hash = (uint64_t)(uintptr_t)record->object +
			(record->kind | (uint64_t)record->opcode << 8);

	return &memos[hash * 0x9e3779b97f4a7c15u / (UINT64_MAX / MEMOS + 1)];
}

static bool is_like(const struct memo *memo, const struct record *record,
		    uint32_t owner)
{
	return memo->len && memo->owner == owner &&
	       !memcmp((const char *)&memo->like + SAME_FROM,
		       (const char *)record + SAME_FROM, SAME_BYTES);
}

void format_record(struct line *line, const struct record *record,
		   uint64_t time)
{
	struct memo *memo = memo_of(record);
	struct object *owner = NULL;
	uint64_t number = objects_book(record, time, &owner);
	uint32_t id = owner ? owner->id : 0;

	if (is_like(memo, record, id)) {
		memcpy(line->text, memo->text, memo->len);
		line->used = memo->len;
	} else {
		format_same(line, record, owner);
		memo->len = line->used < sizeof(memo->text) ? line->used : 0;
		memo->like = *record;
		memo->owner = id;
		memcpy(memo->text, line->text, memo->len);
	}
	format_own(line, record, number);
}

void format_why(struct line *line, const struct explanation *why)
{
	if (!why->cause[0])
		return;
	if (why->id)
		LINE_WORD(line, "id", why->id);
	LINE_TEXT(line, "cause", why->cause);
	LINE_TEXT(line, "next", why->next);
	if (why->seen[0])
		LINE_TEXT(line, "seen", why->seen);
}

static size_t put_lines(char *out, size_t size, const char *label,
			const char *prefix, const char *text)
{
	size_t used = 0, len;
	int n;

	for (; *text && used < size; text += *text == '\n') {
		len = strcspn(text, "\n");
		n = snprintf(out + used, size - used, "%s  %s: %.*s\n", prefix,
			     label, (int)len, text);
		if (n < 0 || (size_t)n >= size - used)
			break;
		used += (size_t)n;
		text += len;
	}
	return used;
}

size_t next_as_text(char *out, size_t size, const char *prefix,
		    const struct explanation *why)
{
	size_t used = put_lines(out, size, "next", prefix, why->next);

	return used +
	       put_lines(out + used, size - used, "seen", prefix, why->seen);
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
		LINE_WORD(line, "sgid", gid_text(text, mine.raw));
	LINE_WORD(line, "dgid", gid_text(text, ah->grh.dgid.raw));
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
		LINE_WORD(line, "cur_state", qp_state_name(attr->cur_qp_state));
	NUMBER(IBV_QP_PKEY_INDEX, "pkey_index", pkey_index);
	NUMBER(IBV_QP_PORT, "port", port_num);
	if (mask & IBV_QP_ACCESS_FLAGS)
		LINE_WORD(line, "access",
			  access_text(text, sizeof(text),
				      attr->qp_access_flags));
	if (mask & IBV_QP_QKEY)
		LINE_HEX(line, "qkey", attr->qkey);
	if (mask & IBV_QP_AV)
		format_av(line, qp, &attr->ah_attr);
	format_ladder(line, attr, mask);
	NUMBER(IBV_QP_RATE_LIMIT, "rate_limit", rate_limit);
}

// SPDX-License-Identifier: MIT
/*
 * lines.c —— 一个事件，作为一行 JSON：数字变成名字
 *
 * 这些行是给人和 jq 看的：写 "RETRY_EXC_ERR" 而不是 12，写出 QP 的号码而不是它的地址。
 */
#include "parts.h"

#include "base/verbs_names.h"
#include "book.h"
#include "explain/explain.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct flag_name {
	unsigned int bit;
	const char *name;
};

// clang-format off
#define FLAG(kind, name) { IBV_##kind##_##name, #name }
// clang-format on

static void set_flags(json_t *line, const struct flag_name *names, size_t count,
		      unsigned int flags)
{
	char out[160];
	size_t used = 0, len;

	for (size_t i = 0; i < count; i++) {
		len = strlen(names[i].name);
		if (!(flags & names[i].bit) || used + len + 2 > sizeof(out))
			continue;
		if (used)
			out[used++] = '|';
		memcpy(out + used, names[i].name, len);
		used += len;
	}
	if (!used)
		out[used++] = '0';
	out[used] = '\0';
	json_object_set_new(line, "flags", json_string(out));
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

	return opcode < COUNT(names) && names[opcode] ? names[opcode]
						      : "UNKNOWN";
}

const char *record_name(const struct record *record)
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

	return names[record->kind];
}

const char *record_status(const struct record *record)
{
	return wc_status_name(record->status);
}

const char *record_op(const struct record *record)
{
	if (record->kind == RECORD_POST_SEND)
		return wr_opcode_name(record->opcode);
	/* 出错时驱动不填 opcode，读到的是上一次剩下的。*/
	if (record->kind == RECORD_COMPLETION &&
	    record->status == IBV_WC_SUCCESS)
		return wc_opcode_name(record->opcode);
	return "";
}

/* ---- 成员 ------------------------------------------------------------------ */

static void set_number(json_t *line, const char *key, uint64_t value)
{
	json_object_set_new(line, key, json_integer((json_int_t)value));
}

static void set_hex(json_t *line, const char *key, uint64_t value)
{
	json_object_set_new(line, key,
			    json_sprintf("0x%llx", (unsigned long long)value));
}

/* 程序给的字节可以是任何东西，JSON 里的只能是 UTF-8。*/
static json_t *text_of(const char *text, size_t size)
{
	json_t *value = json_stringn(text, size);
	char plain[4096];

	if (value)
		return value;
	if (size > sizeof(plain))
		size = sizeof(plain);
	for (size_t i = 0; i < size; i++)
		plain[i] = (signed char)text[i] > 0 ? text[i] : '?';
	return json_stringn(plain, size);
}

static void set_member(json_t *line, const struct member *m)
{
	uint64_t value = member_number(m);
	char key[256];

	snprintf(key, sizeof(key), "%.*s", (int)m->key_size, m->key);
	if (m->type == MEMBER_TEXT)
		json_object_set_new(line, key, text_of(m->value, m->size));
	else if (m->type == MEMBER_HEX ||
		 (m->type == MEMBER_NUMBER && value > INT64_MAX))
		set_hex(line, key, value);
	else
		set_number(line, key, value);
}

/* ---- 记录 ------------------------------------------------------------------ */

static void set_owner(json_t *line, const struct event *event)
{
	if (!event->owner)
		return;
	if (event->owner_kind == OBJECT_SRQ) {
		set_number(line, "srq", event->owner);
		return;
	}
	set_number(line, "qp", event->owner);
	set_number(line, "qpn", event->qpn);
}

static void set_post(json_t *line, const struct record *record)
{
	static const struct flag_name flags[] = {
		FLAG(SEND, FENCE),  FLAG(SEND, SIGNALED), FLAG(SEND, SOLICITED),
		FLAG(SEND, INLINE), FLAG(SEND, IP_CSUM),
	};

	set_number(line, "len", record->length);
	set_number(line, "sges", record->num_sge);
	if (record->num_sge && !(record->flags & IBV_SEND_INLINE))
		set_hex(line, "lkey", record->qpn);
	if (record->kind != RECORD_POST_SEND)
		return;
	json_object_set_new(line, "op", json_string(record_op(record)));
	set_flags(line, flags, COUNT(flags), record->flags);
	if (record->remote) {
		set_number(line, "remote_qpn", record->remote);
		set_hex(line, "remote_qkey", record->rkey);
	} else if (record->rkey || record->remote_addr) {
		set_hex(line, "rkey", record->rkey);
	}
}

static void set_completion(json_t *line, const struct record *record,
			   const struct event *event)
{
	static const struct flag_name flags[] = {
		FLAG(WC, GRH),
		FLAG(WC, WITH_IMM),
		FLAG(WC, IP_CSUM_OK),
		FLAG(WC, WITH_INV),
	};

	set_number(line, "cq", event->cq);
	if (!event->owner && record->qpn != RECORD_NO_QPN)
		set_number(line, "qpn", record->qpn);
	json_object_set_new(line, "status", json_string(record_status(record)));
	if (record->status != IBV_WC_SUCCESS) {
		set_number(line, "vendor_err", record->rkey);
		return;
	}
	json_object_set_new(line, "op", json_string(record_op(record)));
	if (record->length != RECORD_NO_LENGTH)
		set_number(line, "len", record->length);
	if (record->flags)
		set_flags(line, flags, COUNT(flags), record->flags);
}

/* 没有单独成对的调用：从哪一个 WR 起被拒绝，共几个。*/
static void set_refusal(json_t *line, const struct record *record,
			const struct event *event)
{
	const char *call = record->opcode ? "ibv_post_send" : "ibv_post_recv";

	if (!record->opcode && event->owner_kind == OBJECT_SRQ && event->owner)
		call = "ibv_post_srq_recv";
	json_object_set_new(line, "call", json_string(call));
	set_number(line, "count", record->length);
	set_number(line, "err", record->status);
}

static void set_own(json_t *line, const struct record *record,
		    const struct event *event)
{
	set_hex(line, "wr_id", record->wr_id);
	if (record->kind == RECORD_COMPLETION) {
		if (event->of)
			set_number(line, "of", event->of);
		return;
	}
	set_number(line, "n", event->n);
	if (record->num_sge)
		set_hex(line, "addr", record->addr);
	if (record->remote_addr)
		set_hex(line, "remote_addr", record->remote_addr);
}

static void set_record(json_t *line, const struct event *event,
		       const struct recorded *item)
{
	struct record record;

	memcpy(&record, item->at, sizeof(record));
	json_object_set_new(line, "ev", json_string(event->ev));
	switch (event->class) {
	case CLASS_POST_SEND:
	case CLASS_POST_RECV:
		set_owner(line, event);
		set_post(line, &record);
		break;
	case CLASS_COMPLETION:
		set_owner(line, event);
		set_completion(line, &record, event);
		break;
	case CLASS_FAILURE:
		set_owner(line, event);
		set_refusal(line, &record, event);
		break;
	default:
		set_number(line, "cq", event->owner);
		if (record.kind == RECORD_ACK)
			set_number(line, "count", record.length);
		else if (record.flags)
			set_number(line, "solicited", 1);
		return;
	}
	set_own(line, &record, event);
}

/* ---- 事件 ------------------------------------------------------------------ */

static void set_event(json_t *line, const struct recording *rec,
		      const struct recorded *item)
{
	int err = (int)recorded_number(item, "err");
	const char *name = err ? strerrorname_np(err) : NULL;
	struct member m = { 0 };
	struct event_head head;

	while (member_next(&m, item))
		set_member(line, &m);
	if (err)
		json_object_set_new(line, "errname",
				    json_string(name ? name : "unknown"));
	memcpy(&head, item->at, sizeof(head));
	if (head.end)
		set_number(line, "dur",
			   (uint64_t)(recording_time(rec, head.end) -
				      recording_time(rec, head.stamp)));
}

json_t *event_line(const struct report *r, const struct event *event)
{
	const struct recording *rec = &r->side[event->side].rec;
	const struct recorded item = recording_at(rec, event->place);
	int64_t t = recording_time(rec, item.stamp);
	json_t *line = json_object();

	set_number(line, "t", (uint64_t)t);
	set_number(line, "wall",
		   (uint64_t)((t + recording_wall(rec, item.stamp)) / 1000));
	set_number(line, "pid", (uint64_t)rec->header.pid);
	set_number(line, "tid", (uint64_t)event->place.tid);
	if (item.members)
		set_event(line, rec, &item);
	else
		set_record(line, event, &item);
	return line;
}

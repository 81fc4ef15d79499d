// SPDX-License-Identifier: MIT
/*
 * encode.c —— 把 `qptrace dump` 那样的行写回一份记录：测试要的记录，不必先有程序去做
 *
 *	encode <LINES >FILE.qpt
 *
 * 对象的地址由种类与号码造出来，context 只有一个。n 与 of 不写：读的人自己记账。
 */
#include "../../recorder/line.h"
#include "../../recorder/objects.h"
#include "base/verbs_names.h"

#include <infiniband/verbs.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static union {
	struct block head;
	char bytes[BLOCK_SIZE];
} block;
static uint32_t blocks;

static uint64_t number(const json_t *line, const char *key)
{
	const json_t *value = json_object_get(line, key);

	return json_is_string(value)
		       ? strtoull(json_string_value(value), NULL, 0)
		       : (uint64_t)json_integer_value(value);
}

static const char *text(const json_t *line, const char *key)
{
	const char *value = json_string_value(json_object_get(line, key));

	return value ? value : "";
}

/* 名字在表里的位置；没有就是 0。*/
static uint8_t index_in(const char *const *names, size_t count,
			const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (names[i] && !strcmp(names[i], name))
			return (uint8_t)i;
	return 0;
}
#define INDEX(names, name) index_in(names, sizeof(names) / sizeof(*names), name)

static uint64_t pointer(enum object_kind kind, uint64_t id)
{
	return id ? (uint64_t)(kind + 1) << 40 | id << 8 : 0;
}

/* 一块写出去；没有 @kind 就只是收尾。*/
static void start_block(enum block_kind kind, int tid)
{
	if (block.head.kind) {
		fwrite(&block, 1, sizeof(block), stdout);
		blocks++;
	}
	memset(&block, 0, sizeof(block));
	block.head.kind = kind;
	block.head.tid = tid;
	block.head.number = blocks;
}

static void put_member(struct line *out, const char *key, const json_t *value)
{
	static const char *const keys[] = { "device", "pd",  "mr", "channel",
					    "cq",     "srq", "qp", "ah" };
	struct member_object object = { .context = 1 };
	enum object_kind kind = INDEX(keys, key);

	if (!strcmp(key, "send_cq") || !strcmp(key, "recv_cq"))
		kind = OBJECT_CQ;
	if (json_is_string(value)) {
		const char *said = json_string_value(value);

		if (!strncmp(said, "0x", 2))
			line_put_number(out, MEMBER_HEX, key,
					strtoull(said, NULL, 16));
		else
			line_put(out, MEMBER_TEXT, key, said, strlen(said));
	} else if (kind || !strcmp(key, "device")) {
		object.kind = kind;
		object.id = (uint32_t)json_integer_value(value);
		object.pointer = pointer(kind, object.id);
		line_put(out, MEMBER_OBJECT, key, &object, sizeof(object));
	} else {
		line_put_number(out, MEMBER_SIGNED, key,
				(uint64_t)json_integer_value(value));
	}
}

static void put_event(json_t *line)
{
	uint64_t t = number(line, "t"), dur = number(line, "dur");
	static const char *const own[] = { "",	  "t",	 "wall", "pid",
					   "tid", "dur", "ev",	 "errname" };
	struct event_head head = { .tid = (int)number(line, "tid"),
				   .stamp = t,
				   .end = dur ? t + dur : 0,
				   .ns = t,
				   .at = t };
	struct line out;
	const char *key;
	json_t *value;

	head.wall = (int64_t)(number(line, "wall") * 1000 - t);
	line_start(&out, text(line, "ev"));
	json_object_foreach(line, key, value) if (!INDEX(own, key))
		put_member(&out, key, value);
	head.size = (uint32_t)(sizeof(head) + out.used + 7) & ~7u;
	if (block.head.kind != BLOCK_CONTROL ||
	    block.head.used + head.size > BLOCK_SIZE - sizeof(block.head))
		start_block(BLOCK_CONTROL, 0);
	memcpy(block.bytes + sizeof(block.head) + block.head.used, &head,
	       sizeof(head));
	memcpy(block.bytes + sizeof(block.head) + block.head.used +
		       sizeof(head),
	       out.bytes, out.used);
	block.head.used += head.size;
}

static uint8_t opcode(const struct record *record, const char *op)
{
	static const char *const sends[] = {
		"RDMA_WRITE",
		"RDMA_WRITE_WITH_IMM",
		"SEND",
		"SEND_WITH_IMM",
		"RDMA_READ",
		"ATOMIC_CMP_AND_SWP",
		"ATOMIC_FETCH_AND_ADD",
	};
	static const char *const completed[] = { "SEND", "RDMA_WRITE",
						 "RDMA_READ", "COMP_SWAP",
						 "FETCH_ADD" };

	if (record->kind == RECORD_POST_SEND)
		return INDEX(sends, op);
	if (!strcmp(op, "RECV_RDMA_WITH_IMM"))
		return IBV_WC_RECV_RDMA_WITH_IMM;
	return strcmp(op, "RECV") ? INDEX(completed, op) : IBV_WC_RECV;
}

static uint8_t status(const char *name)
{
	int i = 0;

	while (i < IBV_WC_GENERAL_ERR &&
	       strcmp(wc_status_name((unsigned int)i), name))
		i++;
	return (uint8_t)i;
}

static void put_record(const json_t *line, enum record_kind kind)
{
	struct record record = {
		.stamp = number(line, "t"),
		.kind = (uint8_t)kind,
		.wr_id = number(line, "wr_id"),
		.addr = number(line, "addr"),
		.remote_addr = number(line, "remote_addr"),
		.length = (uint32_t)number(line, "len"),
		.num_sge = (uint8_t)number(line, "sges"),
		.rkey = (uint32_t)number(line, "rkey"),
		.remote = (uint32_t)number(line, "remote_qpn"),
	};
	int tid = (int)number(line, "tid");

	record.opcode = opcode(&record, text(line, "op"));
	record.qpn = (uint32_t)number(line, "lkey");
	record.object = pointer(OBJECT_QP, number(line, "qp"));
	if (strstr(text(line, "flags"), "SIGNALED"))
		record.flags = IBV_SEND_SIGNALED;
	if (kind >= RECORD_COMPLETION)
		record.object = pointer(OBJECT_CQ, number(line, "cq"));
	if (kind == RECORD_POST_SRQ_RECV)
		record.object = pointer(OBJECT_SRQ, number(line, "srq"));
	if (kind == RECORD_COMPLETION) {
		record.qpn = (uint32_t)number(line, "qpn");
		record.status = status(text(line, "status"));
		record.rkey = (uint32_t)number(line, "vendor_err");
	}
	if (kind == RECORD_ACK)
		record.length = (uint32_t)number(line, "count");
	if (block.head.kind != BLOCK_RING || block.head.tid != tid ||
	    block.head.used == BLOCK_RECORDS)
		start_block(BLOCK_RING, tid);
	memcpy(block.bytes + sizeof(block.head) +
		       block.head.used++ * sizeof(record),
	       &record, sizeof(record));
}

int main(void)
{
	static const char *const kinds[] = {
		"post_send",  "post_recv", "post_srq_recv", "post_failed",
		"completion", "arm",	   "cq_event",	    "ack",
	};
	static char page[HEADER_SIZE];
	struct recording_header header = {
		.magic = RECORDING_MAGIC,
		.version = RECORDING_VERSION,
		.endian = RECORDING_ENDIAN,
		.header_size = HEADER_SIZE,
		.block_size = BLOCK_SIZE,
		.block_head = sizeof(struct block),
		.event_head = sizeof(struct event_head),
		.record_size = sizeof(struct record),
	};
	json_error_t error;
	json_t *line;

	fwrite(page, 1, sizeof(page), stdout);
	while ((line = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, &error))) {
		const char *ev = text(line, "ev");
		uint8_t kind = INDEX(kinds, ev);

		if (!header.pid)
			header.pid = (int)number(line, "pid");
		if (kind || !strcmp(ev, kinds[0]))
			put_record(line, kind);
		else
			put_event(line);
		json_decref(line);
	}
	start_block(BLOCK_FREE, 0);
	header.blocks = blocks;
	memcpy(page, &header, sizeof(header));
	if (fseek(stdout, 0, SEEK_SET) ||
	    fwrite(page, 1, sizeof(page), stdout) != sizeof(page) ||
	    fclose(stdout)) {
		perror("encode: stdout has to be a file");
		return 1;
	}
	return 0;
}

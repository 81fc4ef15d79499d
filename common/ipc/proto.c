// SPDX-License-Identifier: MIT
/*
 * proto.c —— 消息的形状是数据，编码与转成 JSON 都照着这张表走
 *
 * 十二种消息若各写一个 encode、一个 decode，就是二十四处可能把字段名拼错、次序放错的
 * 地方。表里每一行是一个字段：名字、类型、可否缺省、在 struct 里的位置。行的次序就是
 * 数组形式里的次序，所以我们自己加的字段（EXTENSION）只能放在最后。
 */
#include "parts.h"

#include <errno.h>
#include <msgpack.h>

// region fields
#define AT(member, field) offsetof(struct engine_message, member.field)
// clang-format off
#define FIELD(member, field, kind, need) \
	{ kind, need, AT(member, field), ENGINE_TEXT_OF(#field) }
// clang-format on
#define MUST(member, field, kind) FIELD(member, field, kind, ENGINE_REQUIRED)
#define MAY(member, field, kind)  FIELD(member, field, kind, ENGINE_OPTIONAL)
#define OURS(member, field, kind) FIELD(member, field, kind, ENGINE_EXTENSION)

static const struct engine_field ping[] = {
	MUST(ping, timestamp_ns, ENGINE_U64),
	MAY(ping, client_id, ENGINE_TEXT),
};

static const struct engine_field pong[] = {
	MUST(pong, client_timestamp_ns, ENGINE_U64),
	MUST(pong, server_timestamp_ns, ENGINE_U64),
	MUST(pong, server_rtt_ns, ENGINE_U64),
};

static const struct engine_field get_capabilities[] = {
	MAY(get_capabilities, client_id, ENGINE_TEXT),
};

static const struct engine_field capabilities[] = {
	MUST(capabilities, device_name, ENGINE_TEXT),
	MUST(capabilities, vendor_id, ENGINE_U32),
	MUST(capabilities, max_transfer_size, ENGINE_U64),
	MUST(capabilities, max_sessions, ENGINE_U64),
	MUST(capabilities, active_sessions, ENGINE_U64),
	MUST(capabilities, port_gid, ENGINE_TEXT),
	MUST(capabilities, port_lid, ENGINE_U16),
	MUST(capabilities, supported_auth, ENGINE_TEXTS),
	MUST(capabilities, version, ENGINE_TEXT),
	MUST(capabilities, real_rdma, ENGINE_BOOL),
	OURS(capabilities, extensions, ENGINE_TEXTS),
};

static const struct engine_field start_read[] = {
	MUST(start_read, volume_id, ENGINE_U32),
	MUST(start_read, needle_id, ENGINE_U64),
	MUST(start_read, cookie, ENGINE_U32),
	MUST(start_read, offset, ENGINE_U64),
	MUST(start_read, size, ENGINE_U64),
	MUST(start_read, remote_addr, ENGINE_U64),
	MUST(start_read, remote_key, ENGINE_U32),
	MUST(start_read, timeout_secs, ENGINE_U64),
	MAY(start_read, auth_token, ENGINE_TEXT),
	OURS(start_read, progress_ms, ENGINE_OPT_U32),
};
// endregion fields

static const struct engine_field started[] = {
	MUST(started, session_id, ENGINE_TEXT),
	MUST(started, local_addr, ENGINE_U64),
	MUST(started, local_key, ENGINE_U32),
	MUST(started, transfer_size, ENGINE_U64),
	MUST(started, expected_crc, ENGINE_U32),
	MUST(started, expires_at_ns, ENGINE_U64),
};

static const struct engine_field complete_read[] = {
	MUST(complete_read, session_id, ENGINE_TEXT),
	MUST(complete_read, success, ENGINE_BOOL),
	MUST(complete_read, bytes_transferred, ENGINE_U64),
	MAY(complete_read, client_crc, ENGINE_OPT_U32),
	MAY(complete_read, error_message, ENGINE_TEXT),
};

static const struct engine_field completed[] = {
	MUST(completed, success, ENGINE_BOOL),
	MAY(completed, server_crc, ENGINE_OPT_U32),
	MAY(completed, message, ENGINE_TEXT),
};

static const struct engine_field error[] = {
	MUST(error, code, ENGINE_TEXT),
	MUST(error, message, ENGINE_TEXT),
	MUST(error, category, ENGINE_TEXT),
	MUST(error, recoverable, ENGINE_BOOL),
};

static const struct engine_field map_buffer[] = {
	MUST(map_buffer, session_id, ENGINE_TEXT),
};

static const struct engine_field mapped[] = {
	MUST(mapped, session_id, ENGINE_TEXT),
	MUST(mapped, size, ENGINE_U64),
};

static const struct engine_field progress[] = {
	MUST(progress, done, ENGINE_U64),
	MUST(progress, total, ENGINE_U64),
};

#define LAYOUT(type, name, fields)                        \
	[ENGINE_##type] = { ENGINE_TEXT_OF(name), fields, \
			    sizeof(fields) / sizeof(fields[0]) }

const struct engine_layout engine_layouts[ENGINE_TYPES] = {
	LAYOUT(PING, "Ping", ping),
	LAYOUT(PONG, "Pong", pong),
	LAYOUT(GET_CAPABILITIES, "GetCapabilities", get_capabilities),
	LAYOUT(GET_CAPABILITIES_RESPONSE, "GetCapabilitiesResponse",
	       capabilities),
	LAYOUT(START_READ, "StartRead", start_read),
	LAYOUT(START_READ_RESPONSE, "StartReadResponse", started),
	LAYOUT(COMPLETE_READ, "CompleteRead", complete_read),
	LAYOUT(COMPLETE_READ_RESPONSE, "CompleteReadResponse", completed),
	LAYOUT(ERROR, "Error", error),
	LAYOUT(MAP_BUFFER, "MapBuffer", map_buffer),
	LAYOUT(MAP_BUFFER_RESPONSE, "MapBufferResponse", mapped),
	LAYOUT(READ_PROGRESS, "ReadProgress", progress),
};

_Static_assert(sizeof(capabilities) <=
		       ENGINE_FIELDS_MOST * sizeof(struct engine_field),
	       "ENGINE_FIELDS_MOST is too small");

const char *engine_type_name(enum engine_type type)
{
	return engine_layouts[type].name.data;
}

struct engine_text engine_text_of(const char *string)
{
	return (struct engine_text){ string, string ? strlen(string) : 0 };
}

bool engine_text_is(struct engine_text text, const char *string)
{
	return text.data && text.size == strlen(string) &&
	       !memcmp(text.data, string, text.size);
}

static const void *at(const struct engine_message *m,
		      const struct engine_field *f)
{
	return (const char *)m + f->offset;
}

/* 可以不写的，写了没有。*/
static bool is_given(const struct engine_message *message,
		     const struct engine_field *field)
{
	const void *p = at(message, field);

	if (field->need == ENGINE_REQUIRED)
		return true;
	if (field->kind == ENGINE_TEXT)
		return ((const struct engine_text *)p)->data;
	if (field->kind == ENGINE_TEXTS)
		return ((const struct engine_texts *)p)->count;
	return ((const struct engine_opt_u32 *)p)->given;
}

/* 整数按类型取出来：编码与 JSON 都只要一个 u64。*/
static uint64_t number(const struct engine_message *m,
		       const struct engine_field *f)
{
	const void *p = at(m, f);

	switch (f->kind) {
	case ENGINE_U16:
		return *(const uint16_t *)p;
	case ENGINE_U32:
		return *(const uint32_t *)p;
	case ENGINE_OPT_U32:
		return ((const struct engine_opt_u32 *)p)->value;
	default:
		return *(const uint64_t *)p;
	}
}

static void pack_text(msgpack_packer *pk, struct engine_text text)
{
	/* 一个空的 text 也要是 ""：接收方要的是 string，nil 会让它拒收。*/
	msgpack_pack_str_with_body(pk, text.data ? text.data : "", text.size);
}

static void pack_field(msgpack_packer *pk, const struct engine_message *m,
		       const struct engine_field *f)
{
	const struct engine_texts *list = at(m, f);

	if (!is_given(m, f)) {
		msgpack_pack_nil(pk);
		return;
	}
	switch (f->kind) {
	case ENGINE_BOOL:
		if (*(const bool *)at(m, f))
			msgpack_pack_true(pk);
		else
			msgpack_pack_false(pk);
		break;
	case ENGINE_TEXT:
		pack_text(pk, *(const struct engine_text *)at(m, f));
		break;
	case ENGINE_TEXTS:
		msgpack_pack_array(pk, list->count);
		for (size_t i = 0; i < list->count; i++)
			pack_text(pk, list->text[i]);
		break;
	default:
		msgpack_pack_uint64(pk, number(m, f)); /* 取最短的编码 */
	}
}

static bool is_written(const struct engine_message *m,
		       const struct engine_field *f)
{
	return f->need != ENGINE_EXTENSION || is_given(m, f);
}

int engine_encode(const struct engine_message *message,
		  struct engine_stream *stream)
{
	static const struct engine_text type = ENGINE_TEXT_OF("type");
	static const struct engine_text data = ENGINE_TEXT_OF("data");
	const struct engine_layout *layout = &engine_layouts[message->type];
	msgpack_packer pk;
	size_t count = 0;

	for (size_t i = 0; i < layout->count; i++)
		count += is_written(message, &layout->fields[i]);
	/*
	 * 写成 map，字段名都拼出来：原版 engine 答的是数组，它的 Error 有 4 个元素，
	 * 自家的 Go client 却按 3 个字段去解，于是每个错误都变成“解码失败”。有名字就
	 * 没有这种歧义，多出来的字段对方跳过即可。
	 */
	engine_stream_begin(stream);
	msgpack_packer_init(&pk, stream, engine_stream_append);
	msgpack_pack_map(&pk, 2);
	pack_text(&pk, type);
	pack_text(&pk, layout->name);
	pack_text(&pk, data);
	msgpack_pack_map(&pk, count);
	for (size_t i = 0; i < layout->count; i++) {
		const struct engine_field *f = &layout->fields[i];

		if (!is_written(message, f))
			continue;
		pack_text(&pk, f->name);
		pack_field(&pk, message, f);
	}
	return engine_stream_end(stream);
}

static json_t *text_as_json(struct engine_text text)
{
	return json_stringn(text.data ? text.data : "", text.size);
}

static json_t *texts_as_json(const struct engine_texts *list)
{
	json_t *array = json_array();

	for (size_t i = 0; i < list->count; i++)
		json_array_append_new(array, text_as_json(list->text[i]));
	return array;
}

static json_t *field_as_json(const struct engine_message *m,
			     const struct engine_field *f)
{
	switch (f->kind) {
	case ENGINE_BOOL:
		return json_boolean(*(const bool *)at(m, f));
	case ENGINE_TEXT:
		return text_as_json(*(const struct engine_text *)at(m, f));
	case ENGINE_TEXTS:
		return texts_as_json(at(m, f));
	default:
		/* json_int_t 有符号；线上的地址与时刻都小于 2^63，其余截到它。*/
		return json_integer(number(m, f) > INT64_MAX
					    ? INT64_MAX
					    : (json_int_t)number(m, f));
	}
}

json_t *engine_message_as_json(const struct engine_message *message)
{
	const struct engine_layout *layout = &engine_layouts[message->type];
	json_t *data = json_object();

	for (size_t i = 0; i < layout->count; i++) {
		const struct engine_field *f = &layout->fields[i];

		if (is_given(message, f))
			json_object_set_new(data, f->name.data,
					    field_as_json(message, f));
	}
	return json_pack("{s:o, s:o}", "type",
			 text_as_json(layout->name.data ? layout->name
							: message->name),
			 "data", data);
}

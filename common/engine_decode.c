// SPDX-License-Identifier: MIT
/*
 * engine_decode.c —— 从字节到消息：宽进，但每一步都核对
 *
 * 宽在形式：map 或 array、键的次序、多余的字段、整数的宽度，各种 client 各有习惯（Go 的
 * 库把每个整数写满 8 个字节，Rust 的取最短）。严在内容：缺字段、负数、放不下的整数、
 * 不是 UTF-8 的字符串，都给出说得清是哪个字段、为什么的 Error。原版对看不懂的请求一言
 * 不发就断开连接，写 client 的人只看到 EOF。
 */
#include "engine_proto_parts.h"

#include <errno.h>
#include <msgpack.h>
#include <string.h>

/* 正在解码的是哪条消息的哪个字段，只为了把错误说清楚。*/
struct place {
	const char *message;
	const struct engine_field *field;
	struct engine_fault *fault;
};

static const char *type_text(msgpack_object_type type)
{
	switch (type) {
	case MSGPACK_OBJECT_NIL:
		return "nil";
	case MSGPACK_OBJECT_BOOLEAN:
		return "a bool";
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		return "an integer";
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		return "a float";
	case MSGPACK_OBJECT_STR:
		return "a string";
	case MSGPACK_OBJECT_ARRAY:
		return "an array";
	case MSGPACK_OBJECT_MAP:
		return "a map";
	case MSGPACK_OBJECT_BIN:
		return "binary data";
	default:
		return "an extension value";
	}
}

static int wrong_type(const struct place *p, const msgpack_object *o,
		      const char *wanted)
{
	return engine_refuse(p->fault, "%s: field %s is %s, not %s", p->message,
			     p->field->name, type_text(o->type), wanted);
}

/*
 * jansson 只接受合法的 UTF-8（没有超长编码，没有代理码点），借它来查。字符串会被写进
 * 日志和回答里；不查，一个坏字节就让对端的解码器拒收整条回答。
 */
static bool is_utf8(const msgpack_object_str *s)
{
	json_t *json = json_stringn(s->ptr ? s->ptr : "", s->size);

	json_decref(json);
	return json;
}

static int decode_text(const struct place *p, const msgpack_object *o,
		       struct engine_text *out)
{
	if (o->type != MSGPACK_OBJECT_STR)
		return wrong_type(p, o, "a string");
	if (!is_utf8(&o->via.str))
		return engine_refuse(p->fault, "%s: field %s is not UTF-8",
				     p->message, p->field->name);
	out->data = o->via.str.ptr ? o->via.str.ptr : "";
	out->size = o->via.str.size;
	return 0;
}

static int decode_texts(const struct place *p, const msgpack_object *o,
			struct engine_texts *out)
{
	int rc = 0;

	if (o->type != MSGPACK_OBJECT_ARRAY)
		return wrong_type(p, o, "an array");
	if (o->via.array.size > ENGINE_TEXTS_MAX)
		return engine_refuse(p->fault,
				     "%s: field %s has more than %d entries",
				     p->message, p->field->name,
				     ENGINE_TEXTS_MAX);
	for (uint32_t i = 0; i < o->via.array.size && !rc; i++)
		rc = decode_text(p, &o->via.array.ptr[i], &out->text[i]);
	if (!rc)
		out->count = o->via.array.size;
	return rc;
}

// region integer
/*
 * 整数：任何宽度都收，只看值。负数被 msgpack-c 标成另一种类型，所以 -1 不会悄悄变成
 * 2^64-1；放不下的在这里拒绝，而不是截断——cookie 被截断后可能恰好“对上”。
 */
static int decode_number(const struct place *p, const msgpack_object *o,
			 uint64_t most, uint64_t *out)
{
	if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		return engine_refuse(p->fault, "%s: field %s is negative: %lld",
				     p->message, p->field->name,
				     (long long)o->via.i64);
	if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return wrong_type(p, o, "an integer");
	if (o->via.u64 > most)
		return engine_refuse(p->fault,
				     "%s: field %s is %llu, more than %llu",
				     p->message, p->field->name,
				     (unsigned long long)o->via.u64,
				     (unsigned long long)most);
	*out = o->via.u64;
	return 0;
}
// endregion integer

static int decode_opt_u32(const struct place *p, const msgpack_object *o,
			  struct engine_opt_u32 *out)
{
	uint64_t n;
	int rc = decode_number(p, o, UINT32_MAX, &n);

	if (!rc)
		*out = (struct engine_opt_u32){ true, (uint32_t)n };
	return rc;
}

static int decode_value(const struct place *p, const msgpack_object *o,
			void *out)
{
	uint64_t n = 0;
	int rc = 0;

	switch (p->field->kind) {
	case ENGINE_U16:
		rc = decode_number(p, o, UINT16_MAX, &n);
		*(uint16_t *)out = (uint16_t)n;
		return rc;
	case ENGINE_U32:
		rc = decode_number(p, o, UINT32_MAX, &n);
		*(uint32_t *)out = (uint32_t)n;
		return rc;
	case ENGINE_U64:
		return decode_number(p, o, UINT64_MAX, out);
	case ENGINE_OPT_U32:
		return decode_opt_u32(p, o, out);
	case ENGINE_TEXT:
		return decode_text(p, o, out);
	case ENGINE_TEXTS:
		return decode_texts(p, o, out);
	case ENGINE_BOOL:
		if (o->type != MSGPACK_OBJECT_BOOLEAN)
			return wrong_type(p, o, "a bool");
		*(bool *)out = o->via.boolean;
		return 0;
	}
	return rc;
}

static bool key_is(const msgpack_object *key, const char *name)
{
	return key->type == MSGPACK_OBJECT_STR &&
	       engine_text_is((struct engine_text){ key->via.str.ptr,
						    key->via.str.size },
			      name);
}

/* map 里名为 @name 的值；没有则 NULL。给了两次时 *@twice 为真。*/
static const msgpack_object *value_of(const msgpack_object *map,
				      const char *name, bool *twice)
{
	const msgpack_object *found = NULL;

	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[i];

		if (!key_is(&kv->key, name))
			continue;
		*twice |= found != NULL;
		found = &kv->val;
	}
	return found;
}

/* 两种形式的差别只在这里：按名字找，还是按位置取。*/
static const msgpack_object *find(const msgpack_object *data, size_t index,
				  const char *name, bool *twice)
{
	if (data->type == MSGPACK_OBJECT_MAP)
		return value_of(data, name, twice);
	if (data->type == MSGPACK_OBJECT_ARRAY && index < data->via.array.size)
		return &data->via.array.ptr[index];
	return NULL;
}

static int decode_field(struct engine_message *m, const struct place *p,
			const msgpack_object *data, size_t index)
{
	bool twice = false;
	const msgpack_object *o = find(data, index, p->field->name, &twice);

	if (twice)
		return engine_refuse(p->fault, "%s: field %s is given twice",
				     p->message, p->field->name);
	if (o && (o->type != MSGPACK_OBJECT_NIL ||
		  p->field->need == ENGINE_REQUIRED))
		return decode_value(p, o, (char *)m + p->field->offset);
	if (p->field->need == ENGINE_REQUIRED)
		return engine_refuse(p->fault, "%s: field %s is missing",
				     p->message, p->field->name);
	return 0;
}

// region decode
static int decode_data(struct engine_message *m, const msgpack_object *data,
		       struct engine_fault *fault)
{
	const struct engine_layout *layout = engine_layout_of(m->type);
	int rc = 0;

	if (data->type != MSGPACK_OBJECT_MAP &&
	    data->type != MSGPACK_OBJECT_ARRAY &&
	    data->type != MSGPACK_OBJECT_NIL)
		return engine_refuse(fault,
				     "%s: data is %s, not a map or array",
				     layout->name, type_text(data->type));
	for (size_t i = 0; i < layout->count && !rc; i++) {
		const struct place p = { layout->name, &layout->fields[i],
					 fault };

		rc = decode_field(m, &p, data, i);
	}
	return rc;
}

static int decode_object(struct engine_message *m, const msgpack_object *root,
			 struct engine_fault *fault)
{
	static const msgpack_object nil = { .type = MSGPACK_OBJECT_NIL };
	const struct engine_field type_field = { .kind = ENGINE_TEXT,
						 .name = "type" };
	const struct place p = { "message", &type_field, fault };
	const msgpack_object *type, *data;
	bool twice = false;
	int rc;

	if (root->type != MSGPACK_OBJECT_MAP &&
	    root->type != MSGPACK_OBJECT_ARRAY)
		return engine_refuse(fault, "it is %s, not a map or array",
				     type_text(root->type));
	type = find(root, 0, "type", &twice);
	data = find(root, 1, "data", &twice);
	if (twice)
		return engine_refuse(fault, "type or data is given twice");
	if (!type)
		return engine_refuse(fault, "it has no type");
	rc = decode_text(&p, type, &m->name);
	for (int t = ENGINE_UNKNOWN + 1; t < ENGINE_TYPES && !rc; t++)
		if (engine_text_is(m->name, engine_type_name(t)))
			m->type = (enum engine_type)t;
	if (rc || m->type == ENGINE_UNKNOWN)
		return rc;
	return decode_data(m, data ? data : &nil, fault);
}

int engine_decode(struct engine_message *message, const char *data, size_t size,
		  struct engine_fault *fault)
{
	msgpack_unpacked unpacked;
	size_t used = 0;
	int rc;

	*message = (struct engine_message){ .type = ENGINE_UNKNOWN };
	rc = engine_scan(data, size, fault);
	if (rc)
		return rc;
	/*
	 * 扫描通过，msgpack-c 的失败只剩一种：没有内存。它建的树里，字符串只是指向
	 * data 的指针；取完值，树就可以扔了。
	 */
	msgpack_unpacked_init(&unpacked);
	if (msgpack_unpack_next(&unpacked, data, size, &used) ==
	    MSGPACK_UNPACK_SUCCESS)
		rc = decode_object(message, &unpacked.data, fault);
	else
		rc = -ENOMEM;
	msgpack_unpacked_destroy(&unpacked);
	return rc;
}
// endregion decode

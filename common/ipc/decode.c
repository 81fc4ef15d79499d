// SPDX-License-Identifier: MIT
/*
 * decode.c —— 从字节到消息：宽进，但每一步都核对
 *
 * 宽在形式：map 或 array、键的次序、多余的字段、整数的宽度，各种 client 各有习惯（Go 的
 * 库把每个整数写满 8 个字节，Rust 的取最短）。严在内容：缺字段、负数、放不下的整数、
 * 不是 UTF-8 的字符串，都给出说得清是哪个字段、为什么的 Error。原版对看不懂的请求一言
 * 不发就断开连接，写 client 的人只看到 EOF。
 */
#include "parts.h"

#include <errno.h>
#include <msgpack.h>

#define ZONE_SIZE 960 /* bytes：一条普通消息的树 */

/* 正在解码的是哪条消息的哪个字段，只为了把错误说清楚。*/
struct place {
	const char *message;
	const struct engine_field *field;
	struct engine_fault *fault;
};

static const char *type_text(msgpack_object_type type)
{
	static const char *const names[] = {
		[MSGPACK_OBJECT_NIL] = "nil",
		[MSGPACK_OBJECT_BOOLEAN] = "a bool",
		[MSGPACK_OBJECT_POSITIVE_INTEGER] = "an integer",
		[MSGPACK_OBJECT_NEGATIVE_INTEGER] = "an integer",
		[MSGPACK_OBJECT_FLOAT32] = "a float",
		[MSGPACK_OBJECT_FLOAT64] = "a float",
		[MSGPACK_OBJECT_STR] = "a string",
		[MSGPACK_OBJECT_ARRAY] = "an array",
		[MSGPACK_OBJECT_MAP] = "a map",
		[MSGPACK_OBJECT_BIN] = "binary data",
		[MSGPACK_OBJECT_EXT] = "an extension value",
	};

	return names[type];
}

static int wrong_type(const struct place *p, const msgpack_object *o,
		      const char *wanted)
{
	return engine_refuse(p->fault, "%s: field %s is %s, not %s", p->message,
			     p->field->name.data, type_text(o->type), wanted);
}

/*
 * 几乎总是纯 ASCII，看一遍就够；有高位的才请 jansson 来查：它只接受合法的 UTF-8（没有
 * 超长编码，没有代理码点）。字符串会被写进日志和回答里；不查，一个坏字节就让对端的解码
 * 器拒收整条回答。
 */
static bool is_utf8(const msgpack_object_str *s)
{
	unsigned char high = 0;
	json_t *json;

	for (uint32_t i = 0; i < s->size; i++)
		high |= (unsigned char)s->ptr[i];
	if (high < 0x80)
		return true;
	json = json_stringn(s->ptr, s->size);
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
				     p->message, p->field->name.data);
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
				     p->message, p->field->name.data,
				     ENGINE_TEXTS_MAX);
	for (uint32_t i = 0; i < o->via.array.size && !rc; i++)
		rc = decode_text(p, &o->via.array.ptr[i], &out->text[i]);
	if (!rc)
		out->count = o->via.array.size;
	return rc;
}

/*
 * 整数：任何宽度都收，只看值。负数被 msgpack-c 标成另一种类型，所以 -1 不会悄悄变成
 * 2^64-1；放不下的在这里拒绝，而不是截断——cookie 被截断后可能恰好“对上”。
 */
static int decode_number(const struct place *p, const msgpack_object *o,
			 uint64_t most, uint64_t *out)
{
	if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		return engine_refuse(p->fault, "%s: field %s is negative: %jd",
				     p->message, p->field->name.data,
				     o->via.i64);
	if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return wrong_type(p, o, "an integer");
	if (o->via.u64 > most)
		return engine_refuse(p->fault,
				     "%s: field %s is %ju, more than %ju",
				     p->message, p->field->name.data,
				     o->via.u64, most);
	*out = o->via.u64;
	return 0;
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
		rc = decode_number(p, o, UINT32_MAX, &n);
		if (!rc)
			*(struct engine_opt_u32 *)out =
				(struct engine_opt_u32){ true, (uint32_t)n };
		return rc;
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

static bool key_is(const msgpack_object *key, struct engine_text name)
{
	return key->type == MSGPACK_OBJECT_STR &&
	       key->via.str.size == name.size &&
	       !memcmp(key->via.str.ptr, name.data, name.size);
}

/*
 * map 的第 @i 个键是哪个字段；不认得的是 count。从上一个字段的下一个找起：多数 client
 * 按结构体的次序写，于是一找就中。
 */
static size_t field_of(const struct engine_layout *layout,
		       const msgpack_object *key, size_t hint)
{
	for (size_t n = 0; n < layout->count; n++) {
		size_t i = (hint + n) % layout->count;

		if (key_is(key, layout->fields[i].name))
			return i;
	}
	return layout->count;
}

struct fields {
	const struct engine_layout *layout;
	const msgpack_object *value[ENGINE_FIELDS_MOST]; /* NULL：没有给 */
};

static int fields_of_map(struct fields *f, const msgpack_object *map,
			 struct engine_fault *fault)
{
	size_t next = 0;

	for (uint32_t k = 0; k < map->via.map.size; k++) {
		const msgpack_object_kv *kv = &map->via.map.ptr[k];
		size_t i = field_of(f->layout, &kv->key, next);

		if (i == f->layout->count)
			continue; /* 以后的版本加的：跳过 */
		if (f->value[i])
			return engine_refuse(fault,
					     "%s: field %s is given twice",
					     f->layout->name.data,
					     f->layout->fields[i].name.data);
		f->value[i] = &kv->val;
		next = i + 1;
	}
	return 0;
}

/* 两种形式的差别只在这里：按名字找，还是按位置取。*/
static int find_fields(struct fields *f, const msgpack_object *data,
		       struct engine_fault *fault)
{
	switch (data->type) {
	case MSGPACK_OBJECT_MAP:
		return fields_of_map(f, data, fault);
	case MSGPACK_OBJECT_ARRAY:
		for (size_t i = 0; i < f->layout->count; i++)
			if (i < data->via.array.size)
				f->value[i] = &data->via.array.ptr[i];
		return 0;
	case MSGPACK_OBJECT_NIL:
		return 0;
	default:
		return engine_refuse(fault,
				     "%s: data is %s, not a map or array",
				     f->layout->name.data,
				     type_text(data->type));
	}
}

static int decode_field(struct engine_message *m, const struct place *p,
			const msgpack_object *o)
{
	if (o && (o->type != MSGPACK_OBJECT_NIL ||
		  p->field->need == ENGINE_REQUIRED))
		return decode_value(p, o, (char *)m + p->field->offset);
	if (p->field->need == ENGINE_REQUIRED)
		return engine_refuse(p->fault, "%s: field %s is missing",
				     p->message, p->field->name.data);
	return 0;
}

static int decode_data(struct engine_message *m, const msgpack_object *data,
		       struct engine_fault *fault)
{
	struct fields f = { .layout = &engine_layouts[m->type] };
	int rc = find_fields(&f, data, fault);

	for (size_t i = 0; i < f.layout->count && !rc; i++) {
		const struct place p = { f.layout->name.data,
					 &f.layout->fields[i], fault };

		rc = decode_field(m, &p, f.value[i]);
	}
	return rc;
}

static enum engine_type known_type(const msgpack_object *name)
{
	for (int t = ENGINE_UNKNOWN + 1; t < ENGINE_TYPES; t++)
		if (key_is(name, engine_layouts[t].name))
			return (enum engine_type)t;
	return ENGINE_UNKNOWN;
}

static int decode_object(struct engine_message *m, const msgpack_object *root,
			 struct engine_fault *fault)
{
	static const msgpack_object nil = { .type = MSGPACK_OBJECT_NIL };
	static const struct engine_field outer_fields[] = {
		{ .kind = ENGINE_TEXT, .name = ENGINE_TEXT_OF("type") },
		{ .name = ENGINE_TEXT_OF("data") },
	};
	static const struct engine_layout outer = { ENGINE_TEXT_OF("message"),
						    outer_fields, 2 };
	const struct place p = { "message", &outer_fields[0], fault };
	struct fields f = { .layout = &outer };
	const msgpack_object *type, *data;
	int rc;

	if (root->type != MSGPACK_OBJECT_MAP &&
	    root->type != MSGPACK_OBJECT_ARRAY)
		return engine_refuse(fault, "it is %s, not a map or array",
				     type_text(root->type));
	rc = find_fields(&f, root, fault);
	if (rc)
		return rc;
	type = f.value[0];
	data = f.value[1];
	if (!type)
		return engine_refuse(fault, "it has no type");
	m->type = known_type(type);
	if (m->type == ENGINE_UNKNOWN)
		return decode_text(&p, type, &m->name);
	m->name = engine_layouts[m->type].name;
	return decode_data(m, data ? data : &nil, fault);
}

int engine_decode(struct engine_message *message, const char *data, size_t size,
		  struct engine_fault *fault)
{
	msgpack_object root;
	msgpack_zone zone;
	size_t used = 0;
	int rc;

	*message = (struct engine_message){ .type = ENGINE_UNKNOWN };
	rc = engine_scan(data, size, fault);
	if (rc)
		return rc;
	/*
	 * 扫描通过，msgpack-c 的失败只剩一种：没有内存。它建的树里，字符串只是指向
	 * data 的指针；取完值，树就可以扔了。树很小，先要一小块就够：默认的 8 KiB
	 * 每次都要绕到 malloc 的慢路上去。
	 */
	if (!msgpack_zone_init(&zone, ZONE_SIZE))
		return -ENOMEM;
	if (msgpack_unpack(data, size, &used, &zone, &root) ==
	    MSGPACK_UNPACK_SUCCESS)
		rc = decode_object(message, &root, fault);
	else
		rc = -ENOMEM;
	msgpack_zone_destroy(&zone);
	return rc;
}

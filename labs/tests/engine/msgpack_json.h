/* SPDX-License-Identifier: MIT */
/*
 * msgpack_json.h - what msgpack-c finds in an answer, as JSON; for engine_peer.c.
 */
#ifndef TESTS_MSGPACK_JSON_H
#define TESTS_MSGPACK_JSON_H

#include <jansson.h>
#include <msgpack.h>

/* With its values, or (@types) with their types in their place. */
static json_t *as_json(const msgpack_object *o, bool types)
{
	json_t *json;

	switch (o->type) {
	case MSGPACK_OBJECT_MAP:
		json = json_object();
		for (uint32_t i = 0; i < o->via.map.size; i++)
			json_object_setn_new(
				json, o->via.map.ptr[i].key.via.str.ptr,
				o->via.map.ptr[i].key.via.str.size,
				as_json(&o->via.map.ptr[i].val, types));
		return json;
	case MSGPACK_OBJECT_ARRAY:
		json = json_array();
		for (uint32_t i = 0; i < o->via.array.size; i++)
			json_array_append_new(
				json, as_json(&o->via.array.ptr[i], types));
		return json;
	case MSGPACK_OBJECT_STR:
		return types ? json_string("str")
			     : json_stringn(o->via.str.ptr, o->via.str.size);
	case MSGPACK_OBJECT_BOOLEAN:
		return types ? json_string("bool")
			     : json_boolean(o->via.boolean);
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		return types ? json_string("uint")
			     : json_integer((json_int_t)o->via.u64);
	case MSGPACK_OBJECT_NIL:
		return types ? json_string("nil") : json_null();
	default:
		return json_string("unexpected");
	}
}

#endif

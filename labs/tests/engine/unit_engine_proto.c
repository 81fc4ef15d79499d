// SPDX-License-Identifier: MIT
/*
 * unit_engine_proto.c - the engine's messages, against 21 frames that a real
 * client and the original engine exchanged, and against what no client should
 * send. No RDMA, no socket.
 *
 *	unit_engine_proto DIR	(the folder with NNN-req.bin and NNN-rsp.bin)
 */
#include "../unit.h"
#include "ipc/proto.h"

#include <errno.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

struct frame {
	char bytes[512];
	size_t size; /* with the prefix */
};

static struct frame load(const char *dir, int number, const char *kind)
{
	struct frame f = { 0 };
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%03d-%s.bin", dir, number, kind);
	file = fopen(path, "rb");
	if (!file) {
		perror(path);
		exit(1);
	}
	f.size = fread(f.bytes, 1, sizeof(f.bytes), file);
	fclose(file);
	return f;
}

/* From a block of its exact size, so that a sanitizer sees one byte too many. */
static int decode_exact(struct engine_message *m, const char *data, size_t size,
			struct engine_fault *fault)
{
	char *copy = malloc(size ? size : 1);
	int rc;

	memcpy(copy, data, size);
	rc = engine_decode(m, copy, size, fault);
	free(copy); /* the texts of *m are gone with it */
	return rc;
}

static int decode_frame(struct engine_message *m, const struct frame *f)
{
	struct engine_fault fault = { "" };
	int rc = engine_decode(m, f->bytes + ENGINE_PREFIX_SIZE,
			       f->size - ENGINE_PREFIX_SIZE, &fault);

	CHECK(!rc, "%s", fault.text);
	return rc;
}

/* ---- recorded requests -------------------------------------------------- */

static void check_ping(const struct engine_message *m)
{
	CHECK(m->ping.timestamp_ns == 0x18e9edb5475729cc, "%llx",
	      (unsigned long long)m->ping.timestamp_ns);
	CHECK(engine_text_is(m->ping.client_id, "probe"), "client_id");
}

static void check_start_read(const struct engine_message *m)
{
	const struct engine_start_read *r = &m->start_read;

	CHECK(r->volume_id == 1 && r->needle_id == 100, "needle");
	CHECK(r->cookie == 0x12345678, "%x", r->cookie);
	CHECK(r->offset == 0 && r->size == 0, "range");
	CHECK(r->remote_addr == 0x7f0000001000, "remote_addr");
	CHECK(r->remote_key == 0xdeadbeef && r->timeout_secs == 30, "key");
	CHECK(engine_text_is(r->auth_token, "secret"), "auth_token");
	CHECK(!r->progress_ms.given, "progress_ms");
}

static void check_complete_read(const struct engine_message *m)
{
	const struct engine_complete_read *r = &m->complete_read;

	CHECK(engine_text_is(r->session_id,
			     "f2385930-7c39-4acf-b319-b87e5600058d"),
	      "session_id");
	CHECK(r->success && r->bytes_transferred == 4096, "result");
	CHECK(r->client_crc.given && r->client_crc.value == 0xcafef00d, "crc");
	CHECK(!r->error_message.data, "error_message");
}

static void recorded_requests(const char *dir)
{
	static const enum engine_type types[] = {
		ENGINE_PING,
		ENGINE_PING,
		ENGINE_GET_CAPABILITIES,
		ENGINE_START_READ,
		ENGINE_START_READ,
		ENGINE_START_READ,
		ENGINE_COMPLETE_READ,
		ENGINE_COMPLETE_READ,
		ENGINE_COMPLETE_READ,
		ENGINE_PONG,
		ENGINE_UNKNOWN,
	};
	struct engine_message m;

	for (int i = 0; i < 11; i++) {
		struct frame f = load(dir, 2 * i, "req");

		if (decode_frame(&m, &f))
			continue;
		CHECK(m.type == types[i], "request %d is %d", 2 * i, m.type);
		if (i == 0)
			check_ping(&m);
		if (i == 1)
			CHECK(!m.ping.client_id.data, "client_id");
		if (i == 4)
			check_start_read(&m);
		if (i == 6)
			check_complete_read(&m);
		if (i == 10)
			CHECK(engine_text_is(m.name, "Bogus"), "name");
	}
}

/* ---- recorded responses ------------------------------------------------- */

/* The value of @name in @map. */
static const msgpack_object *member(const msgpack_object *map, const char *name)
{
	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object *key = &map->via.map.ptr[i].key;

		if (key->via.str.size == strlen(name) &&
		    !memcmp(key->via.str.ptr, name, strlen(name)))
			return &map->via.map.ptr[i].val;
	}
	return NULL;
}

/* What we write says the same as @theirs: an array with the fields' values. */
static void compare_response(const msgpack_object *theirs,
			     const msgpack_object *ours, const char *names)
{
	const msgpack_object *values = &theirs->via.array.ptr[1];
	const msgpack_object *data = member(ours, "data");
	char list[256];
	uint32_t i = 0;

	CHECK(msgpack_object_equal(theirs->via.array.ptr[0],
				   *member(ours, "type")),
	      "type");
	CHECK(data->type == MSGPACK_OBJECT_MAP, "data");
	CHECK(data->via.map.size == values->via.array.size, "%u fields",
	      data->via.map.size);
	snprintf(list, sizeof(list), "%s", names);
	for (char *save, *name = strtok_r(list, " ", &save); name;
	     name = strtok_r(NULL, " ", &save), i++) {
		const msgpack_object *o = member(data, name);

		CHECK(o, "no %s", name);
		CHECK(o && i < values->via.array.size &&
			      msgpack_object_equal(*o,
						   values->via.array.ptr[i]),
		      "%s differs", name);
	}
	CHECK(i == values->via.array.size, "%u names", i);
}

static void recorded_responses(const char *dir)
{
	static const char *const names[] = {
		"client_timestamp_ns server_timestamp_ns server_rtt_ns",
		"client_timestamp_ns server_timestamp_ns server_rtt_ns",
		"device_name vendor_id max_transfer_size max_sessions "
		"active_sessions port_gid port_lid supported_auth version "
		"real_rdma",
		"session_id local_addr local_key transfer_size expected_crc "
		"expires_at_ns",
		"session_id local_addr local_key transfer_size expected_crc "
		"expires_at_ns",
		"code message category recoverable",
		"success server_crc message",
		"success server_crc message",
		"code message category recoverable",
		"code message category recoverable",
	};

	for (int i = 0; i < 10; i++) {
		struct frame f = load(dir, 2 * i + 1, "rsp");
		msgpack_unpacked theirs, ours;
		struct engine_stream s;
		struct engine_message m;
		size_t off = 0;

		if (decode_frame(&m, &f))
			continue;
		engine_stream_init(&s, -1, 4096);
		CHECK(!engine_encode(&m, &s), "response %d", i);
		msgpack_unpacked_init(&theirs);
		msgpack_unpacked_init(&ours);
		msgpack_unpack_next(&theirs, f.bytes + ENGINE_PREFIX_SIZE,
				    f.size - ENGINE_PREFIX_SIZE, &off);
		off = 0;
		msgpack_unpack_next(
			&ours, s.out.data + ENGINE_PREFIX_SIZE,
			engine_stream_pending(&s) - ENGINE_PREFIX_SIZE, &off);
		compare_response(&theirs.data, &ours.data, names[i]);
		msgpack_unpacked_destroy(&theirs);
		msgpack_unpacked_destroy(&ours);
		engine_stream_close(&s);
	}
}

/* Every truncation, and every byte changed, of every frame. */
static void damaged_frames(const char *dir)
{
	struct engine_message m;
	struct engine_fault fault;

	for (int i = 0; i < 21; i++) {
		struct frame f = load(dir, i, i % 2 ? "rsp" : "req");
		char *body = f.bytes + ENGINE_PREFIX_SIZE;
		size_t size = f.size - ENGINE_PREFIX_SIZE;

		for (size_t cut = 0; cut < size; cut++)
			CHECK(decode_exact(&m, body, cut, &fault) == -EBADMSG &&
				      fault.text[0],
			      "frame %d cut at %zu", i, cut);
		for (size_t at = 0; at < size; at++)
			for (int bit = 0; bit < 8; bit++) {
				body[at] = (char)(body[at] ^ 1 << bit);
				decode_exact(&m, body, size, &fault);
				body[at] = (char)(body[at] ^ 1 << bit);
			}
	}
}

/* ---- forms -------------------------------------------------------------- */

static msgpack_sbuffer buf;
static msgpack_packer pk;

static void begin(void)
{
	msgpack_sbuffer_clear(&buf);
	msgpack_packer_init(&pk, &buf, msgpack_sbuffer_write);
}

static void text(const char *s)
{
	msgpack_pack_str_with_body(&pk, s, strlen(s));
}

/* Decode what was packed; the reason, or "" if it is good. */
static const char *result(struct engine_message *m)
{
	static struct engine_fault fault;

	fault.text[0] = 0;
	return engine_decode(m, buf.data, buf.size, &fault) ? fault.text : "";
}

static void accepts(struct engine_message *m, const char *what)
{
	const char *why = result(m);

	CHECK(!*why, "%s: %s", what, why);
}

static void refuses(const char *pattern, const char *what)
{
	struct engine_message m;
	const char *why = result(&m);

	CHECK(strstr(why, pattern), "%s: \"%s\" is not in \"%s\"", what,
	      pattern, why);
}

/* {"type": NAME, "data": map of COUNT}; the pairs are the caller's. */
static void request(const char *name, size_t count)
{
	begin();
	msgpack_pack_map(&pk, 2);
	text("type");
	text(name);
	text("data");
	msgpack_pack_map(&pk, count);
}

static void forms(void)
{
	struct engine_message m;

	begin(); /* data before type, keys in another order, more of them */
	msgpack_pack_map(&pk, 3);
	text("later");
	msgpack_pack_nil(&pk);
	text("data");
	msgpack_pack_map(&pk, 4);
	text("client_id");
	msgpack_pack_nil(&pk);
	msgpack_pack_int(&pk, 7);
	text("a key that is no string");
	text("extra");
	msgpack_pack_array(&pk, 1);
	msgpack_pack_double(&pk, 1.5);
	text("timestamp_ns");
	msgpack_pack_fix_int64(&pk, 5);
	text("type");
	text("Ping");
	accepts(&m, "map");
	CHECK(m.type == ENGINE_PING && m.ping.timestamp_ns == 5, "map");
	CHECK(!m.ping.client_id.data, "nil");

	begin(); /* arrays; what may be absent is not there; one field more */
	msgpack_pack_array(&pk, 2);
	text("CompleteRead");
	msgpack_pack_array(&pk, 3);
	text("x");
	msgpack_pack_true(&pk);
	msgpack_pack_fix_uint16(&pk, 9);
	accepts(&m, "array");
	CHECK(m.type == ENGINE_COMPLETE_READ && m.complete_read.success &&
		      m.complete_read.bytes_transferred == 9,
	      "array");

	begin();
	msgpack_pack_array(&pk, 2);
	text("Ping");
	msgpack_pack_array(&pk, 3);
	msgpack_pack_int(&pk, 1);
	text("me");
	text("more");
	accepts(&m, "longer array");
	CHECK(engine_text_is(m.ping.client_id, "me"), "longer array");

	begin();
	msgpack_pack_map(&pk, 1);
	text("type");
	text("GetCapabilities");
	accepts(&m, "no data at all");
	CHECK(m.type == ENGINE_GET_CAPABILITIES, "no data at all");
}

static void timestamp(int64_t value)
{
	request("Ping", 1);
	text("timestamp_ns");
	msgpack_pack_int64(&pk, value);
}

static void integers(void)
{
	struct engine_message m;

	timestamp(-1);
	refuses("Ping: field timestamp_ns is negative: -1", "-1");
	timestamp(INT64_MIN);
	refuses("is negative: -9223372036854775808", "least");
	request("Ping", 1);
	text("timestamp_ns");
	msgpack_pack_uint64(&pk, UINT64_MAX);
	accepts(&m, "greatest");
	CHECK(m.ping.timestamp_ns == UINT64_MAX, "greatest");
	request("Ping", 1);
	text("timestamp_ns");
	msgpack_pack_double(&pk, 5);
	refuses("timestamp_ns is a float, not an integer", "float");

	begin();
	msgpack_pack_array(&pk, 2);
	text("StartRead");
	msgpack_pack_array(&pk, 8);
	for (int i = 0; i < 8; i++)
		msgpack_pack_uint64(&pk, i == 2 ? UINT64_C(1) << 32 : 1);
	refuses("StartRead: field cookie is 4294967296, more than 4294967295",
		"33 bits");

	begin();
	msgpack_pack_array(&pk, 2);
	text("StartRead");
	msgpack_pack_array(&pk, 8);
	msgpack_pack_fix_uint64(&pk, 1);
	msgpack_pack_fix_int64(&pk, 2);
	msgpack_pack_fix_uint32(&pk, 3);
	msgpack_pack_fix_int32(&pk, 4);
	msgpack_pack_fix_uint16(&pk, 5);
	msgpack_pack_fix_int16(&pk, 6);
	msgpack_pack_fix_uint8(&pk, 7);
	msgpack_pack_fix_int8(&pk, 8);
	accepts(&m, "widths");
	CHECK(m.start_read.volume_id == 1 && m.start_read.needle_id == 2 &&
		      m.start_read.cookie == 3 && m.start_read.offset == 4 &&
		      m.start_read.size == 5 && m.start_read.remote_addr == 6 &&
		      m.start_read.remote_key == 7 &&
		      m.start_read.timeout_secs == 8,
	      "widths");
}

static void wrong_content(void)
{
	request("Ping", 0);
	refuses("Ping: field timestamp_ns is missing", "missing");
	request("Ping", 2);
	for (int i = 0; i < 2; i++) {
		text("timestamp_ns");
		msgpack_pack_int(&pk, 1);
	}
	refuses("timestamp_ns is given twice", "twice");
	request("Ping", 2);
	text("timestamp_ns");
	msgpack_pack_int(&pk, 1);
	text("client_id");
	msgpack_pack_str_with_body(&pk, "a\xc0\x80", 3);
	refuses("Ping: field client_id is not UTF-8", "overlong");
	request("CompleteRead", 1);
	text("session_id");
	msgpack_pack_bin_with_body(&pk, "abc", 3);
	refuses("session_id is binary data, not a string", "bin");
	request("CompleteRead", 2);
	text("session_id");
	text("x");
	text("success");
	msgpack_pack_int(&pk, 1);
	refuses("success is an integer, not a bool", "bool");
	begin();
	msgpack_pack_int(&pk, 1);
	refuses("it is an integer, not a map or array", "integer");
	begin();
	msgpack_pack_map(&pk, 0);
	refuses("it has no type", "empty map");
	begin();
	msgpack_pack_array(&pk, 2);
	text("Ping");
	text("data");
	refuses("Ping: data is a string", "data");
	begin();
	msgpack_pack_array(&pk, 1);
	msgpack_pack_int(&pk, 1);
	refuses("field type is an integer", "type");
}

/* ---- hostile bytes ------------------------------------------------------ */

static void raw(const char *bytes, size_t size)
{
	msgpack_sbuffer_clear(&buf);
	msgpack_sbuffer_write(&buf, bytes, size);
}
#define RAW(bytes) raw(bytes, sizeof(bytes) - 1)

static void hostile(void)
{
	struct engine_message m;
	char deep[100];

	for (size_t depth = 1; depth <= 99; depth++) {
		memset(deep, '\x91', depth);
		deep[depth] = '\xc0';
		raw(deep, depth + 1);
		refuses(depth > ENGINE_DEPTH_MAX ? "nested deeper" : "type",
			"nesting");
	}
	RAW("\xdd\xff\xff\xff\xff");
	refuses("ends in the middle", "2^32 - 1 elements");
	RAW("\xdf\x80\x00\x00\x00\xc0");
	refuses("ends in the middle", "2^31 pairs");
	RAW("\xdb\xff\xff\xff\xff"
	    "a");
	refuses("ends in the middle", "4 GiB string");
	RAW("\xc9\xff\xff\xff\xff\x01");
	refuses("ends in the middle", "4 GiB extension");
	RAW("\xc1");
	refuses("0xc1", "never used");
	RAW("\x90\xc0");
	refuses("1 bytes follow", "two values");
	RAW("");
	refuses("ends in the middle", "nothing");
	/* The longest short string is one, and the longest short array. */
	RAW("\x92\xa4Ping\x92\x01\xbf"
	    "a string of thirty-one letters.");
	accepts(&m, "31 bytes");
	CHECK(m.ping.client_id.size == 31, "%zu", m.ping.client_id.size);
	RAW("\x9f\xdd\xff\xff\xff\xff\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0"
	    "\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0\xc0"
	    "\xc0");
	refuses("ends in the middle", "2^32 - 1 elements, in 15");

	begin(); /* as many values as may be, and one more */
	for (int more = 0; more < 2; more++) {
		begin();
		msgpack_pack_array(&pk, 3);
		text("GetCapabilities");
		msgpack_pack_nil(&pk);
		msgpack_pack_array(&pk, ENGINE_VALUES_MAX - 4 + more);
		for (int i = 0; i < ENGINE_VALUES_MAX - 4 + more; i++)
			msgpack_pack_nil(&pk);
		if (more)
			refuses("more than 4096 values", "values");
		else
			accepts(&m, "values");
	}
}

/* Its lists have so many entries; as an array, with four fields that nobody knows. */
static void capabilities(int auths, int extensions)
{
	begin();
	msgpack_pack_array(&pk, 2);
	text("GetCapabilitiesResponse");
	msgpack_pack_array(&pk, 15);
	text("rxe0");
	for (int i = 0; i < 4; i++)
		msgpack_pack_int(&pk, i);
	text("::1");
	msgpack_pack_int(&pk, 0);
	msgpack_pack_array(&pk, auths);
	for (int i = 0; i < auths; i++)
		text("none");
	text("1.0");
	msgpack_pack_true(&pk);
	msgpack_pack_array(&pk, extensions);
	for (int i = 0; i < extensions; i++)
		text("MapBuffer");
	for (int i = 0; i < 4; i++)
		msgpack_pack_nil(&pk);
}

static void long_lists(void)
{
	struct engine_message m;

	capabilities(ENGINE_TEXTS_MAX, ENGINE_TEXTS_MAX);
	accepts(&m, "16 entries");
	capabilities(ENGINE_TEXTS_MAX + 1, 1);
	refuses("supported_auth has more than 16 entries", "17 entries");
	capabilities(1, ENGINE_TEXTS_MAX + 1);
	refuses("extensions has more than 16 entries", "17 entries");
}

/* ---- our own messages, there and back ----------------------------------- */

static void there_and_back(void)
{
	struct engine_message m = { .type = ENGINE_GET_CAPABILITIES_RESPONSE };
	struct engine_message back;
	struct engine_stream s;
	struct engine_fault fault;

	m.capabilities.device_name = engine_text_of("rxe0");
	m.capabilities.port_lid = 65535;
	m.capabilities.real_rdma = true;
	m.capabilities.max_transfer_size = UINT64_MAX;
	m.capabilities.extensions.count = 2;
	m.capabilities.extensions.text[0] = engine_text_of("MapBuffer");
	m.capabilities.extensions.text[1] = engine_text_of("ReadProgress");
	engine_stream_init(&s, -1, 4096);
	CHECK(!engine_encode(&m, &s), "encode");
	CHECK(!engine_decode(&back, s.out.data + 4, s.out.end - 4, &fault),
	      "%s", fault.text);
	CHECK(back.capabilities.port_lid == 65535 &&
		      back.capabilities.real_rdma &&
		      back.capabilities.max_transfer_size == UINT64_MAX,
	      "values");
	CHECK(engine_text_is(back.capabilities.device_name, "rxe0"), "text");
	CHECK(back.capabilities.extensions.count == 2 &&
		      engine_text_is(back.capabilities.extensions.text[1],
				     "ReadProgress"),
	      "list");
	engine_stream_close(&s);

	engine_stream_init(&s, -1, 64); /* no room */
	CHECK(engine_encode(&m, &s) == -ENOBUFS, "no room");
	CHECK(!engine_stream_pending(&s), "nothing is left of it");
	engine_stream_close(&s);
}

int main(int argc, char *argv[])
{
	if (argc != 2)
		return 2;
	msgpack_sbuffer_init(&buf);
	recorded_requests(argv[1]);
	recorded_responses(argv[1]);
	damaged_frames(argv[1]);
	forms();
	integers();
	wrong_content();
	hostile();
	long_lists();
	there_and_back();
	msgpack_sbuffer_destroy(&buf);
	return unit_result("engine_proto");
}

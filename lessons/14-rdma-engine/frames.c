// SPDX-License-Identifier: MIT
/*
 * frames.c —— 一条消息的每一个字节，以及字节流怎样把它切碎
 *
 * 这里不需要 RDMA 设备，也不需要 engine：engine_stream 的两端在一个进程里，中间是一对
 * 连着的 Unix socket。
 */
#include "base/deadline.h"
#include "base/report.h"
#include "walk.h"

#include <endian.h>
#include <errno.h>
#include <msgpack.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define OUT_MOST    (4u << 20)
#define ORIGINAL_MS 100 /* 原版等长度的期限 */
#define HEX_SIZE    64
#define SHOWN	    15 /* bytes in a line that stands alone */

struct engine_message start_read_of(uint64_t id)
{
	return (struct engine_message){
		.type = ENGINE_START_READ,
		.start_read = { .volume_id = VOLUME,
				.needle_id = id,
				.cookie = COOKIE,
				.timeout_secs = 30 },
	};
}

/* ---- 拆开一条 frame ------------------------------------------------------- */

static void show_bytes(const char *frame, size_t at, size_t size,
		       const char *what)
{
	char hex[HEX_SIZE] = "";

	for (size_t i = 0; i < size && 3 * i + 4 < sizeof(hex); i++)
		snprintf(hex + 3 * i - !!i, 4, "%s%02x", i ? " " : "",
			 (unsigned char)frame[at + i]);
	if (*what)
		report_fact("%4zu  %-40s %s", at, hex, what);
	else
		report_fact("%4zu  %s", at, hex);
}

/* map 与 array 的头只说有几个元素：1 个字节的短形式，或者再跟 2、4 个字节。*/
static size_t container_head(char first)
{
	switch ((unsigned char)first) {
	case 0xdc:
	case 0xde:
		return 3;
	case 0xdd:
	case 0xdf:
		return 5;
	}
	return 1;
}

static void value_text(char *out, size_t size, const msgpack_object *o)
{
	switch (o->type) {
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		snprintf(out, size, "%ju", o->via.u64);
		break;
	case MSGPACK_OBJECT_STR:
		snprintf(out, size, "\"%.*s\"", (int)o->via.str.size,
			 o->via.str.ptr);
		break;
	case MSGPACK_OBJECT_MAP:
		snprintf(out, size, "a map of %u pairs", o->via.map.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		snprintf(out, size, "an array of %u", o->via.array.size);
		break;
	default:
		snprintf(out, size, "nil");
	}
}

/* 打印 @at 处的那个值，容器则连同里面的；返回它后面的位置，0：不是 MessagePack。*/
static size_t show_value(const char *frame, size_t at, size_t end)
{
	msgpack_unpacked u;
	size_t next = at, children = 0;
	char text[64];

	msgpack_unpacked_init(&u);
	if (msgpack_unpack_next(&u, frame, end, &next) !=
	    MSGPACK_UNPACK_SUCCESS)
		next = 0;
	value_text(text, sizeof(text), &u.data);
	if (u.data.type == MSGPACK_OBJECT_MAP)
		children = 2 * (size_t)u.data.via.map.size;
	else if (u.data.type == MSGPACK_OBJECT_ARRAY)
		children = u.data.via.array.size;
	msgpack_unpacked_destroy(&u);
	if (!next || !children) {
		show_bytes(frame, at, next - at, text);
		return next;
	}
	/* 容器没有结束标记：读完头里说的那么多个值，它就结束了。*/
	show_bytes(frame, at, container_head(frame[at]), text);
	at += container_head(frame[at]);
	while (at && children--)
		at = show_value(frame, at, end);
	return at;
}

static const char *frame_of(const struct engine_stream *s, size_t *size)
{
	*size = engine_stream_pending(s);
	return s->out.data + s->out.start;
}

/* 同一个 StartRead 的数组形式：没有名字，全凭次序。原版的 engine 就这样作答。*/
static int encode_as_array(const struct engine_start_read *r,
			   struct engine_stream *s)
{
	msgpack_packer pk;

	engine_stream_begin(s);
	msgpack_packer_init(&pk, s, engine_stream_append);
	msgpack_pack_array(&pk, 2);
	msgpack_pack_str_with_body(&pk, "StartRead", 9);
	msgpack_pack_array(&pk, 9);
	msgpack_pack_uint32(&pk, r->volume_id);
	msgpack_pack_uint64(&pk, r->needle_id);
	msgpack_pack_uint32(&pk, r->cookie);
	msgpack_pack_uint64(&pk, r->offset);
	msgpack_pack_uint64(&pk, r->size);
	msgpack_pack_uint64(&pk, r->remote_addr);
	msgpack_pack_uint32(&pk, r->remote_key);
	msgpack_pack_uint64(&pk, r->timeout_secs);
	msgpack_pack_nil(&pk); /* auth_token：没有给，也要占住它的位置 */
	return engine_stream_end(s);
}

/* @frame 解出来的与 @message 一样吗？借 JSON 来比：名字与值都在里面。*/
static bool decodes_to(const char *frame, size_t size,
		       const struct engine_message *message)
{
	struct engine_message decoded;
	struct engine_fault fault;
	json_t *a, *b;
	bool same;

	if (engine_decode(&decoded, frame + ENGINE_PREFIX_SIZE,
			  size - ENGINE_PREFIX_SIZE, &fault))
		return false;
	a = engine_message_as_json(&decoded);
	b = engine_message_as_json(message);
	same = json_equal(a, b);
	json_decref(a);
	json_decref(b);
	return same;
}

int take_frame_apart(void)
{
	const struct engine_message m = start_read_of(TEXT_NEEDLE);
	struct engine_stream map, array;
	const char *frame;
	size_t size;
	int rc = 0;

	engine_stream_init(&map, -1, OUT_MOST);
	engine_stream_init(&array, -1, OUT_MOST);
	report_step("a StartRead, byte by byte");
	if (engine_encode(&m, &map) || encode_as_array(&m.start_read, &array)) {
		rc = bad("no memory for two messages");
		goto out;
	}
	frame = frame_of(&map, &size);
	show_bytes(frame, 0, ENGINE_PREFIX_SIZE,
		   "length of the rest, little-endian");
	if (show_value(frame, ENGINE_PREFIX_SIZE, size) != size ||
	    !decodes_to(frame, size, &m)) {
		rc = bad("the message is not what was encoded");
		goto out;
	}
	report_fact("%zu bytes as maps, the names spelled out", size);
	frame = frame_of(&array, &size);
	if (!decodes_to(frame, size, &m))
		rc = bad("the array form decodes to something else");
	else
		report_fact("%zu bytes as arrays, and it decodes to the same:",
			    size);
	for (size_t at = 0; at < size && !rc; at += SHOWN)
		show_bytes(frame, at, size - at < SHOWN ? size - at : SHOWN,
			   "");
out:
	engine_stream_close(&map);
	engine_stream_close(&array);
	return rc;
}

/* ---- 字节流 ---------------------------------------------------------------- */

/* @size 个字节到了：现在有几条完整的消息？取走并数出来。*/
static int take_messages(struct engine_stream *in, size_t size)
{
	const char *data;
	uint32_t length = 0;
	int messages = 0, rc;

	if (engine_stream_fill(in) < 0)
		return -EIO;
	while ((rc = engine_stream_frame(in, &data, &length)) == 1) {
		messages++;
		engine_stream_next(in);
	}
	if (messages)
		report_fact("%3zu bytes arrive: %d message%s, of %u bytes each",
			    size, messages, messages > 1 ? "s" : "", length);
	else
		report_fact("%3zu bytes arrive: no message yet", size);
	return rc ? rc : messages;
}

// region forget-prefix
/*
 * 原版的读法：read_exact 外面套一个 100 ms 的 timeout。到点时 future 被取消，已经从
 * socket 里取走的字节跟着它一起没了；下一次“从头读 4 个字节”，读到的是别的东西。
 */
static int read_prefix(int fd, uint32_t *length)
{
	unsigned char prefix[ENGINE_PREFIX_SIZE];
	int64_t deadline = deadline_in_ms(ORIGINAL_MS);
	size_t got = 0;

	while (got < sizeof(prefix)) {
		int rc = wait_fd(fd, POLLIN, deadline);
		ssize_t n;

		if (rc)
			return rc; /* prefix 与 got 是局部变量：就此丢失 */
		n = recv(fd, prefix + got, sizeof(prefix) - got, MSG_DONTWAIT);
		if (n <= 0)
			return -ECONNRESET;
		got += (size_t)n;
	}
	memcpy(length, prefix, sizeof(*length));
	*length = le32toh(*length);
	return 0;
}

static int read_as_the_original(struct engine_stream *in, int to,
				const char *frame, size_t size)
{
	uint32_t length = 0;
	int rc;

	send(to, frame, 2, MSG_NOSIGNAL);
	rc = read_prefix(in->fd, &length);
	report_fact("2 bytes arrive: %s",
		    rc == -ETIMEDOUT ? "time-out, read again from the start"
				     : "?");
	send(to, frame + 2, size - 2, MSG_NOSIGNAL);
	rc = read_prefix(in->fd, &length);
	report_fact("%zu bytes arrive: the next message has %u bytes", size - 2,
		    length);
	if (rc || length <= ENGINE_FRAME_MAX)
		return bad("the framing is not lost");
	return fail(-EMSGSIZE,
		    "keep what has arrived until a whole length is there",
		    "Message too large: bytes 2 to 5 were taken for a length, "
		    "and every message from here on is out of step");
}
// endregion forget-prefix

/* 字节怎样到达，写的人说了不算：同一条消息，切成四段，再两条连成一段。*/
static int split(struct engine_stream *in, int to, const char *frame,
		 size_t size)
{
	const size_t pieces[] = { 2, 2, size - 5, 1, 2 * size };
	const int wanted[] = { 0, 0, 0, 1, 2 };
	const char *at = frame;
	int rc = 0;

	for (size_t i = 0; i < 5 && !rc; i++) {
		if (i == 1) /* 长度本身也被切开，中间隔着很久 */
			rc = deadline_sleep_ms(PAUSE_MS, INT64_MAX);
		if (i == 4) {
			at = frame;
			send(to, frame, size, MSG_NOSIGNAL);
		}
		send(to, at, i == 4 ? size : pieces[i], MSG_NOSIGNAL);
		at += pieces[i];
		if (!rc && take_messages(in, pieces[i]) != wanted[i])
			rc = bad("a message is cut or lost");
	}
	return rc;
}

static int through_a_socket(int (*play)(struct engine_stream *in, int to,
					const char *frame, size_t size))
{
	const struct engine_message m = start_read_of(TEXT_NEEDLE);
	struct engine_stream out, in;
	const char *frame;
	size_t size;
	int fds[2];
	int rc;

	report_step("the same on a stream socket, in pieces");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		return bad(strerror(errno));
	engine_stream_init(&in, fds[0], OUT_MOST);
	engine_stream_init(&out, fds[1], OUT_MOST);
	rc = engine_encode(&m, &out);
	frame = frame_of(&out, &size);
	rc = rc ? bad("no memory for a message")
		: play(&in, out.fd, frame, size);
	engine_stream_close(&in);
	engine_stream_close(&out);
	return rc;
}

int split_the_stream(void)
{
	return through_a_socket(split);
}

int forget_prefix(void *walk)
{
	(void)walk;
	return through_a_socket(read_as_the_original);
}

/* ---- 把消息印出来 ----------------------------------------------------------- */

static void value_of(char *out, size_t size, const char *name, json_t *value)
{
	char *text;

	if (strstr(name, "crc") || strstr(name, "cookie")) {
		snprintf(out, size, "0x%08llx", json_integer_value(value));
		return;
	}
	text = json_dumps(value, JSON_ENCODE_ANY);
	snprintf(out, size, "%s", text ? text : "?");
	free(text);
}

void show_message(const char *arrow, const struct engine_message *message)
{
	json_t *root = engine_message_as_json(message);
	json_t *data = json_object_get(root, "data"), *value;
	char line[512] = "", text[256];
	const char *name;
	/* 三个字段一行；Error 的文字长，各占一行。*/
	const size_t in_line = message->type == ENGINE_ERROR ? 1 : 3;
	size_t n = 0, fields = 0;

	report_fact("%s %s", arrow,
		    json_string_value(json_object_get(root, "type")));
	json_object_foreach(data, name, value)
	{
		value_of(text, sizeof(text), name, value);
		n += (size_t)snprintf(line + n, sizeof(line) - n, "%s%s %s",
				      n ? ", " : "", name, text);
		if (++fields % in_line && fields < json_object_size(data))
			continue;
		report_fact("   %s", line);
		n = 0;
	}
	json_decref(root);
}

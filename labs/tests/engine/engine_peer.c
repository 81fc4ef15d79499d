// SPDX-License-Identifier: MIT
/*
 * engine_peer.c - a client of rdma_engine that does what it is told, byte by byte,
 * well-behaved or not. It shares no code with the engine: the frames that it
 * sends are recorded ones or made here, and what it prints of an answer is what
 * msgpack-c finds in it.
 *
 *	engine_peer SOCKET ITEM...
 *
 * Items, in order:
 *	frame=FILE	send a recorded frame; a session id in it becomes that of
 *			the first or second session begun here
 *	cuts=FILE	send each truncation of its value, with the length that
 *			it then has; each must be answered by an Error
 *	hangups=FILE	send its first byte and hang up, its first two, ...
 *	arrays		from now on requests are arrays, with the smallest integers
 *	ping caps	send a Ping, a GetCapabilities
 *	start=V,N,C[,OFFSET,SIZE,SECS,ADDR,KEY]   send a StartRead
 *	sessions=N,V,N,C  begin N sessions, print how many answers were what
 *	token=TEXT	put it into later StartReads
 *	map=K complete=K,SUCCESS,BYTES[,CRC]	 of the K-th session (from 1)
 *	id=UUID		a session that somebody else began, as if begun here
 *	hex=BYTES length=N fill=N	send bytes, a length, N zeros
 *	trickle=MS	from now on one byte at a time, with a pause before each
 *	answer		wait for an answer, print it as one line of JSON
 *	types		the same, with the types in the place of the values
 *	bytes		map what came with the last answer, print its bytes as
 *			hex, 64 at most, and whether it can be mapped for writing
 *	silence=MS	nothing may come for so long
 *	eof		wait until the engine closes
 *	shut sleep=MS	send no more; wait
 *	gate=FILE	wait until it is there
 *	say=TEXT	print it: the items before it are done
 *	repeat=N	do the next item N times
 *	clients=N ITEM... end	do these items N times, each time as a new client,
 *			who stays
 *
 * Exit code: 0, or 1 at the first item that fails.
 */
#include "msgpack_json.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_MS	   60000
#define ID_SIZE	   36
#define MOST	   (2u << 20)
#define FRAME_MOST 4096 /* of a recorded one */
#define BATCH	   50

static struct {
	int sock;
	const char *path;
	int trickle_ms; /* -1: no */
	bool arrays;
	const char *token;
	char ids[64][ID_SIZE + 1]; /* sessions begun */
	int n_ids;
	int fd; /* came with the last answer */
	uint64_t mapped;
	char answer[MOST];
	size_t answer_size;
} peer = { .sock = -1, .trickle_ms = -1, .fd = -1 };

static msgpack_sbuffer buf;
static msgpack_packer pk;

static int fail(const char *what)
{
	fprintf(stderr, "engine_peer: %s: %s\n", what, strerror(errno));
	return 1;
}

static int connect_again(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timeval wait = { .tv_sec = WAIT_MS / 1000 };

	if (peer.sock >= 0)
		close(peer.sock);
	peer.sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(peer.sock, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", peer.path);
	if (connect(peer.sock, (struct sockaddr *)&address, sizeof(address)))
		return fail("connect");
	return 0;
}

/* ---- bytes -------------------------------------------------------------- */

static int put(const char *data, size_t size)
{
	while (size) {
		size_t part = peer.trickle_ms >= 0 ? 1 : size;
		ssize_t n;

		if (peer.trickle_ms > 0)
			poll(NULL, 0, peer.trickle_ms);
		n = send(peer.sock, data, part, MSG_NOSIGNAL);
		if (n < 0)
			return fail("send");
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static int put_length(uint64_t length)
{
	uint32_t wire = htole32((uint32_t)length);

	return put((char *)&wire, sizeof(wire));
}

static int put_zeros(size_t n)
{
	char *zeros = calloc(1, n + 1);
	int rc = put(zeros, n);

	free(zeros);
	return rc;
}

static int put_hex(const char *hex)
{
	char byte[3] = "", out;

	for (; hex[0] && hex[1]; hex += 2) {
		memcpy(byte, hex, 2);
		out = (char)strtol(byte, NULL, 16);
		if (put(&out, 1))
			return 1;
	}
	return 0;
}

/* The recorded ids, in the order in which their sessions began. */
static void replace_ids(char *data, size_t size)
{
	static const char *const recorded[] = {
		"f2385930-7c39-4acf-b319-b87e5600058d",
		"72c5e392-b6b3-4677-ba0a-587a6aa95e3d",
	};

	for (int i = 0; i < 2 && i < peer.n_ids; i++) {
		char *at = memmem(data, size, recorded[i], ID_SIZE);

		if (at)
			memcpy(at, peer.ids[i], ID_SIZE);
	}
}

/* Returns how many bytes it has, 0 on failure. */
static size_t get_file(const char *path, char data[FRAME_MOST])
{
	FILE *file = fopen(path, "rb");
	size_t size;

	if (!file) {
		fail(path);
		return 0;
	}
	size = fread(data, 1, FRAME_MOST, file);
	fclose(file);
	replace_ids(data, size);
	return size;
}

static int put_file(const char *path)
{
	char data[FRAME_MOST];
	size_t size = get_file(path, data);

	return size ? put(data, size) : 1;
}

static int put_hangups(const char *path)
{
	char data[FRAME_MOST];
	size_t size = get_file(path, data);
	int rc = !size;

	for (size_t n = 1; n < size && !rc; n++)
		rc = put(data, n) || connect_again();
	return rc;
}

/* ---- requests ----------------------------------------------------------- */

static void text(const char *s)
{
	msgpack_pack_str_with_body(&pk, s, strlen(s));
}

/* A field's name: in an array its place says which one it is. */
static void name(const char *s)
{
	if (!peer.arrays)
		text(s);
}

static void begin_fields(size_t n)
{
	if (peer.arrays)
		msgpack_pack_array(&pk, n);
	else
		msgpack_pack_map(&pk, n);
}

static void begin(const char *type, size_t fields)
{
	msgpack_sbuffer_clear(&buf);
	begin_fields(2);
	name("type");
	text(type);
	name("data");
	begin_fields(fields);
}

static void number(const char *what, uint64_t value)
{
	name(what);
	if (peer.arrays)
		msgpack_pack_uint64(&pk, value);
	else
		msgpack_pack_fix_uint64(&pk, value);
}

static int put_message(void)
{
	/* One write, as clients do, unless it trickles. */
	char frame[4 + 8192];
	uint32_t wire = htole32((uint32_t)buf.size);

	memcpy(frame, &wire, 4);
	memcpy(frame + 4, buf.data, buf.size);
	return put(frame, 4 + buf.size);
}

static int put_ping(void)
{
	begin("Ping", 1);
	number("timestamp_ns", 7);
	return put_message();
}

static int put_caps(void)
{
	begin("GetCapabilities", 1);
	name("client_id");
	text("peer");
	return put_message();
}

/* "1,2,3" to numbers; those that are missing stay. */
static void numbers(const char *list, uint64_t *out, size_t most)
{
	char *end;

	for (size_t i = 0; i < most && list && *list; i++) {
		out[i] = strtoull(list, &end, 0);
		list = *end == ',' ? end + 1 : NULL;
	}
}

static int put_start(const char *list)
{
	static const char *const names[] = {
		"volume_id", "needle_id",    "cookie",	    "offset",
		"size",	     "timeout_secs", "remote_addr", "remote_key",
	};
	/* A map may have any order, an array has the protocol's. */
	static const int order[] = { 0, 1, 2, 3, 4, 6, 7, 5 };
	uint64_t n[8] = { 0 };

	n[5] = 30;
	numbers(list, n, 8);
	begin("StartRead", peer.token ? 9 : 8);
	for (int i = 0; i < 8; i++) {
		int k = peer.arrays ? order[i] : i;

		number(names[k], n[k]);
	}
	if (peer.token) {
		name("auth_token");
		text(peer.token);
	}
	return put_message();
}

static const char *id_of(uint64_t k)
{
	return k && k <= (uint64_t)peer.n_ids ? peer.ids[k - 1] : "none";
}

static int put_map(const char *list)
{
	uint64_t k = 0;

	numbers(list, &k, 1);
	begin("MapBuffer", 1);
	name("session_id");
	text(id_of(k));
	return put_message();
}

static int put_complete(const char *list)
{
	uint64_t n[4] = { 0, 1, 0, UINT64_MAX };

	numbers(list, n, 4);
	begin("CompleteRead", n[3] == UINT64_MAX ? 3 : 4);
	name("session_id");
	text(id_of(n[0]));
	name("success");
	if (n[1])
		msgpack_pack_true(&pk);
	else
		msgpack_pack_false(&pk);
	number("bytes_transferred", n[2]);
	if (n[3] != UINT64_MAX)
		number("client_crc", n[3]);
	return put_message();
}

/* ---- answers ------------------------------------------------------------ */

static void keep_fd(struct msghdr *msg)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (!c || c->cmsg_type != SCM_RIGHTS)
		return;
	if (peer.fd >= 0)
		close(peer.fd);
	memcpy(&peer.fd, CMSG_DATA(c), sizeof(int));
}

/* Exactly @size bytes; 0: they came, 1: the end or an error, 2: too late. */
static int get(char *data, size_t size)
{
	struct pollfd p = { .fd = peer.sock, .events = POLLIN };

	while (size) {
		char control[64];
		struct iovec iov = { data, size };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = control,
				      .msg_controllen = sizeof(control) };
		ssize_t n;

		if (poll(&p, 1, WAIT_MS) <= 0)
			return 2;
		n = recvmsg(peer.sock, &msg, MSG_CMSG_CLOEXEC);
		if (n <= 0)
			return 1;
		keep_fd(&msg);
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static int get_answer(void)
{
	uint32_t wire;
	int rc = get((char *)&wire, sizeof(wire));

	if (!rc && le32toh(wire) > MOST)
		rc = 1;
	peer.answer_size = rc ? 0 : le32toh(wire);
	if (!rc)
		rc = get(peer.answer, peer.answer_size);
	if (rc)
		fprintf(stderr, "engine_peer: %s\n",
			rc == 1 ? "the engine has closed" : "no answer");
	return rc;
}

static void remember(const json_t *root)
{
	const json_t *data = json_object_get(root, "data");
	const char *type = json_string_value(json_object_get(root, "type"));
	const char *id = json_string_value(json_object_get(data, "session_id"));

	if (type && !strcmp(type, "StartReadResponse") && id &&
	    strlen(id) == ID_SIZE && peer.n_ids < 64)
		strcpy(peer.ids[peer.n_ids++], id);
	if (type && !strcmp(type, "MapBufferResponse"))
		peer.mapped = (uint64_t)json_integer_value(
			json_object_get(data, "size"));
}

/* The next answer, with its values or their types; NULL: none, or nonsense. */
static json_t *take_answer(bool types)
{
	msgpack_unpacked unpacked;
	json_t *json, *values;
	size_t off = 0;

	if (get_answer())
		return NULL;
	msgpack_unpacked_init(&unpacked);
	if (msgpack_unpack_next(&unpacked, peer.answer, peer.answer_size,
				&off) != MSGPACK_UNPACK_SUCCESS ||
	    off != peer.answer_size) {
		fprintf(stderr, "engine_peer: this is no MessagePack\n");
		return NULL;
	}
	json = as_json(&unpacked.data, false);
	remember(json);
	if (types) {
		values = json;
		json = as_json(&unpacked.data, true);
		json_object_set(json, "type", json_object_get(values, "type"));
		json_decref(values);
	}
	msgpack_unpacked_destroy(&unpacked);
	return json;
}

static void print(json_t *json)
{
	json_dumpf(json, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(json);
}

static int print_answer(bool types)
{
	json_t *json = take_answer(types);

	if (!json)
		return 1;
	print(json);
	return 0;
}

/* Add one to what @counts has of the next answer's type. */
static int count_answer(json_t *counts)
{
	json_t *json = take_answer(false);
	const char *type = json_string_value(json_object_get(json, "type"));
	json_int_t n = json_integer_value(json_object_get(counts, type));

	if (type)
		json_object_set_new(counts, type, json_integer(n + 1));
	json_decref(json);
	return !type;
}

static int put_cuts(const char *path)
{
	char data[FRAME_MOST];
	size_t size = get_file(path, data);
	json_t *counts = json_object();
	int rc = !size;

	for (size_t n = 0; n + 4 < size && !rc; n++)
		rc = put_length(n) || put(data + 4, n) || count_answer(counts);
	print(counts);
	return rc;
}

/* BATCH requests together, then their answers: many must not take long. */
static int put_sessions(const char *list)
{
	json_t *counts = json_object();
	const char *start = strchr(list, ',');
	int left = atoi(list), rc = !start;

	while (left > 0 && !rc) {
		int n = left < BATCH ? left : BATCH;

		for (int i = 0; i < n && !rc; i++)
			rc = put_start(start + 1);
		for (int i = 0; i < n && !rc; i++)
			rc = count_answer(counts);
		left -= n;
	}
	print(counts);
	return rc;
}

static int print_bytes(void)
{
	size_t size = peer.mapped ? peer.mapped : 1;
	unsigned char *at;
	void *writable;

	if (peer.fd < 0) {
		fprintf(stderr, "engine_peer: no descriptor came\n");
		return 1;
	}
	at = mmap(NULL, size, PROT_READ, MAP_SHARED, peer.fd, 0);
	if (at == MAP_FAILED)
		return fail("mmap");
	for (size_t i = 0; i < peer.mapped && i < 64; i++)
		printf("%02x", at[i]);
	munmap(at, size);
	writable = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, peer.fd,
			0);
	printf(" %s\n", writable == MAP_FAILED ? "read-only" : "WRITABLE");
	fflush(stdout);
	return 0;
}

static int await_gate(const char *path)
{
	for (int ms = 0; access(path, F_OK); ms += 10) {
		if (ms > WAIT_MS)
			return fail(path);
		poll(NULL, 0, 10);
	}
	return 0;
}

static int keep_id(const char *id)
{
	if (strlen(id) == ID_SIZE && peer.n_ids < 64)
		strcpy(peer.ids[peer.n_ids++], id);
	return 0;
}

static int check_silence(int ms)
{
	struct pollfd p = { .fd = peer.sock, .events = POLLIN };

	if (!poll(&p, 1, ms))
		return 0;
	fprintf(stderr, "engine_peer: something came\n");
	return 1;
}

static int await_end(void)
{
	struct pollfd p = { .fd = peer.sock, .events = POLLIN };
	char data[4096];

	for (;;) {
		ssize_t n;

		if (poll(&p, 1, WAIT_MS) <= 0) {
			fprintf(stderr, "engine_peer: the engine does not "
					"close\n");
			return 1;
		}
		n = recv(peer.sock, data, sizeof(data), 0);
		if (n <= 0) {
			puts("closed");
			fflush(stdout);
			return 0;
		}
	}
}

/* ---- items -------------------------------------------------------------- */

static const char *value_of(const char *item, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(item, name, length) && item[length] == '='
		       ? item + length + 1
		       : NULL;
}

static const struct {
	const char *name;
	int (*run)(const char *value);
} with_text[] = {
	{ "frame", put_file },	      { "cuts", put_cuts },
	{ "hangups", put_hangups },   { "sessions", put_sessions },
	{ "start", put_start },	      { "map", put_map },
	{ "complete", put_complete }, { "hex", put_hex },
	{ "gate", await_gate },	      { "id", keep_id },
};

static int do_text_item(const char *item)
{
	for (size_t i = 0; i < sizeof(with_text) / sizeof(*with_text); i++) {
		const char *v = value_of(item, with_text[i].name);

		if (v)
			return with_text[i].run(v);
	}
	fprintf(stderr, "engine_peer: what is %s?\n", item);
	return 2;
}

static int do_item(const char *item)
{
	const char *v;

	if (!strcmp(item, "ping"))
		return put_ping();
	if (!strcmp(item, "caps"))
		return put_caps();
	if (!strcmp(item, "answer") || !strcmp(item, "types"))
		return print_answer(*item == 't');
	if (!strcmp(item, "bytes"))
		return print_bytes();
	if (!strcmp(item, "eof"))
		return await_end();
	if (!strcmp(item, "shut"))
		return shutdown(peer.sock, SHUT_WR);
	if (!strcmp(item, "arrays"))
		return peer.arrays = true, 0;
	if ((v = value_of(item, "length")))
		return put_length(strtoull(v, NULL, 0));
	if ((v = value_of(item, "fill")))
		return put_zeros(strtoull(v, NULL, 0));
	if ((v = value_of(item, "silence")))
		return check_silence(atoi(v));
	if ((v = value_of(item, "say")))
		return puts(v) < 0 || fflush(stdout);
	if ((v = value_of(item, "sleep")))
		return poll(NULL, 0, atoi(v));
	if ((v = value_of(item, "trickle")))
		return peer.trickle_ms = atoi(v), 0;
	if ((v = value_of(item, "token")))
		return peer.token = v, 0;
	return do_text_item(item);
}

static int do_items(char *items[], int n);

static int as_clients(int clients, char *items[], int n)
{
	int rc = 0;

	while (clients-- > 0 && !rc) {
		peer.sock = -1; /* the last one stays open */
		peer.n_ids = 0;
		rc = connect_again() || do_items(items, n);
	}
	return rc;
}

/* How many of @items stand before "end". */
static int before_end(char *items[], int n)
{
	int i = 0;

	while (i < n && strcmp(items[i], "end"))
		i++;
	return i;
}

static int do_items(char *items[], int n)
{
	int rc = 0;

	for (int i = 0; i < n && !rc; i++) {
		const char *clients = value_of(items[i], "clients");
		const char *repeat = value_of(items[i], "repeat");
		int times = repeat ? atoi(repeat) : 1;

		if (clients) {
			int m = before_end(items + i + 1, n - i - 1);

			rc = as_clients(atoi(clients), items + i + 1, m);
			i += m + 1;
			continue;
		}
		i += repeat != NULL;
		while (times-- > 0 && i < n && !rc)
			rc = do_item(items[i]);
	}
	return rc;
}

int main(int argc, char *argv[])
{
	int rc;

	if (argc < 2)
		return 2;
	msgpack_sbuffer_init(&buf);
	msgpack_packer_init(&pk, &buf, msgpack_sbuffer_write);
	peer.path = argv[1];
	rc = connect_again() || do_items(argv + 2, argc - 2);
	msgpack_sbuffer_destroy(&buf);
	return rc;
}

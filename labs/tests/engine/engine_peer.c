// SPDX-License-Identifier: MIT
/*
 * engine_peer.c - a client of rdma_engine that does what it is told, byte by byte,
 * well-behaved or not; or such an engine, for one client. It shares no code with
 * either: what it sends is recorded or made here, and what it prints of an answer is
 * what msgpack-c finds in it.
 *
 *	engine_peer SOCKET ITEM...		a client
 *	engine_peer listen SOCKET ITEM...	an engine
 *
 * Items, in order:
 *	NAME[=VALUE,...]  send one of messages[] below; values left out at the end
 *			are those that stand there
 *	frame=FILE	send a recorded frame
 *	cuts=FILE	send each truncation of its value, with the length that
 *			it then has: each must be answered by an Error; then, each as
 *			a new client, its first byte, its first two, ... and hang up
 *	hex=BYTES	send a message of these bytes
 *	length=N fill=N	send a length, N zeros
 *	trickle=MS	from now on one byte at a time, with a pause before each
 *	memory=N[,loose]  what is sent next brings a descriptor of N bytes 'x' that
 *			can no longer become fewer, or can
 *	answer		wait for an answer, print it as one line of JSON
 *	request		wait for a message, whatever it is
 *	bytes		map what came with the last answer, print its bytes as hex,
 *			64 at most, and what can be changed about it
 *	eof		wait until the other side closes
 *	shut sleep=MS	send no more; wait
 *	gate=FILE	wait until it is there
 *	say=TEXT	print it: the items before it are done
 *	id=UUID		a session that somebody else began, as if begun here
 *	repeat=N	do the next item N times
 *	clients=N ITEM... end	do these items N times, each time as a new client,
 *			who stays
 *
 * Exit code: 0, or 1 at the first item that fails. As an engine it does not mind a
 * client that has had enough of it.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <msgpack.h>
#include <poll.h>
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

#define WAIT_MS	    60000
#define ID_SIZE	    36
#define MOST	    (2u << 20)
#define FRAME_MOST  4096 /* of a recorded one */
#define FIELDS_MOST 12

/*
 * All integers are sent with eight bytes, and the last field first. In a field's name,
 * @ says that its value is the number of a session begun here (or the id itself), ? that
 * it is 0 or 1 for a bool, [ that it is a list of one text.
 */
static const struct message {
	const char *item, *type, *names, *values;
} messages[] = {
	{ "ping", "Ping", "timestamp_ns", "7" },
	{ "caps", "GetCapabilities", "client_id", "peer" },
	{ "start", "StartRead",
	  "volume_id,needle_id,cookie,offset,size,remote_addr,remote_key,"
	  "timeout_secs,auth_token",
	  "0,0,0,0,0,0,0,30" },
	{ "map", "MapBuffer", "@session_id", "1" },
	{ "complete", "CompleteRead",
	  "@session_id,?success,bytes_transferred,client_crc", "1,1,0" },
	{ "pong", "Pong",
	  "client_timestamp_ns,server_timestamp_ns,server_rtt_ns", "1,1,1" },
	{ "capable", "GetCapabilitiesResponse",
	  "[extensions,device_name,vendor_id,max_transfer_size,max_sessions,"
	  "active_sessions,port_gid,port_lid,[supported_auth,version,?real_"
	  "rdma",
	  "MapBuffer,x,1,1,1,0,x,0,none,v1,1" },
	{ "started", "StartReadResponse",
	  "@session_id,transfer_size,expected_crc,local_addr,local_key,"
	  "expires_at_ns",
	  "01234567-89ab-cdef-0123-456789abcdef,100,0x4edb03cf,1,1,1" },
	{ "mapped", "MapBufferResponse", "size,@session_id",
	  "100,01234567-89ab-cdef-0123-456789abcdef" },
	{ "completed", "CompleteReadResponse", "?success,message,server_crc",
	  "0,no match,1" },
	{ "error", "Error", "message,code,category,?recoverable", "x,x,x,0" },
	{ "wrong", "Wrong", "x", "x" },
};

static struct {
	int sock;
	const char *path;
	bool engine;
	int trickle_ms;		   /* 0: no */
	char ids[64][ID_SIZE + 1]; /* sessions begun */
	uint64_t n_ids;
	int fd;	     /* came with the last answer */
	int carried; /* goes with what is sent next */
	uint64_t mapped;
	char answer[MOST];
	size_t answer_size;
} peer = { .sock = -1, .fd = -1, .carried = -1 };

static int fail(const char *what)
{
	fprintf(stderr, "engine_peer: %s: %s\n", what, strerror(errno));
	return 1;
}

static int nap(int ms)
{
	return poll(NULL, 0, ms);
}

static void drop(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int meet(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct timeval wait = { .tv_sec = WAIT_MS / 1000 };
	int listener;

	drop(&peer.sock);
	peer.sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(peer.sock, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	setsockopt(peer.sock, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", peer.path);
	if (!peer.engine) {
		if (connect(peer.sock, (void *)&address, sizeof(address)))
			return fail("connect");
		return 0;
	}
	listener = peer.sock;
	if (bind(listener, (void *)&address, sizeof(address)) ||
	    listen(listener, 1))
		return fail(peer.path);
	peer.sock = accept(listener, NULL, NULL);
	close(listener);
	unlink(peer.path);
	return peer.sock < 0 ? fail("nobody came") : 0;
}

/* ---- bytes -------------------------------------------------------------- */

static ssize_t put_some(const char *data, size_t size)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET,
				SCM_RIGHTS } };
	struct iovec iov = { (void *)(uintptr_t)data, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (peer.carried >= 0) {
		memcpy(CMSG_DATA(&control.head), &peer.carried, sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	n = sendmsg(peer.sock, &msg, MSG_NOSIGNAL);
	drop(&peer.carried);
	return n;
}

static int put(const char *data, size_t size)
{
	while (size) {
		ssize_t n;

		nap(peer.trickle_ms);
		n = put_some(data, peer.trickle_ms ? 1 : size);
		if (n < 0)
			return peer.engine ? 0 : fail("send");
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static int put_size(size_t size)
{
	uint32_t wire = htole32((uint32_t)size);

	return put((char *)&wire, sizeof(wire));
}

static int put_length(const char *value)
{
	return put_size(strtoull(value, NULL, 0));
}

static int put_zeros(const char *value)
{
	size_t n = strtoull(value, NULL, 0);
	char *zeros = calloc(1, n + 1);
	int rc = put(zeros, n);

	free(zeros);
	return rc;
}

static int put_hex(const char *hex)
{
	size_t size = strlen(hex) / 2;
	unsigned char bytes[FRAME_MOST];

	for (size_t i = 0; i < size && i < sizeof(bytes); i++)
		if (sscanf(hex + 2 * i, "%2hhx", &bytes[i]) != 1)
			return fail(hex);
	return put_size(size) || put((char *)bytes, size);
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
	return size;
}

static int put_file(const char *path)
{
	char data[FRAME_MOST];
	size_t size = get_file(path, data);

	return size ? put(data, size) : 1;
}

/* ---- messages ----------------------------------------------------------- */

static void pack_text(msgpack_packer *pk, const char *s)
{
	msgpack_pack_str_with_body(pk, s, strlen(s));
}

static void pack_value(msgpack_packer *pk, char kind, const char *value)
{
	char *end;
	uint64_t number = strtoull(value, &end, 0);
	bool is_number = end > value && !*end;

	if (kind == '[') {
		msgpack_pack_array(pk, 1);
		pack_text(pk, value);
	} else if (kind == '@' && is_number && number && number <= peer.n_ids)
		pack_text(pk, peer.ids[number - 1]);
	else if (kind == '?' && number)
		msgpack_pack_true(pk);
	else if (kind == '?')
		msgpack_pack_false(pk);
	else if (kind != '@' && is_number)
		msgpack_pack_fix_uint64(pk, number);
	else
		pack_text(pk, value);
}

/* Cuts @text at its commas; the @parts beyond its end stay. Returns how many. */
static int split(char *text, const char *parts[FIELDS_MOST])
{
	int n = 0;

	while (text && n < FIELDS_MOST)
		parts[n++] = strsep(&text, ",");
	return n;
}

static void pack_message(msgpack_packer *pk, const struct message *m,
			 const char *value)
{
	const char *names[FIELDS_MOST], *values[FIELDS_MOST];
	char *texts[] = { strdup(m->names), strdup(m->values), strdup(value) };
	int n, given;

	split(texts[0], names);
	n = split(texts[1], values);
	given = *value ? split(texts[2], values) : 0;
	n = given > n ? given : n;
	msgpack_pack_map(pk, 2);
	pack_text(pk, "type");
	pack_text(pk, m->type);
	pack_text(pk, "data");
	msgpack_pack_map(pk, (size_t)n);
	while (n--) {
		bool special = strchr("@?[", *names[n]);

		pack_text(pk, names[n] + special);
		pack_value(pk, *names[n], values[n]);
	}
	for (int i = 0; i < 3; i++)
		free(texts[i]);
}

/* One write, as clients do, unless it trickles. */
static int put_message(const struct message *m, const char *value)
{
	msgpack_sbuffer body, frame;
	msgpack_packer pk;
	uint32_t wire;
	int rc;

	msgpack_sbuffer_init(&body);
	msgpack_sbuffer_init(&frame);
	msgpack_packer_init(&pk, &body, msgpack_sbuffer_write);
	pack_message(&pk, m, value);
	wire = htole32((uint32_t)body.size);
	msgpack_sbuffer_write(&frame, (char *)&wire, sizeof(wire));
	msgpack_sbuffer_write(&frame, body.data, body.size);
	rc = put(frame.data, frame.size);
	msgpack_sbuffer_destroy(&frame);
	msgpack_sbuffer_destroy(&body);
	return rc;
}

/* ---- answers ------------------------------------------------------------ */

static void keep_fd(struct msghdr *msg)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (!c || c->cmsg_type != SCM_RIGHTS)
		return;
	drop(&peer.fd);
	memcpy(&peer.fd, CMSG_DATA(c), sizeof(int));
}

static int get(char *data, size_t size)
{
	while (size) {
		char control[64];
		struct iovec iov = { data, size };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = control,
				      .msg_controllen = sizeof(control) };
		ssize_t n = recvmsg(peer.sock, &msg, MSG_CMSG_CLOEXEC);

		if (n <= 0) {
			fprintf(stderr, "engine_peer: %s\n",
				n < 0 && errno == EAGAIN
					? "no answer"
					: "the engine has closed");
			return 1;
		}
		keep_fd(&msg);
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static int get_message(void)
{
	uint32_t wire;

	if (get((char *)&wire, sizeof(wire)))
		return 1;
	peer.answer_size = le32toh(wire);
	return peer.answer_size > MOST ? fail("so long")
				       : get(peer.answer, peer.answer_size);
}

static json_t *as_json(const msgpack_object *o)
{
	const msgpack_object_map *map = &o->via.map;
	json_t *json;

	switch (o->type) {
	case MSGPACK_OBJECT_MAP:
		json = json_object();
		for (uint32_t i = 0; i < map->size; i++)
			json_object_setn_new(json, map->ptr[i].key.via.str.ptr,
					     map->ptr[i].key.via.str.size,
					     as_json(&map->ptr[i].val));
		return json;
	case MSGPACK_OBJECT_ARRAY:
		json = json_array();
		for (uint32_t i = 0; i < o->via.array.size; i++)
			json_array_append_new(json,
					      as_json(&o->via.array.ptr[i]));
		return json;
	case MSGPACK_OBJECT_STR:
		return json_stringn(o->via.str.ptr, o->via.str.size);
	case MSGPACK_OBJECT_BOOLEAN:
		return json_boolean(o->via.boolean);
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		return json_integer((json_int_t)o->via.u64);
	default:
		return json_string("unexpected");
	}
}

static int keep_id(const char *id)
{
	if (strlen(id) == ID_SIZE && peer.n_ids < 64)
		strcpy(peer.ids[peer.n_ids++], id);
	return 0;
}

static const char *type_of(const json_t *root)
{
	const char *type = json_string_value(json_object_get(root, "type"));

	return type ? type : "";
}

static void remember(const json_t *root)
{
	const json_t *data = json_object_get(root, "data");
	const char *id = json_string_value(json_object_get(data, "session_id"));

	if (!strcmp(type_of(root), "StartReadResponse") && id)
		keep_id(id);
	if (!strcmp(type_of(root), "MapBufferResponse"))
		peer.mapped = (uint64_t)json_integer_value(
			json_object_get(data, "size"));
}

/* The next answer; NULL: none, or nonsense. */
static json_t *take_answer(void)
{
	msgpack_unpacked unpacked;
	json_t *json = NULL;
	size_t off = 0;

	if (get_message())
		return NULL;
	msgpack_unpacked_init(&unpacked);
	if (msgpack_unpack_next(&unpacked, peer.answer, peer.answer_size,
				&off) == MSGPACK_UNPACK_SUCCESS &&
	    off == peer.answer_size)
		json = as_json(&unpacked.data);
	else
		fprintf(stderr, "engine_peer: this is no MessagePack\n");
	msgpack_unpacked_destroy(&unpacked);
	remember(json);
	return json;
}

static int print_answer(void)
{
	json_t *json = take_answer();
	int rc = !json;

	if (json) {
		json_dumpf(json, stdout, JSON_COMPACT);
		puts("");
		fflush(stdout);
	}
	json_decref(json);
	return rc;
}

static int put_cuts(const char *path)
{
	char data[FRAME_MOST];
	size_t size = get_file(path, data);
	int rc = !size;

	for (size_t n = 0; n + 4 < size && !rc; n++) {
		json_t *json = NULL;

		rc = put_size(n) || put(data + 4, n) ||
		     !(json = take_answer()) || strcmp(type_of(json), "Error");
		json_decref(json);
	}
	for (size_t n = 1; n < size && !rc; n++)
		rc = meet() || put(data, n);
	return rc || meet();
}

/* ---- descriptors -------------------------------------------------------- */

static int carry_memory(const char *value)
{
	size_t size = strtoul(value, NULL, 10);
	int seals = strstr(value, "loose") ? 0 : F_SEAL_SHRINK;
	char *bytes = malloc(size + 1);
	int rc;

	memset(bytes, 'x', size);
	peer.carried = memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	rc = write(peer.carried, bytes, size) != (ssize_t)size ||
	     fcntl(peer.carried, F_ADD_SEALS, seals);
	free(bytes);
	return rc ? fail("memfd") : 0;
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
	writable = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, peer.fd,
			0);
	printf(" %s%s%s\n",
	       writable == MAP_FAILED && mprotect(at, size, PROT_WRITE)
		       ? "read-only"
		       : "WRITABLE",
	       pwrite(peer.fd, "y", 1, 0) < 0 ? "" : " WRITTEN",
	       ftruncate(peer.fd, 0) ? "" : " CUT");
	fflush(stdout);
	munmap(at, size);
	return 0;
}

/* ---- waiting ------------------------------------------------------------ */

static int await_gate(const char *path)
{
	for (int ms = 0; access(path, F_OK); ms += 10) {
		if (ms > WAIT_MS)
			return fail(path);
		nap(10);
	}
	return 0;
}

static int await_end(void)
{
	ssize_t n;

	do {
		n = recv(peer.sock, peer.answer, MOST, 0);
	} while (n > 0);
	if (n < 0 && errno == EAGAIN)
		return fail("the other side does not close");
	puts("closed");
	fflush(stdout);
	return 0;
}

static int sleep_ms(const char *ms)
{
	return nap(atoi(ms));
}

static int trickle(const char *ms)
{
	peer.trickle_ms = atoi(ms);
	return 0;
}

static int print_text(const char *text)
{
	return puts(text) < 0 || fflush(stdout);
}

static int shut(void)
{
	return shutdown(peer.sock, SHUT_WR);
}

/* ---- items -------------------------------------------------------------- */

static const struct {
	const char *name;
	int (*alone)(void);
	int (*with)(const char *value);
} items[] = {
	{ "answer", print_answer, NULL }, { "bytes", print_bytes, NULL },
	{ "cuts", NULL, put_cuts },	  { "eof", await_end, NULL },
	{ "fill", NULL, put_zeros },	  { "frame", NULL, put_file },
	{ "gate", NULL, await_gate },	  { "hex", NULL, put_hex },
	{ "id", NULL, keep_id },	  { "length", NULL, put_length },
	{ "memory", NULL, carry_memory }, { "request", get_message, NULL },
	{ "say", NULL, print_text },	  { "shut", shut, NULL },
	{ "sleep", NULL, sleep_ms },	  { "trickle", NULL, trickle },
};

/* What stands behind "NAME=", "" behind a NAME alone, NULL: it is another item. */
static const char *value_of(const char *item, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(item, name, length))
		return NULL;
	if (item[length] == '=')
		return item + length + 1;
	return item[length] ? NULL : "";
}

static int do_item(const char *item)
{
	const char *v;

	for (size_t i = 0; i < sizeof(items) / sizeof(*items); i++)
		if ((v = value_of(item, items[i].name)))
			return items[i].with ? items[i].with(v)
					     : items[i].alone();
	for (size_t i = 0; i < sizeof(messages) / sizeof(*messages); i++)
		if ((v = value_of(item, messages[i].item)))
			return put_message(&messages[i], v);
	fprintf(stderr, "engine_peer: what is %s?\n", item);
	return 2;
}

static int do_items(char *list[], int n);

static int as_clients(int clients, char *list[], int n)
{
	int rc = 0;

	while (clients-- > 0 && !rc) {
		peer.sock = -1; /* the last one stays open */
		peer.n_ids = 0;
		rc = meet() || do_items(list, n);
	}
	return rc;
}

/* How many of @list stand before "end". */
static int before_end(char *list[], int n)
{
	int i = 0;

	while (i < n && strcmp(list[i], "end"))
		i++;
	return i;
}

static int do_items(char *list[], int n)
{
	int rc = 0;

	for (int i = 0; i < n && !rc; i++) {
		const char *clients = value_of(list[i], "clients");
		const char *repeat = value_of(list[i], "repeat");
		int times = repeat ? atoi(repeat) : 1;

		if (clients) {
			int m = before_end(list + i + 1, n - i - 1);

			rc = as_clients(atoi(clients), list + i + 1, m);
			i += m + 1;
			continue;
		}
		i += repeat != NULL;
		while (times-- > 0 && i < n && !rc)
			rc = do_item(list[i]);
	}
	return rc;
}

int main(int argc, char *argv[])
{
	int first = 2;

	peer.engine = argc > 2 && !strcmp(argv[1], "listen");
	first += peer.engine;
	if (argc < first)
		return 2;
	peer.path = argv[first - 1];
	return meet() || do_items(argv + first, argc - first);
}

// SPDX-License-Identifier: MIT
/*
 * engine_liar.c - an engine for one client, that answers what it is told to,
 * true or not. It shares no code with the engine.
 *
 *	engine_liar SOCKET ITEM...
 *
 * Items, in order:
 *	request		wait for a request, whatever it is
 *	say=JSON	answer this, as MessagePack
 *	hex=BYTES	answer these bytes, as they are
 *	sealed=BYTES	the next answer brings a memfd of so many bytes 'x', which
 *			can no longer shrink
 *	loose=BYTES	one that can
 *	pipe		one end of a pipe
 *	sleep=MS
 *	eof		wait until the client has gone
 *
 * Exit code: 0, or 1 at the first item that fails.
 */
#include <endian.h>
#include <err.h>
#include <fcntl.h>
#include <jansson.h>
#include <msgpack.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WAIT_MS 60000
#define MOST	(2u << 20)

static int client = -1, carried = -1;

static int meet(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct pollfd p = { .events = POLLIN };

	p.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(name.sun_path, sizeof(name.sun_path), "%s", path);
	if (p.fd < 0 || bind(p.fd, (struct sockaddr *)&name, sizeof(name)) ||
	    listen(p.fd, 1))
		err(1, "%s", path);
	if (poll(&p, 1, WAIT_MS) != 1)
		errx(1, "nobody came");
	client = accept(p.fd, NULL, NULL);
	unlink(path);
	return client;
}

static void take(void *data, size_t size)
{
	struct pollfd p = { client, POLLIN, 0 };
	ssize_t n;

	for (char *at = data; size; at += n, size -= (size_t)n) {
		if (poll(&p, 1, WAIT_MS) != 1)
			errx(1, "no request came");
		n = recv(client, at, size, 0);
		if (n <= 0)
			errx(1, "the client has gone");
	}
}

static void take_request(void)
{
	static char request[MOST];
	uint32_t size;

	take(&size, sizeof(size));
	if (le32toh(size) > MOST)
		errx(1, "a request of %u bytes", le32toh(size));
	take(request, le32toh(size));
}

/* The client may have had enough of it: that is no failure of this side. */
static void answer(const void *data, size_t size)
{
	struct iovec bytes = { (void *)(uintptr_t)data, size };
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr m = { .msg_iov = &bytes, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (carried >= 0) {
		m.msg_control = control.room;
		m.msg_controllen = sizeof(control.room);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &carried, sizeof(int));
	}
	if (sendmsg(client, &m, MSG_NOSIGNAL) < 0)
		warn("sendmsg");
	if (carried >= 0)
		close(carried);
	carried = -1;
}

static void pack(msgpack_packer *pk, json_t *value)
{
	const char *name;
	json_t *child;
	size_t i;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		msgpack_pack_map(pk, json_object_size(value));
		json_object_foreach(value, name, child)
		{
			msgpack_pack_str_with_body(pk, name, strlen(name));
			pack(pk, child);
		}
		break;
	case JSON_ARRAY:
		msgpack_pack_array(pk, json_array_size(value));
		json_array_foreach(value, i, child) pack(pk, child);
		break;
	case JSON_STRING:
		msgpack_pack_str_with_body(pk, json_string_value(value),
					   json_string_length(value));
		break;
	case JSON_INTEGER:
		msgpack_pack_int64(pk, json_integer_value(value));
		break;
	case JSON_TRUE:
		msgpack_pack_true(pk);
		break;
	case JSON_FALSE:
		msgpack_pack_false(pk);
		break;
	default:
		msgpack_pack_nil(pk);
	}
}

static void say(const char *text)
{
	json_t *root = json_loads(text, JSON_DECODE_ANY, NULL);
	msgpack_sbuffer out;
	msgpack_packer pk;
	uint32_t size;
	char *frame;

	if (!root)
		errx(1, "no JSON: %s", text);
	msgpack_sbuffer_init(&out);
	msgpack_packer_init(&pk, &out, msgpack_sbuffer_write);
	pack(&pk, root);
	frame = malloc(sizeof(size) + out.size);
	size = htole32((uint32_t)out.size);
	memcpy(frame, &size, sizeof(size));
	memcpy(frame + sizeof(size), out.data, out.size);
	answer(frame, sizeof(size) + out.size);
	free(frame);
	msgpack_sbuffer_destroy(&out);
	json_decref(root);
}

static void say_hex(const char *text)
{
	unsigned char bytes[512];
	size_t n = 0;

	for (; text[0] && text[1] && n < sizeof(bytes); text += 2, n++)
		if (sscanf(text, "%2hhx", &bytes[n]) != 1)
			errx(1, "no hex: %s", text);
	answer(bytes, n);
}

static void carry_memory(size_t size, int seals)
{
	char *bytes = malloc(size + 1);

	memset(bytes, 'x', size);
	carried = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (carried < 0 || write(carried, bytes, size) != (ssize_t)size ||
	    (seals && fcntl(carried, F_ADD_SEALS, seals)))
		err(1, "memfd");
	free(bytes);
}

static void carry_pipe(void)
{
	int fds[2];

	if (pipe(fds))
		err(1, "pipe");
	close(fds[1]);
	carried = fds[0];
}

static void await_eof(void)
{
	struct pollfd p = { client, POLLIN, 0 };
	char byte;

	do {
		if (poll(&p, 1, WAIT_MS) != 1)
			errx(1, "the client stays");
	} while (recv(client, &byte, 1, 0) > 0);
}

static void perform(const char *item)
{
	const char *value = strchr(item, '=');
	const size_t name = value ? (size_t)(value - item) : strlen(item);
	const char *const names[] = { "request", "say",	 "hex",	  "sealed",
				      "loose",	 "pipe", "sleep", "eof" };
	size_t i = 0;

	while (i < 8 &&
	       (strlen(names[i]) != name || strncmp(names[i], item, name) != 0))
		i++;
	value = value ? value + 1 : "";
	switch (i) {
	case 0:
		take_request();
		break;
	case 1:
		say(value);
		break;
	case 2:
		say_hex(value);
		break;
	case 3:
		carry_memory(strtoul(value, NULL, 10), F_SEAL_SHRINK);
		break;
	case 4:
		carry_memory(strtoul(value, NULL, 10), 0);
		break;
	case 5:
		carry_pipe();
		break;
	case 6:
		usleep((useconds_t)strtoul(value, NULL, 10) * 1000);
		break;
	case 7:
		await_eof();
		break;
	default:
		errx(1, "no such item: %s", item);
	}
}

int main(int argc, char *argv[])
{
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2 || meet(argv[1]) < 0)
		errx(1, "usage: engine_liar SOCKET ITEM...");
	for (int i = 2; i < argc; i++)
		perform(argv[i]);
	close(client);
	return 0;
}

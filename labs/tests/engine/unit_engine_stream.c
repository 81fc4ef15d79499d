// SPDX-License-Identifier: MIT
/*
 * unit_engine_stream.c - framing over a socket pair: however the bytes arrive, the
 * messages are the same; and whatever a length claims, the buffers stay small.
 */
#include "../open_files.h"
#include "../unit.h"
#include "ipc/stream.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OUT_MOST (2u << 20)

static struct engine_stream s;
static int peer;

/* realloc() as the stream sees it (ld --wrap): refused, once, when told so. */
static bool no_memory;
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_realloc(void *p, size_t size)
{
	bool refused = no_memory;

	no_memory = false;
	return refused ? NULL : __real_realloc(p, size);
}

static void open_pair(void)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		exit(1);
	engine_stream_init(&s, fds[0], OUT_MOST);
	peer = fds[1];
}

static void close_pair(void)
{
	engine_stream_close(&s);
	close(peer);
}

static void put(const void *data, size_t size)
{
	CHECK(write(peer, data, size) == (ssize_t)size, "write");
}

static void put_length(uint32_t length)
{
	length = htole32(length);
	put(&length, sizeof(length));
}

/* What engine_stream_frame() says now; *@size is the message's. */
static int look(uint32_t *size, const char **data)
{
	*size = 0;
	*data = NULL;
	return engine_stream_frame(&s, data, size);
}

static void byte_by_byte(void)
{
	static const char wire[] = "\x03\0\0\0abc\x01\0\0\0d";
	const char *data;
	uint32_t size;

	open_pair();
	CHECK(engine_stream_fill(&s) == -EAGAIN, "nothing there");
	for (size_t i = 0; i < sizeof(wire) - 1; i++) {
		put(wire + i, 1);
		CHECK(engine_stream_fill(&s) == 1, "byte %zu", i);
		if (i == 6 || i == 11) {
			CHECK(look(&size, &data) == 1, "byte %zu", i);
			CHECK(size == (i == 6 ? 3u : 1u), "%u", size);
			CHECK(!memcmp(data, i == 6 ? "abc" : "d", size),
			      "content");
			engine_stream_next(&s);
		}
		CHECK(look(&size, &data) == 0, "byte %zu", i);
		CHECK(engine_stream_is_midway(&s) == (i != 6 && i != 11),
		      "byte %zu", i);
	}
	close(peer);
	CHECK(engine_stream_fill(&s) == 0, "end");
	close_pair();
}

static void many_at_once(void)
{
	const char *data;
	uint32_t size;

	open_pair();
	for (uint32_t i = 0; i < 100; i++) {
		put_length(i);
		put("................................................"
		    "....................................................",
		    i);
	}
	for (uint32_t i = 0; i < 100; i++) {
		while (!look(&size, &data))
			CHECK(engine_stream_fill(&s) > 0, "fill");
		CHECK(size == i, "%u", size);
		engine_stream_next(&s);
	}
	CHECK(!engine_stream_is_midway(&s), "all taken");
	close_pair();
}

/* Lengths: 0 and 1 MiB are messages; one more is not, nor is the greatest. */
static void lengths(void)
{
	static const uint32_t over[] = { ENGINE_FRAME_MAX + 1, UINT32_MAX };
	char *block = calloc(1, ENGINE_FRAME_MAX);
	const char *data;
	uint32_t size;
	size_t sent = 0;

	open_pair();
	put_length(0);
	CHECK(engine_stream_fill(&s) == 4, "length 0");
	CHECK(look(&size, &data) == 1 && size == 0, "length 0");
	engine_stream_next(&s);
	put_length(ENGINE_FRAME_MAX);
	CHECK(engine_stream_fill(&s) == 4, "1 MiB");
	CHECK(s.in.size <= 8192, "a length alone takes %zu bytes", s.in.size);
	while (sent < ENGINE_FRAME_MAX) {
		CHECK(look(&size, &data) == 0, "at %zu", sent);
		put(block, 65536);
		sent += 65536;
		while (engine_stream_fill(&s) > 0)
			;
	}
	CHECK(look(&size, &data) == 1 && size == ENGINE_FRAME_MAX, "1 MiB");
	put("x", 1);
	CHECK(engine_stream_fill(&s) == -ENOBUFS, "full");
	engine_stream_next(&s);
	CHECK(!s.in.size, "%zu bytes are kept", s.in.size);
	CHECK(engine_stream_fill(&s) == 1, "and on");
	close_pair();
	for (int i = 0; i < 2; i++) {
		open_pair();
		put_length(over[i]);
		CHECK(engine_stream_fill(&s) == 4, "too long");
		CHECK(look(&size, &data) == -EMSGSIZE && size == over[i], "%u",
		      size);
		engine_stream_discard(&s);
		CHECK(!engine_stream_is_midway(&s), "discarded");
		close_pair();
	}
	free(block);
}

static int say(const char *text, size_t size)
{
	engine_stream_begin(&s);
	engine_stream_append(&s, text, size);
	return engine_stream_end(&s);
}

/* A peer that does not read: what waits for it is bounded, and in order. */
static void bounded_output(void)
{
	char *block = calloc(1, ENGINE_FRAME_MAX + 1);
	char head[8];
	size_t taken = 0;
	ssize_t n;

	open_pair();
	CHECK(say(block, ENGINE_FRAME_MAX + 1) == -EMSGSIZE, "too long");
	CHECK(!engine_stream_pending(&s), "nothing of it");
	CHECK(!say("first", 5), "first");
	CHECK(!say(block, ENGINE_FRAME_MAX), "second");
	CHECK(say(block, ENGINE_FRAME_MAX) == -ENOBUFS, "third");
	CHECK(engine_stream_pending(&s) == 9 + 4 + ENGINE_FRAME_MAX, "%zu wait",
	      engine_stream_pending(&s));
	CHECK(engine_stream_flush(&s) == -EAGAIN, "the socket is full");
	CHECK(read(peer, head, 8) == 8 && !memcmp(head, "\5\0\0\0firs", 8),
	      "first");
	taken = 8;
	while (engine_stream_pending(&s) || taken < 13 + ENGINE_FRAME_MAX) {
		n = read(peer, block, 4096);
		CHECK(n > 0, "read");
		taken += (size_t)n;
		engine_stream_flush(&s);
	}
	CHECK(taken == 13 + ENGINE_FRAME_MAX, "%zu came", taken);
	CHECK(!engine_stream_flush(&s), "all sent");
	close(peer);
	CHECK(!say("x", 1), "to nobody");
	CHECK(engine_stream_flush(&s) == -EPIPE, "nobody reads");
	close_pair();
	free(block);
}

/* A peer that is always late: what it has read makes room for the next. */
static void moved_output(void)
{
	enum {
		SIZE = 6000,
		TIMES = 20
	};
	char message[SIZE], *got = malloc(TIMES * (4 + SIZE) + 1000);
	const int least = 1;
	size_t taken = 0, left;

	open_pair();
	s.out_most = 20000;
	setsockopt(s.fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof(least));
	for (int i = 0; i < TIMES; i++) {
		memset(message, 'a' + i, SIZE);
		CHECK(!say(message, SIZE), "message %d", i);
		CHECK(s.out.size <= s.out_most, "%zu bytes", s.out.size);
		left = i < TIMES - 1 ? 2 * SIZE : 0;
		while (engine_stream_flush(&s),
		       engine_stream_pending(&s) > left)
			taken += (size_t)read(peer, got + taken, 1000);
	}
	while (taken < TIMES * (4 + SIZE))
		taken += (size_t)read(peer, got + taken, 1000);
	for (int i = 0; i < TIMES; i++) {
		memset(message, 'a' + i, SIZE);
		CHECK(!memcmp(got + i * (4 + SIZE) + 4, message, SIZE),
		      "message %d", i);
	}
	close_pair();
	free(got);
}

/* Three descriptors with one byte. */
static void put_three(int socket, int fd)
{
	const int fds[3] = { fd, fd, fd };
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(fds))];
	} control = { .head = { CMSG_LEN(sizeof(fds)), SOL_SOCKET,
				SCM_RIGHTS } };
	struct iovec iov = { "", 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), fds, sizeof(fds));
	CHECK(sendmsg(socket, &msg, 0) == 1, "three");
}

/* A descriptor goes with its message, and with no other. */
static void descriptors(void)
{
	const int before = open_files();
	struct engine_stream other;
	const char *data;
	uint32_t size;
	int file = open("/dev/null", O_RDONLY | O_CLOEXEC), fd;

	open_pair();
	engine_stream_init(&other, peer, OUT_MOST);
	other.takes_fds = true;
	CHECK(!say("a", 1), "a");
	CHECK(!engine_stream_attach(&s, file), "attach");
	CHECK(engine_stream_attach(&s, file) == -EBUSY, "one only");
	CHECK(!engine_stream_flush(&s), "flush");
	CHECK(!say("b", 1) && !say("c", 1), "b, c");
	CHECK(!engine_stream_attach(&s, file), "to c, which goes after b");
	CHECK(!say("d", 1), "d");
	CHECK(!engine_stream_flush(&s), "flush");
	for (int i = 0; i < 4; i++) {
		while (!engine_stream_frame(&other, &data, &size))
			CHECK(engine_stream_fill(&other) > 0, "fill");
		/* One may arrive a little before its message, never after. */
		fd = i % 2 ? -1 : engine_stream_take_fd(&other);
		CHECK((fd >= 0) == (i % 2 == 0), "message %d: %d", i, fd);
		CHECK(*data == "abcd"[i], "message %d", i);
		if (fd >= 0)
			close(fd);
		engine_stream_next(&other);
	}
	/* The side that takes none drops what comes: nothing is left open. */
	engine_stream_begin(&other);
	engine_stream_append(&other, "d", 1);
	engine_stream_end(&other);
	CHECK(!engine_stream_attach(&other, file), "attach");
	CHECK(!engine_stream_flush(&other), "flush");
	CHECK(engine_stream_fill(&s) == 5 && s.in_fd < 0, "none taken");
	/* Nor is what waits at the end, to be taken or to be sent. */
	put_three(s.fd, file);
	CHECK(engine_stream_fill(&other) == 1 && other.in_fd >= 0, "the first");
	CHECK(!say("e", 1) && !engine_stream_attach(&s, file), "attach");
	close(file);
	peer = -1;
	engine_stream_close(&other);
	engine_stream_close(&s);
	CHECK(open_files() == before, "%d and %d", before, open_files());
}

/* What one budget grants and the other refuses is given back; the rest, at the end. */
static void budgets(void)
{
	struct budget all = { .most = 4 * ENGINE_FRAME_MAX };
	struct budget own = { .most = ENGINE_FRAME_MAX / 2 };
	char *block = calloc(1, ENGINE_FRAME_MAX);

	open_pair();
	s.all = &all;
	s.own = &own;
	CHECK(say(block, ENGINE_FRAME_MAX) == -EDQUOT, "over its own");
	CHECK(!own.used && !all.used, "%zu, %zu", own.used, all.used);
	CHECK(!say(block, ENGINE_FRAME_MAX / 4), "within both");
	CHECK(own.used && own.used == all.used, "%zu, %zu", own.used, all.used);
	close_pair();
	CHECK(!own.used && !all.used, "%zu, %zu left", own.used, all.used);

	open_pair();
	own.most = 4 * ENGINE_FRAME_MAX;
	all.most = ENGINE_FRAME_MAX; /* of which half stays free */
	s.all = &all;
	s.own = &own;
	CHECK(say(block, ENGINE_FRAME_MAX) == -EDQUOT, "over all of it");
	CHECK(!own.used && !all.used, "%zu, %zu", own.used, all.used);
	close_pair();

	open_pair();
	s.all = &all;
	s.own = &own;
	CHECK(!say("first", 5), "first");
	no_memory = true;
	CHECK(say(block, 20000) == -ENOMEM && !no_memory, "no memory");
	CHECK(!own.used && !all.used, "%zu, %zu", own.used, all.used);
	CHECK(!say("next", 4) && !engine_stream_flush(&s), "next");
	CHECK(read(peer, block, 100) == 17 &&
		      !memcmp(block, "\5\0\0\0first\4\0\0\0next", 17),
	      "the others");
	close_pair();
	free(block);
}

int main(void)
{
	byte_by_byte();
	many_at_once();
	lengths();
	bounded_output();
	moved_output();
	descriptors();
	budgets();
	return unit_result("engine_stream");
}

// SPDX-License-Identifier: MIT
/*
 * unit_engine_stream.c - framing over a socket pair: however the bytes arrive, the
 * messages are the same; and whatever a length claims, the buffers stay small.
 */
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

/* A descriptor goes with its message, and with no other. */
static void descriptors(void)
{
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
	close(file);
	peer = -1;
	engine_stream_close(&other);
	engine_stream_close(&s);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK(fd == 3, "the first free descriptor is %d", fd);
	close(fd);
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
	CHECK(say(block, ENGINE_FRAME_MAX) == -ENOBUFS, "over its own");
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
	CHECK(say(block, ENGINE_FRAME_MAX) == -ENOBUFS, "over all of it");
	CHECK(!own.used && !all.used, "%zu, %zu", own.used, all.used);
	close_pair();
	free(block);
}

int main(void)
{
	byte_by_byte();
	many_at_once();
	lengths();
	bounded_output();
	descriptors();
	budgets();
	return unit_result("engine_stream");
}

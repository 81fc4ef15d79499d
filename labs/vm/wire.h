// SPDX-License-Identifier: MIT
/*
 * wire.h - what the host and the guest of the lab VM say to each other.
 *
 * One virtio-serial port carries one byte stream each way. A stream is cut
 * into frames as SLIP does it (RFC 1055): WIRE_END before and after, and the
 * two special bytes escaped inside. A reader that comes in the middle (the
 * previous client was killed) drops the rest of a broken frame at the next
 * WIRE_END and is in step again. A frame is one byte of type and its payload.
 *
 * Payloads that are lists are NUL-terminated strings, one after the other.
 *
 *	port 1		control: one request at a time, see W_PING ... W_REFUSED
 *	port 2 ... 17	one session ("lab run CMD") each, see W_START ...
 */
#ifndef RDMA_LAB_WIRE_H
#define RDMA_LAB_WIRE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WIRE_SESSIONS 16		/* ports 2 ... 17; sockets s0 ... s15 */
#define WIRE_WINDOW   (256 * 1024)	/* stdin bytes in flight, at most */
#define WIRE_CHUNK    (16 * 1024)	/* data bytes in one frame, at most */
#define WIRE_MAX      (4 * 1024 * 1024) /* a longer frame is dropped */

enum wire_type {
	/* host to guest, on a session port */
	W_START = 'S',	   /* list: see enum wire_start, then argv, then env */
	W_STDIN = 'i',	   /* bytes; never more than WIRE_WINDOW unconsumed */
	W_STDIN_EOF = 'e', /* nothing more will come on stdin */
	W_SIGNAL = 'k',	   /* decimal signal number, for the process group */
	W_WINSIZE = 'w',   /* list: rows, columns */
	W_CLOSE = 'c',	   /* "1" or "2": nobody reads that output any more */

	/* guest to host, on a session port */
	W_WELCOME = 'W', /* the nonce of W_START; all before it is stale */
	W_STDOUT = '1',	 /* bytes */
	W_STDERR = '2',	 /* bytes */
	W_CREDIT = 'C',	 /* decimal: this many bytes of stdin are consumed */
	W_EXIT = 'X',	 /* decimal exit status, 128 + n after signal n */
	W_ERROR = 'E',	 /* text: the session cannot go on */

	/* host to guest, on the control port; list: nonce, then key=value */
	W_PING = 'p',
	W_SETUP = 'U', /* time, seed, tree, idle, role: see agent.c */
	W_OFF = 'P',   /* write back the tree, then power off */

	/* guest to host, on the control port; list: nonce, text */
	W_DONE = 'O',
	W_REFUSED = 'N',
};

/* The strings at the head of a W_START list, in order. */
enum wire_start {
	START_NONCE,
	START_TIME, /* seconds of the host's clock, with a decimal fraction */
	START_TTY,  /* "1": a terminal of ROWS x COLS, else three pipes */
	START_ROWS,
	START_COLS,
	START_CWD,
	START_ARGC, /* strings of argv, which follow */
	START_ENVC, /* strings of env, which follow argv */
	START_FIELDS
};

/* A stream to the Unix socket at path, or -1. */
static inline int connect_to(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);

	if (fd >= 0 && n < (int)sizeof(a.sun_path) &&
	    !connect(fd, (struct sockaddr *)&a, sizeof(a)))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static inline long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A queue of bytes in one piece of memory: [start, end) is what it holds. */
struct wire_buf {
	unsigned char *data;
	size_t start, end, size;
};

static inline size_t wire_len(const struct wire_buf *b)
{
	return b->end - b->start;
}

static inline unsigned char *wire_head(const struct wire_buf *b)
{
	return b->data + b->start;
}

static inline void wire_clear(struct wire_buf *b)
{
	b->start = b->end = 0;
}

static inline void wire_drop(struct wire_buf *b, size_t n)
{
	b->start += n;
	if (b->start == b->end)
		wire_clear(b);
}

/* Room for n more bytes behind the end; no memory is the end of the program. */
static inline unsigned char *wire_room(struct wire_buf *b, size_t n)
{
	if (b->start && b->size - b->end < n) {
		memmove(b->data, wire_head(b), wire_len(b));
		b->end -= b->start;
		b->start = 0;
	}
	if (b->size - b->end < n) {
		b->size = (b->end + n) * 2;
		b->data = realloc(b->data, b->size);
		if (!b->data)
			abort();
	}
	return b->data + b->end;
}

static inline void wire_add(struct wire_buf *b, const void *p, size_t n)
{
	if (n)
		memcpy(wire_room(b, n), p, n);
	b->end += n;
}

/*
 * Write what is queued as far as it goes without blocking. Gives 0, or -errno
 * (never -EAGAIN).
 */
static inline int wire_flush(int fd, struct wire_buf *out)
{
	while (wire_len(out)) {
		ssize_t n = write(fd, wire_head(out), wire_len(out));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		wire_drop(out, (size_t)n);
	}
	return 0;
}

enum {
	WIRE_END = 0xc0,
	WIRE_ESC = 0xdb,
	WIRE_ESC_END = 0xdc,
	WIRE_ESC_ESC = 0xdd
};

/* Append one frame to out. */
static inline void wire_put(struct wire_buf *out, char type, const void *p,
			    size_t n)
{
	const unsigned char *in = p;
	unsigned char *o = wire_room(out, 2 * n + 3);

	*o++ = WIRE_END;
	*o++ = (unsigned char)type;
	for (size_t i = 0; i < n; i++) {
		if (in[i] == WIRE_END || in[i] == WIRE_ESC) {
			*o++ = WIRE_ESC;
			*o++ = in[i] == WIRE_END ? WIRE_ESC_END : WIRE_ESC_ESC;
		} else {
			*o++ = in[i];
		}
	}
	*o++ = WIRE_END;
	out->end = (size_t)(o - out->data);
}

static inline void wire_puts(struct wire_buf *out, char type, const char *s)
{
	wire_put(out, type, s, strlen(s));
}

static inline void wire_number(struct wire_buf *out, char type, long n)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", n);
	wire_puts(out, type, text);
}

/* The reader's side: frame holds the type and the payload of one frame. */
struct wire_in {
	struct wire_buf frame;
	bool whole, escaped, dropped;
};

/*
 * Take bytes up to the end of one frame. Gives how many were taken; in->whole
 * says that in->frame is a whole frame, until the next call.
 */
static inline size_t wire_take(struct wire_in *in, const unsigned char *p,
			       size_t n)
{
	unsigned char *o;
	size_t i = 0;

	if (in->whole)
		wire_clear(&in->frame);
	in->whole = false;
	o = wire_room(&in->frame, n);
	while (i < n && !in->whole) {
		unsigned char c = p[i++];

		if (c == WIRE_END) {
			in->whole = o > wire_head(&in->frame) && !in->dropped;
			if (in->dropped)
				o = wire_head(&in->frame);
			in->dropped = in->escaped = false;
		} else if (c == WIRE_ESC) {
			in->escaped = true;
		} else {
			if (in->escaped)
				c = c == WIRE_ESC_END ? WIRE_END : WIRE_ESC;
			in->escaped = false;
			*o++ = c;
		}
	}
	in->frame.end = (size_t)(o - in->frame.data);
	if (wire_len(&in->frame) > WIRE_MAX) {
		wire_clear(&in->frame);
		in->dropped = !in->whole;
		in->whole = false;
	}
	return i;
}

static inline char wire_type(const struct wire_in *in)
{
	return (char)*wire_head(&in->frame);
}

static inline const char *wire_payload(const struct wire_in *in)
{
	return (const char *)wire_head(&in->frame) + 1;
}

static inline size_t wire_payload_len(const struct wire_in *in)
{
	return wire_len(&in->frame) - 1;
}

/* How many strings the payload of a frame, a list, has; 0 if it was cut off. */
static inline size_t wire_strings(const struct wire_in *in)
{
	const char *p = wire_payload(in);
	size_t n = wire_payload_len(in), k = 0;

	if (n && p[n - 1])
		return 0;
	for (size_t i = 0; i < n; i++)
		k += !p[i];
	return k;
}

/*
 * Cut the payload of a frame, a list, into v, which has room for most strings and the
 * NULL behind them. Gives how many there are; 0 if they are more, or cut off. The
 * strings stay where they are.
 */
static inline size_t wire_list(const struct wire_in *in, char **v, size_t most)
{
	char *p = (char *)wire_payload(in);
	size_t k = wire_strings(in);

	if (k > most)
		return 0;
	for (size_t i = 0; i < k; i++, p += strlen(p) + 1)
		v[i] = p;
	v[k] = NULL;
	return k;
}

/* Append one string of a list. */
static inline void wire_str(struct wire_buf *list, const char *s)
{
	wire_add(list, s, strlen(s) + 1);
}

/* Append the list as one frame to out; then it is empty, for the next one. */
static inline void wire_put_list(struct wire_buf *out, char type,
				 struct wire_buf *list)
{
	wire_put(out, type, wire_head(list), wire_len(list));
	wire_clear(list);
}

#endif

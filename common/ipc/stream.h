/* SPDX-License-Identifier: MIT */
/*
 * stream.h - messages on a Unix stream socket, and the buffers that they
 * pass through.
 *
 * On the wire: the length of the message, 4 bytes little-endian (1 ... 1 MiB),
 * then the message, one MessagePack value (proto.h). A stream socket
 * keeps no message boundaries: a read may end anywhere, in the middle of the
 * length too, and begin with the rest of it a minute later. So what has
 * arrived stays in the stream's buffer until a whole message is there.
 *
 * Both buffers are bounded and grow with what really arrived, never with what a
 * length claims; beyond ENGINE_STREAM_SIZE, within two budgets as well. Nothing here
 * waits, and nothing prints: whoever owns the stream knows whom a failure concerns.
 */
#ifndef IPC_STREAM_H
#define IPC_STREAM_H

#include "base/room.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENGINE_PREFIX_SIZE 4	      /* bytes of the length */
#define ENGINE_FRAME_MAX   (1u << 20) /* bytes of a message */
#define ENGINE_STREAM_SIZE 8192	      /* bytes of a buffer, as a rule */

/* A growing buffer: bytes [start, end) of @data are in use. */
struct engine_bytes {
	char *data;
	size_t size; /* bytes allocated */
	size_t start, end;
};

/* One side of a connection. */
struct engine_stream {
	int fd; /* -1: closed */
	struct engine_bytes in, out;
	/* What larger buffers are counted in, half of @all stays free. Or NULL. */
	struct budget *all, *own;
	uint64_t sent;	  /* bytes, so far */
	size_t out_most;  /* bytes of out; what would make it more is refused */
	size_t frame_at;  /* where the message being written begins in out */
	int frame_failed; /* 0, or the -errno that left no room for it */
	bool takes_fds;	  /* keep a file descriptor that comes (client) */
	int in_fd;	  /* it came; -1: none */
	int out_fd;	  /* to be sent with a message; -1: none */
	size_t out_fd_at; /* where that message begins, bytes still before it */
};

/*
 * Begin with the connected socket @fd, which is the stream's from now on.
 * @out_most: bound of the bytes that wait to be sent, at least one message.
 */
void engine_stream_init(struct engine_stream *s, int fd, size_t out_most);

/* Close the socket and any descriptor under way, free the buffers. */
void engine_stream_close(struct engine_stream *s);

/* ---- receiving ---------------------------------------------------------- */

/*
 * Take what has arrived, without waiting. Returns the number of bytes; 0: the
 * peer has closed its side; -EAGAIN: nothing there; -ENOBUFS: the buffer is full
 * and holds a message; -EDQUOT: it may not grow; -ENOMEM; or another -errno of
 * recvmsg(2).
 */
long engine_stream_fill(struct engine_stream *s);

/*
 * Is a whole message there? Returns 1 with *@data and *@size (bytes of the
 * message, 0 among them; valid until engine_stream_next() or _fill()); 0: more
 * must arrive; -EMSGSIZE: the length is over ENGINE_FRAME_MAX and stands in
 * *@size. After that nothing that follows can be told apart any more.
 */
int engine_stream_frame(struct engine_stream *s, const char **data,
			uint32_t *size);

/* Done with the message that engine_stream_frame() gave. */
void engine_stream_next(struct engine_stream *s);

/* True if a part of a message is there, but not all of it. */
bool engine_stream_is_midway(const struct engine_stream *s);

/* Forget what has arrived (the framing is lost, or nobody wants it). */
void engine_stream_discard(struct engine_stream *s);

/*
 * The descriptor that came along, the caller's now; -1: none. It is there when
 * its message is, or a little earlier.
 */
int engine_stream_take_fd(struct engine_stream *s);

/* ---- sending ------------------------------------------------------------ */

/*
 * Write a message: begin, append its parts, end. engine_stream_append() has the
 * shape that msgpack_packer wants: 0, or -1 if there is no room. Returns 0,
 * -EMSGSIZE (over ENGINE_FRAME_MAX), -ENOBUFS (over out_most), -EDQUOT (over a
 * budget) or -ENOMEM; then nothing of the message is in the buffer.
 */
void engine_stream_begin(struct engine_stream *s);
int engine_stream_append(void *stream, const char *data, size_t size);
int engine_stream_end(struct engine_stream *s);

/*
 * Send @fd (a duplicate of it; it stays the caller's) along with the message
 * that was ended last. -EBUSY: one is waiting already; or -errno of dup.
 */
int engine_stream_attach(struct engine_stream *s, int fd);

/* Bytes that wait to be sent. */
size_t engine_stream_pending(const struct engine_stream *s);

/*
 * Send as much as the socket takes, without waiting. Returns 0: all is sent;
 * -EAGAIN: the rest must wait for POLLOUT; or another -errno of sendmsg(2).
 */
int engine_stream_flush(struct engine_stream *s);

#endif

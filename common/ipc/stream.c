// SPDX-License-Identifier: MIT
/*
 * stream.c —— Unix stream socket 上的“消息”：4 字节长度 + 一个 MessagePack 值
 *
 * stream socket 与 TCP 一样只是字节流。原版 engine 用 read_exact 读长度，外面套一个
 * 100 ms 的 timeout：长度若分两次到、中间隔了 100 ms，已读走的那一两个字节就随着被
 * 取消的 future 一起丢了，此后每一条消息都错位。这里的做法是：到了多少就存多少，
 * “够一条了吗”永远只看缓冲区，与字节怎样到达无关。
 *
 * 另一个要点是信任：长度是对端说的。按它去 malloc，一千个 client 各说一句“1 MiB”
 * 就要走 1 GiB；所以缓冲区只随真正到达的字节增长。
 */
#include "stream.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM	 1024 /* 一次 recv 至少给它这么大的地方 */
#define FDS_MOST 8    /* 一次 recvmsg 收得下的 fd */
#define IN_MOST	 (ENGINE_PREFIX_SIZE + (size_t)ENGINE_FRAME_MAX)

void engine_stream_init(struct engine_stream *s, int fd, size_t out_most)
{
	*s = (struct engine_stream){
		.fd = fd, .out_most = out_most, .in_fd = -1, .out_fd = -1
	};
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* 头 8 KiB 人人都有，不记账；再长的才记。*/
static size_t counted(size_t size)
{
	return size > ENGINE_STREAM_SIZE ? size - ENGINE_STREAM_SIZE : 0;
}

static void free_bytes(struct engine_stream *s, struct engine_bytes *b)
{
	free(b->data);
	budget_return(s->own, counted(b->size));
	budget_return(s->all, counted(b->size));
	*b = (struct engine_bytes){ 0 };
}

void engine_stream_close(struct engine_stream *s)
{
	close_fd(&s->fd);
	close_fd(&s->in_fd);
	close_fd(&s->out_fd);
	free_bytes(s, &s->in);
	free_bytes(s, &s->out);
}

static size_t used(const struct engine_bytes *b)
{
	return b->end - b->start;
}

/* 空了就从头用起；曾经很大的，顺便还给系统，否则一千个 client 各占 1 MiB。*/
static void rewind_empty(struct engine_stream *s, struct engine_bytes *b)
{
	if (b->start != b->end)
		return;
	b->start = b->end = 0;
	if (b->size > ENGINE_STREAM_SIZE)
		free_bytes(s, b);
}

/*
 * 先记账，再 realloc。长消息至多用到总数的一半：一百个 client 各写半条就停下，别人的
 * READ 也还有地方。
 */
static int grow(struct engine_stream *s, struct engine_bytes *b, size_t size)
{
	size_t more = counted(size) - counted(b->size);
	char *data;

	if (!budget_take(s->own, more, 0))
		return -EDQUOT;
	if (!budget_take(s->all, more, more && s->all ? s->all->most / 2 : 0)) {
		budget_return(s->own, more);
		return -EDQUOT;
	}
	data = realloc(b->data, size);
	if (!data) {
		budget_return(s->own, more);
		budget_return(s->all, more);
		return -ENOMEM;
	}
	b->data = data;
	b->size = size;
	return 0;
}

/* 让 b 的尾部至少有 @room 个空位，总量不超过 @most。*/
static int make_room(struct engine_stream *s, struct engine_bytes *b,
		     size_t room, size_t most)
{
	size_t size = b->size ? b->size : ENGINE_STREAM_SIZE;

	if (room > most || used(b) > most - room)
		return -ENOBUFS;
	if (b->size - b->end >= room)
		return 0;
	if (b->start) {
		memmove(b->data, b->data + b->start, used(b));
		b->end -= b->start;
		b->start = 0;
	}
	while (size - b->end < room)
		size *= 2;
	/* 从不大于 most：于是“还放得下”就等于“没有越过界限”。*/
	if (size > most)
		size = most;
	return size == b->size ? 0 : grow(s, b, size);
}

/*
 * SCM_RIGHTS：随字节一起到的文件描述符。它在 recvmsg 返回的那一刻就已经装进本进程的
 * fd 表，不取就是泄漏；所以只认第一个，多的立即关掉。
 */
static void keep_fd(struct engine_stream *s, struct msghdr *msg)
{
	struct cmsghdr *c;
	int fds[FDS_MOST];

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		if (n > FDS_MOST)
			n = FDS_MOST;
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
		for (size_t i = 0; i < n; i++) {
			if (s->in_fd < 0)
				s->in_fd = fds[i];
			else
				close(fds[i]);
		}
	}
}

static ssize_t receive_with_fd(struct engine_stream *s, void *to, size_t size)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(FDS_MOST * sizeof(int))];
	} control;
	struct iovec iov = { to, size };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(s->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n >= 0)
		keep_fd(s, &msg);
	return n;
}

long engine_stream_fill(struct engine_stream *s)
{
	size_t left, room;
	ssize_t n;
	int rc;

	rewind_empty(s, &s->in);
	left = IN_MOST - used(&s->in);
	if (!left)
		return -ENOBUFS;
	rc = make_room(s, &s->in, left < ROOM ? left : ROOM, IN_MOST);
	if (rc)
		return rc;
	room = s->in.size - s->in.end;
	/*
	 * 用 recv 而不是 recvmsg，就没有地方放 control message：对端塞来的 fd 会被
	 * 内核直接关掉。server 一个也不要。
	 */
	if (s->takes_fds)
		n = receive_with_fd(s, s->in.data + s->in.end, room);
	else
		n = recv(s->fd, s->in.data + s->in.end, room, MSG_DONTWAIT);
	if (n < 0)
		return errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN
							      : -errno;
	s->in.end += (size_t)n;
	return n;
}

// region frame
int engine_stream_frame(struct engine_stream *s, const char **data,
			uint32_t *size)
{
	uint32_t wire;

	/* 长度本身也可能只到了一两个字节：留在缓冲区里，下次再看。*/
	if (used(&s->in) < ENGINE_PREFIX_SIZE)
		return 0;
	memcpy(&wire, s->in.data + s->in.start, sizeof(wire));
	*size = le32toh(wire);
	/*
	 * 超长的消息无法跳过：要跳过就得先收下它，而“收下 4 GiB”正是要拒绝的事。
	 * 于是从这里往后再没有可信的消息边界，这条连接只能以一个 Error 结束。
	 */
	if (*size > ENGINE_FRAME_MAX)
		return -EMSGSIZE;
	if (used(&s->in) - ENGINE_PREFIX_SIZE < *size)
		return 0;
	*data = s->in.data + s->in.start + ENGINE_PREFIX_SIZE;
	return 1;
}
// endregion frame

void engine_stream_next(struct engine_stream *s)
{
	const char *data;
	uint32_t size;

	if (engine_stream_frame(s, &data, &size) == 1)
		s->in.start += ENGINE_PREFIX_SIZE + size;
	rewind_empty(s, &s->in);
}

bool engine_stream_is_midway(const struct engine_stream *s)
{
	return used(&s->in) > 0;
}

void engine_stream_discard(struct engine_stream *s)
{
	s->in.start = s->in.end;
	rewind_empty(s, &s->in);
}

int engine_stream_take_fd(struct engine_stream *s)
{
	int fd = s->in_fd;

	s->in_fd = -1;
	return fd;
}

/* 先空出 4 个字节，写完消息才知道长度，再回头填。*/
void engine_stream_begin(struct engine_stream *s)
{
	static const char blank[ENGINE_PREFIX_SIZE];

	rewind_empty(s, &s->out);
	s->frame_at = used(&s->out);
	s->frame_failed = 0;
	engine_stream_append(s, blank, sizeof(blank));
}

int engine_stream_append(void *stream, const char *data, size_t size)
{
	struct engine_stream *s = stream;

	/* 对端不读，out 就只增不减：到了界限便拒绝，而不是替它无限地存。*/
	if (!s->frame_failed && s->out.size - s->out.end < size)
		s->frame_failed = make_room(s, &s->out, size, s->out_most);
	if (s->frame_failed)
		return -1;
	memcpy(s->out.data + s->out.end, data, size);
	s->out.end += size;
	return 0;
}

int engine_stream_end(struct engine_stream *s)
{
	size_t at = s->out.start + s->frame_at;
	size_t size = s->out.end - at - ENGINE_PREFIX_SIZE;
	uint32_t wire = htole32((uint32_t)size);

	if (!s->frame_failed && size <= ENGINE_FRAME_MAX) {
		memcpy(s->out.data + at, &wire, sizeof(wire));
		return 0;
	}
	s->out.end = at;
	return s->frame_failed ? s->frame_failed : -EMSGSIZE;
}

int engine_stream_attach(struct engine_stream *s, int fd)
{
	if (s->out_fd >= 0)
		return -EBUSY;
	s->out_fd = dup(fd);
	s->out_fd_at = s->frame_at;
	return s->out_fd < 0 ? -errno : 0;
}

size_t engine_stream_pending(const struct engine_stream *s)
{
	return used(&s->out);
}

// region send-fd
/*
 * 文件描述符不是字节，走的是 control message：内核把“打开的文件”的引用交给对端，
 * 在对端的 fd 表里另起一个号。它附在这次 sendmsg 的第一个字节上。
 */
static ssize_t send_with_fd(struct engine_stream *s, const struct iovec *iov)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct msghdr msg = { .msg_iov = (struct iovec *)iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	ssize_t n;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &s->out_fd, sizeof(int));
	n = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0)
		close_fd(&s->out_fd);
	return n;
}
// endregion send-fd

int engine_stream_flush(struct engine_stream *s)
{
	while (used(&s->out)) {
		struct iovec iov = { s->out.data + s->out.start,
				     used(&s->out) };
		ssize_t n;

		/* fd 要跟着它那条消息的第一个字节走：前面的先单独发。*/
		if (s->out_fd >= 0 && s->out_fd_at)
			iov.iov_len = s->out_fd_at;
		if (s->out_fd >= 0 && !s->out_fd_at)
			n = send_with_fd(s, &iov);
		else
			n = send(s->fd, iov.iov_base, iov.iov_len,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		if (n > 0) {
			s->out.start += (size_t)n;
			s->sent += (uint64_t)n;
			if (s->out_fd >= 0)
				s->out_fd_at -= (size_t)n;
		}
	}
	rewind_empty(s, &s->out);
	return 0;
}

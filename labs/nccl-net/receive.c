// SPDX-License-Identifier: MIT
/*
 * receive.c —— 接收的一侧：credit 出去，frame 进来
 *
 * transfer.c 开头说明了两者的关系。这里要紧的有两件：对端不可信，所以 frame 里的每个数
 * 都在用来算地址之前检查；系统调用是这里唯一的成本，所以能少一次就少一次。
 */
#include "net_lab.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* 空闲的 data socket 隔这么多轮才看一眼：每看一次是一次系统调用。*/
#define COLD_ROUNDS 8
/* 见 peek_stream()：攒到多少字节就取走，空转多少轮也取走。*/
#define PEEKED_MOST 500
#define IDLE_ROUNDS 64

/* ---- 接收方：credit 出去 -------------------------------------------------- */

static int flush_credits(struct lab_comm *c)
{
	ssize_t n;

	if (!c->rx.pending)
		return 0;
	n = send(c->control, c->rx.out, c->rx.pending,
		 MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0 && lab_would_block(errno))
		return 0;
	if (n < 0)
		return LAB_FAIL(c, NCCL_REMOTE_ERROR,
				"announcing a receive failed: %s",
				strerror(errno));
	c->rx.pending -= (size_t)n;
	memmove(c->rx.out, c->rx.out + n, c->rx.pending);
	return 0;
}

/*
 * out[] 放得下 16 个 credit，所以永远够：没发出去的 credit，其 irecv 必然未完成，而
 * 未完成的 irecv 至多 16 个。
 */
int lab_announce(struct lab_comm *c, const struct lab_request *r)
{
	size_t size = CREDIT_HEAD + r->n * CREDIT_SLOT;
	struct lab_credit w = { .magic = htobe32(LAB_CREDIT_MAGIC),
				.seq = htobe32(r->seq),
				.n = htobe32(r->n) };

	for (unsigned int i = 0; i < r->n; i++) {
		w.slot[i].size = htobe32(r->part[i].room);
		w.slot[i].tag = htobe32((uint32_t)r->part[i].tag);
	}
	memcpy(c->rx.out + c->rx.pending, &w, size);
	c->rx.pending += size;
	return flush_credits(c);
}

/* ---- 接收方：frame 进来 --------------------------------------------------- */

/* 这个 frame 错在哪里；NULL：没有错。一切检查都在算地址之前。*/
static const char *frame_fault(struct lab_comm *c, const struct lab_frame *f)
{
	struct lab_request *r = &c->requests[f->seq % LAB_MAX_REQUESTS];
	const struct lab_part *p;

	if (f->magic != LAB_FRAME_MAGIC)
		return "no frame begins so";
	if (!r->comm || r->seq != f->seq)
		return "no such receive is outstanding";
	if (f->slot >= r->n)
		return "the receive has no such slot";
	p = &r->part[f->slot];
	if (p->begun && f->total != p->total)
		return "the total differs from the first piece's";
	if (p->begun && p->claimed == p->total)
		return "the slot has its message already";
	if (f->total > p->room)
		return "the message is longer than the buffer";
	if (f->offset > f->total || f->length > f->total - f->offset)
		return "the piece ends beyond its message";
	if (!f->length && f->total)
		return "an empty piece of a message that is not empty";
	/*
	 * 各片之和不得超过 total。少了这条，两个重叠的片能让 part “收齐”、test 说
	 * done，而另一个 socket 还在往用户可能已经释放的缓冲区里写。
	 */
	if (p->begun && f->length > p->total - p->claimed)
		return "the pieces are more than the message";
	return NULL;
}

static int open_frame(struct lab_comm *c, struct lab_stream *s,
		      const char *wire)
{
	struct lab_frame f;
	const char *fault;

	memcpy(&f, wire, sizeof(f));
	f = (struct lab_frame){ be32toh(f.magic),  be32toh(f.seq),
				be32toh(f.slot),   be32toh(f.total),
				be32toh(f.offset), be32toh(f.length) };
	fault = frame_fault(c, &f);
	if (fault)
		return LAB_FAIL(c, NCCL_REMOTE_ERROR,
				"%s: frame magic 0x%08x, seq %u, slot %u, "
				"total %u, offset %u, length %u",
				fault, f.magic, f.seq, f.slot, f.total,
				f.offset, f.length);
	s->req = &c->requests[f.seq % LAB_MAX_REQUESTS];
	s->part = &s->req->part[f.slot];
	s->part->begun = true;
	s->part->total = f.total;
	s->part->claimed += f.length;
	s->at = s->part->data ? s->part->data + f.offset : NULL;
	s->left = f.length;
	if (!s->left)
		lab_frame_done(c, s); /* 空消息：头就是全部 */
	return 0;
}

static void account_received(struct lab_comm *c, struct lab_stream *s, size_t n)
{
	s->at += n;
	s->left -= n;
	s->part->moved += (uint32_t)n;
	if (!s->left)
		lab_frame_done(c, s);
}

/* stash 里可能有：头的一半、几条完整的小消息、一条大消息的开头。*/
static int parse_stash(struct lab_comm *c, struct lab_stream *s)
{
	size_t used = 0;
	int rc = 0;

	while (!rc && used < s->stashed) {
		size_t n = s->stashed - used;

		if (s->left) {
			if (n > s->left)
				n = s->left;
			memcpy(s->at, s->stash + used, n);
			account_received(c, s, n);
			used += n;
		} else if (n >= sizeof(struct lab_frame)) {
			rc = open_frame(c, s, s->stash + used);
			used += sizeof(struct lab_frame);
		} else {
			break;
		}
	}
	s->stashed -= used;
	memmove(s->stash, s->stash + used, s->stashed);
	return rc;
}

/*
 * 对端关闭了这个 socket。别的 socket 里也许还有它关闭之前发的数据，所以只要不是断在
 * 消息中间，就先记着；全都关了而还有人在等，才是错误。
 */
static int stream_ended(struct lab_comm *c, struct lab_stream *s)
{
	s->eof = true;
	s->hot = false;
	c->rx.eofs++;
	if (!s->req && !s->stashed)
		return 0;
	return LAB_FAIL(c, NCCL_REMOTE_ERROR,
			"the sender closed the connection in the middle of a "
			"message");
}

/*
 * 一次系统调用收两处：当前 payload 剩下的部分直接进用户内存，再多的进 stash。大消息
 * 因此没有中间拷贝；小消息的头和 payload 一起进 stash，也只要一次。没有 payload 在收
 * 的时候（空转大多如此）用 recv：内核不必从用户空间取 iovec，每次省 0.1 微秒。
 */
static ssize_t receive_some(struct lab_stream *s)
{
	struct iovec iov[2] = {
		{ s->at, s->left },
		{ s->stash + s->stashed, LAB_STASH - s->stashed },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	if (!s->left)
		return recv(s->fd, iov[1].iov_base, iov[1].iov_len,
			    MSG_DONTWAIT);
	return recvmsg(s->fd, &msg, MSG_DONTWAIT);
}

static int receive_failed(struct lab_comm *c)
{
	if (lab_would_block(errno))
		return 0;
	return LAB_FAIL(c, NCCL_REMOTE_ERROR, "receiving failed: %s",
			strerror(errno));
}

static int pull_stream(struct lab_comm *c, struct lab_stream *s)
{
	for (;;) {
		size_t room = s->left + LAB_STASH - s->stashed;
		ssize_t n = receive_some(s);
		size_t direct;
		int rc;

		s->hot = n > 0;
		if (n < 0)
			return receive_failed(c);
		if (!n)
			return stream_ended(c, s);
		direct = (size_t)n < s->left ? (size_t)n : s->left;
		s->stashed += (size_t)n - direct;
		if (direct)
			account_received(c, s, direct);
		rc = parse_stash(c, s);
		/* 没装满：内核里已经没有了，不必再问一次换一个 EAGAIN。*/
		if (rc || (size_t)n < room)
			return rc;
	}
}

/*
 * 两个 frame 之间，只偷看（MSG_PEEK），看过的留在内核里，攒够了再一起丢掉。
 *
 * 为什么绕这个弯？我们的 data socket 只有一个方向有数据，ACK 没有回程的数据可搭：每次
 * recv 取走一条小消息，内核就在这次系统调用里单独发一个 ACK，正好挡在“收到”与“回信”
 * 之间，要 2 到 3 微秒，与发一条消息一样贵。偷看不算取走，也就不发；攒几条取一次，
 * ping-pong 的半程便从 6.3 微秒降到 4.5 微秒。攒得也不能太多：对端发来的字节超过内核估计
 * 的一个 MSS（小消息时是 536），内核还是会立刻 ACK，所以在那之前取走。
 *
 * 收大消息不走这里：payload 一开始就直接进用户内存。
 */
static int peek_stream(struct lab_comm *c, struct lab_stream *s)
{
	ssize_t n = recv(s->fd, s->stash, LAB_STASH, MSG_PEEK | MSG_DONTWAIT);
	size_t fresh;
	int rc;

	s->hot = n > 0 && (size_t)n > s->peeked;
	if (n < 0)
		return receive_failed(c);
	if (!n)
		return stream_ended(c, s);
	if (!s->hot) {
		/* 看过的字节挡在前面，就看不到对端的关闭：闲久了先丢掉。*/
		if (++s->idle == IDLE_ROUNDS)
			lab_discard_peeked(s);
		return 0;
	}
	fresh = (size_t)n - s->peeked;
	memmove(s->stash, s->stash + s->peeked, fresh);
	s->stashed = fresh;
	rc = parse_stash(c, s);
	s->peeked += fresh;
	/* 头只来了一半：取走，留在 stash 里。它挡在前面，就看不到对端的关闭。*/
	if (s->left || s->stashed || s->peeked > PEEKED_MOST)
		lab_discard_peeked(s);
	return rc;
}

static int receive_on(struct lab_comm *c, struct lab_stream *s)
{
	int rc = s->left || s->stashed ? 0 : peek_stream(c, s);

	/* 偷看到一条大消息的开头：接着就收它。*/
	if (!rc && !s->eof && (s->left || s->stashed))
		rc = pull_stream(c, s);
	return rc;
}

/*
 * 空转的 test 每轮至少一次系统调用，socket 一多就贵了。socket 0 每轮都看；别的 socket
 * 上次有数据（hot）才看，冷的隔几轮看一眼。代价只是偶尔晚发现几百纳秒。
 */
int lab_pull(struct lab_comm *c)
{
	bool all = ++c->rx.rounds % COLD_ROUNDS == 0;
	int rc = c->error ? c->error : flush_credits(c);

	for (unsigned int i = 0; !rc && i < c->nstreams; i++) {
		struct lab_stream *s = &c->streams[i];

		if (!s->eof && (!i || s->hot || all))
			rc = receive_on(c, s);
	}
	if (!rc && c->rx.eofs == c->nstreams && c->waiting)
		rc = LAB_FAIL(c, NCCL_REMOTE_ERROR,
			      "the sender closed the connection with %u "
			      "receives outstanding",
			      c->waiting);
	return rc;
}

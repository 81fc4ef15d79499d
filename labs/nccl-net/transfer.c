// SPDX-License-Identifier: MIT
/*
 * transfer.c —— isend、irecv、test：credit 先行，数据随后
 *
 * 在 RDMA 里，SEND 若先于对端的 RECV 到达，就是 RNR。NCCL 的 IB 插件因此不让发送方
 * 先动：接收方 irecv 时把 {addr, rkey, size, tag} 用 RDMA WRITE 写进发送方的一个
 * FIFO，发送方看到了才 WRITE 数据，而且直接写进最终的缓冲区。
 *
 * 我们在 TCP 上照着做，只是没有 addr 和 rkey 可给：
 *
 *	receiver                          sender
 *	irecv  ── credit {seq, size, tag} ──▶  （control socket）
 *	                                  isend 找到同 tag 的 credit
 *	       ◀── frame {seq, slot, …} ───  payload（data socket）
 *	test：收齐，done                  test：字节都进了内核，done
 *
 * credit 换来三件事：数据到达时缓冲区一定已经在那里，所以直接收进用户内存，没有中间
 * 拷贝；接收方不会被淹没；太大的消息在发送方就被发现，错误落在犯错的一侧。
 *
 * 对端不可信：frame 里的每个数都在用来算地址之前检查。
 */
#include "net_lab.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/*
 * 不大于此的消息只用一个 frame，也就只用一次 sendmsg。再大才值得切开分给几个
 * socket；切得太碎，每片 24 字节的头和一次系统调用就不再可以忽略。
 */
#define CHUNK_MIN (64u << 10)

/* ---- 发送方：credit 进来 -------------------------------------------------- */

/* in[] 里第一个完整的 credit 占多少字节；0：还不完整。*/
static size_t credit_length(struct lab_comm *c, const char *at, size_t size)
{
	struct lab_credit w;
	uint32_t n;

	if (size < CREDIT_HEAD)
		return 0;
	memcpy(&w, at, CREDIT_HEAD);
	n = be32toh(w.n);
	if (be32toh(w.magic) != LAB_CREDIT_MAGIC || !n ||
	    n > NCCL_NET_PLUGIN_MAX_RECVS ||
	    be32toh(w.seq) != c->tx.next_group) {
		LAB_FAIL(c, NCCL_REMOTE_ERROR,
			 "not a credit: magic 0x%08x, seq %u (%u was to come), "
			 "n %u",
			 be32toh(w.magic), be32toh(w.seq), c->tx.next_group, n);
		return 0;
	}
	if (size < CREDIT_HEAD + n * CREDIT_SLOT)
		return 0;
	return CREDIT_HEAD + n * CREDIT_SLOT;
}

/*
 * 守规矩的接收方不会有第 17 个：它的第 16 个之前的那个 irecv 若没收齐，位置就空不
 * 出来；收齐了，说明我们早已把它的 slot 都用掉了。
 */
static int take_credit(struct lab_comm *c, const char *at, size_t size)
{
	uint32_t place = c->tx.next_group % LAB_MAX_REQUESTS;
	struct lab_group *g = &c->tx.groups[place];
	struct lab_credit w;

	if (c->tx.next_group - c->tx.first_group == LAB_MAX_REQUESTS)
		return LAB_FAIL(c, NCCL_REMOTE_ERROR,
				"more than %d receives announced",
				LAB_MAX_REQUESTS);
	memcpy(&w, at, size);
	g->n = be32toh(w.n);
	g->taken = 0;
	for (unsigned int i = 0; i < g->n; i++) {
		g->slot[i].size = be32toh(w.slot[i].size);
		g->slot[i].tag = (int)be32toh(w.slot[i].tag);
	}
	c->tx.next_group++;
	return 0;
}

static int read_credits(struct lab_comm *c)
{
	size_t used = 0, len;
	ssize_t n = recv(c->control, c->tx.in + c->tx.got,
			 sizeof(c->tx.in) - c->tx.got, MSG_DONTWAIT);

	if (n < 0 && lab_would_block(errno))
		return 0;
	if (n < 0)
		return LAB_FAIL(c, NCCL_REMOTE_ERROR,
				"reading credits failed: %s", strerror(errno));
	if (!n)
		return LAB_FAIL(c, NCCL_REMOTE_ERROR,
				"the receiver has closed the connection");
	c->tx.got += (size_t)n;
	while ((len = credit_length(c, c->tx.in + used, c->tx.got - used))) {
		if (take_credit(c, c->tx.in + used, len))
			break;
		used += len;
	}
	c->tx.got -= used;
	memmove(c->tx.in, c->tx.in + used, c->tx.got);
	return c->error;
}

/*
 * 从最早的 irecv 找起，第一个同 tag 且还空着的 slot。顺序就是语义：同一个 tag 的两条
 * 消息按 irecv 的先后落位，与 MPI 的规则一样。
 */
static bool find_slot(const struct lab_comm *c, int tag, uint32_t *seq,
		      uint32_t *slot)
{
	for (uint32_t s = c->tx.first_group; s != c->tx.next_group; s++) {
		const struct lab_group *g = &c->tx.groups[s % LAB_MAX_REQUESTS];

		for (uint32_t i = 0; i < g->n; i++) {
			if (g->slot[i].tag != tag || (g->taken & 1u << i))
				continue;
			*seq = s;
			*slot = i;
			return true;
		}
	}
	return false;
}

static void take_slot(struct lab_comm *c, uint32_t seq, uint32_t slot)
{
	struct lab_group *g = &c->tx.groups[seq % LAB_MAX_REQUESTS];

	g->taken |= 1u << slot;
	while (c->tx.first_group != c->tx.next_group) {
		g = &c->tx.groups[c->tx.first_group % LAB_MAX_REQUESTS];
		if (g->taken != (1u << g->n) - 1)
			break;
		c->tx.first_group++;
	}
}

/* ---- 发送方：frame 出去 --------------------------------------------------- */

/* 大消息平分给各 socket，按 64 KiB 取整；小消息一片到底。*/
static uint32_t chunk_size(const struct lab_comm *c, uint32_t total)
{
	uint32_t share = total / c->nstreams;

	return (share / CHUNK_MIN + 1) * CHUNK_MIN;
}

/*
 * 空闲的 socket 来领下一片，总是领最早那条消息的：前面的不走完，后面的先到也没用，
 * NCCL 只等最老的那个 request。
 */
static bool next_frame(struct lab_comm *c, struct lab_stream *s)
{
	struct lab_request *r = &c->requests[c->tx.unsent % LAB_MAX_REQUESTS];
	struct lab_part *p = &r->part[0];
	uint32_t length, chunk;

	if (c->tx.unsent == c->next)
		return false;
	chunk = chunk_size(c, p->total);
	length = p->total - p->claimed;
	if (length > chunk)
		length = chunk;
	s->req = r;
	s->part = p;
	s->at = p->data ? p->data + p->claimed : NULL;
	s->left = length;
	s->head_left = sizeof(s->head);
	s->head = (struct lab_frame){
		htobe32(LAB_FRAME_MAGIC), htobe32(r->seq),     htobe32(r->slot),
		htobe32(p->total),	  htobe32(p->claimed), htobe32(length),
	};
	p->claimed += length;
	if (p->claimed == p->total)
		c->tx.unsent++;
	return true;
}

/* 头和 payload 用一次 sendmsg：分两次写，小消息的延迟就多一次系统调用。*/
static ssize_t send_some(struct lab_stream *s)
{
	struct iovec iov[2] = {
		{ (char *)&s->head + sizeof(s->head) - s->head_left,
		  s->head_left },
		{ s->at, s->left },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = s->left ? 2 : 1 };

	/* NOSIGNAL：插件住在别人的进程里，SIGPIPE 会杀死整个训练任务。*/
	return sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void account_sent(struct lab_stream *s, size_t n)
{
	size_t head = n < s->head_left ? n : s->head_left;

	s->head_left -= head;
	n -= head;
	if (!n)
		return;
	s->at += n;
	s->left -= n;
	s->part->moved += (uint32_t)n;
}

static int push_stream(struct lab_comm *c, struct lab_stream *s)
{
	ssize_t n;

	for (;;) {
		if (!s->req) {
			if (!next_frame(c, s))
				return 0;
			c->tx.busy++;
		}
		n = send_some(s);
		if (n < 0 && lab_would_block(errno))
			return 0;
		if (n < 0)
			return LAB_FAIL(c, NCCL_REMOTE_ERROR,
					"sending failed: %s", strerror(errno));
		account_sent(s, (size_t)n);
		if (s->head_left || s->left)
			return 0; /* 短写：socket buffer 满了，换下一个 */
		lab_frame_done(c, s);
		c->tx.busy--;
	}
}

/*
 * socket 0 总是先领：流量小的时候，消息都走它，接收方也就只需盯着它一个。只有它满了，
 * 后面的 socket 才有活干。
 */
static int push(struct lab_comm *c)
{
	int rc = c->error;

	for (unsigned int i = 0; !rc && i < c->nstreams; i++) {
		if (c->tx.unsent == c->next && !c->tx.busy)
			break; /* 无事可做的发送方，一次系统调用也不做 */
		rc = push_stream(c, &c->streams[i]);
	}
	return rc;
}

/* ---- 接口 ----------------------------------------------------------------- */

/* NULL 可以（我们不需要注册），但若给了，就得是这个 comm 的。*/
static bool mr_is_ours(const struct lab_comm *c, const void *mhandle)
{
	const struct lab_mr *mr = mhandle;

	if (!mr || (mr->magic == LAB_MR_MAGIC && mr->comm == c))
		return true;
	LAB_WARN("the mhandle %p was not registered with this comm", mhandle);
	return false;
}

static bool buffer_fits(const void *data, int size)
{
	if (size >= 0 && (data || !size))
		return true;
	LAB_WARN("not a buffer: %p, %d bytes", data, size);
	return false;
}

static struct lab_request *new_request(struct lab_comm *c, unsigned int n)
{
	struct lab_request *r = &c->requests[c->next % LAB_MAX_REQUESTS];

	if (r->comm)
		return NULL;
	r->comm = c;
	r->seq = c->next++;
	r->n = n;
	r->unfinished = n;
	c->waiting++;
	return r;
}

// region isend
static int queue_send(struct lab_comm *c, void *data, int size, int tag,
		      void **request)
{
	struct lab_request *r;
	uint32_t seq, slot, room;
	int rc = 0;

	if (c->requests[c->next % LAB_MAX_REQUESTS].comm)
		return 0;
	/* credit 依次到达，没读的都比已知的晚：已知的里找得到，就不必去读。*/
	if (!find_slot(c, tag, &seq, &slot)) {
		rc = read_credits(c);
		if (rc || !find_slot(c, tag, &seq, &slot))
			return rc;
	}
	room = c->tx.groups[seq % LAB_MAX_REQUESTS].slot[slot].size;
	if ((uint32_t)size > room)
		return LAB_REFUSE(
			NCCL_INVALID_USAGE,
			"isend of %d bytes (tag %d) to %s: the receive posted "
			"there takes %u bytes",
			size, tag, c->peer, room);
	take_slot(c, seq, slot);
	r = new_request(c, 1);
	r->seq = seq;
	r->slot = slot;
	r->part[0] = (struct lab_part){ .data = data, .total = (uint32_t)size };
	/* 立刻就推：等到 test 才发，小消息就白白晚了一轮。*/
	rc = push(c);
	if (!rc)
		*request = r;
	return rc;
}

int lab_isend(void *comm, void *data, int size, int tag, void *mhandle,
	      void **request)
{
	struct lab_comm *c = lab_comm_of(comm, LAB_SEND, "isend");

	if (!c || !request || !buffer_fits(data, size) ||
	    !mr_is_ours(c, mhandle))
		return NCCL_INVALID_ARGUMENT;
	*request = NULL;
	return c->error ? c->error : queue_send(c, data, size, tag, request);
}
// endregion isend

static bool recv_args_fit(const struct lab_comm *c, int n, void **data,
			  const int *sizes, const int *tags, void **mhandles)
{
	if (n < 1 || n > NCCL_NET_PLUGIN_MAX_RECVS || !data || !sizes ||
	    !tags) {
		LAB_WARN("irecv: n is %d, not 1 ... %d, or an array is missing",
			 n, NCCL_NET_PLUGIN_MAX_RECVS);
		return false;
	}
	for (int i = 0; i < n; i++)
		if (!buffer_fits(data[i], sizes[i]) ||
		    (mhandles && !mr_is_ours(c, mhandles[i])))
			return false;
	return true;
}

int lab_irecv(void *comm, int n, void **data, int *sizes, int *tags,
	      void **mhandles, void **request)
{
	struct lab_comm *c = lab_comm_of(comm, LAB_RECV, "irecv");
	struct lab_request *r;
	int rc;

	if (!c || !request || !recv_args_fit(c, n, data, sizes, tags, mhandles))
		return NCCL_INVALID_ARGUMENT;
	*request = NULL;
	if (c->error)
		return c->error;
	r = new_request(c, (unsigned int)n);
	if (!r)
		return 0;
	for (int i = 0; i < n; i++)
		r->part[i] = (struct lab_part){ .data = data[i],
						.room = (uint32_t)sizes[i],
						.tag = tags[i] };
	/* credit 越早到，发送方越不必等：在这里就发，发不完的留给 test。*/
	rc = lab_announce(c, r);
	if (!rc)
		*request = r;
	return rc;
}

/*
 * NCCL 没有后台线程替我们收发：它的 proxy 线程不停地 test，test 就是“进度”本身。所以
 * 每次 test 推进整个 comm，而不只是被问到的那个 request——否则对端等着我们的另一个
 * request，两边就都不动了。
 *
 * 发送的 done 只表示字节都进了内核的 socket buffer、用户可以改写缓冲区了；它们可能还
 * 没上线，更不等于对端收到。关闭之前必须有应用层的确认，TCP 给不了这个保证。
 */
int lab_test(void *request, int *done, int *sizes)
{
	struct lab_request *r = request;
	int rc = 0;

	if (!r || !done || !r->comm)
		return LAB_REFUSE(NCCL_INVALID_ARGUMENT,
				  "test: %p is no outstanding request",
				  request);
	*done = 0;
	/* 已经完成的不再推进：它的结果不该被后来发生的事（对端关闭）改变。*/
	if (r->unfinished)
		rc = r->comm->kind == LAB_SEND ? push(r->comm)
					       : lab_pull(r->comm);
	if (r->unfinished)
		return rc;
	for (unsigned int i = 0; sizes && i < r->n; i++)
		sizes[i] = (int)r->part[i].total;
	r->comm = NULL;
	*done = 1;
	return 0;
}

/*
 * GPUDirect RDMA 才需要 flush：网卡写 GPU 内存走的是另一条 PCIe 路，CPU 看到完成时数据
 * 可能还在路上，插件要再做一次 RDMA READ 把它“顶”进去。主机内存由 CPU 拷贝，没有此事。
 */
int lab_iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
	       void **request)
{
	(void)data, (void)sizes, (void)mhandles;
	if (!lab_comm_of(comm, LAB_RECV, "iflush") || !request)
		return NCCL_INVALID_ARGUMENT;
	if (n < 1 || n > NCCL_NET_PLUGIN_MAX_RECVS)
		return LAB_REFUSE(NCCL_INVALID_ARGUMENT,
				  "iflush: n is %d, not 1 ... %d", n,
				  NCCL_NET_PLUGIN_MAX_RECVS);
	*request = NULL;
	return NCCL_SUCCESS;
}

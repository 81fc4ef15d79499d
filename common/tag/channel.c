// SPDX-License-Identifier: MIT
/*
 * channel.c —— 第 13 课（六）：tag channel 的建立、等待与拆除
 *
 * 下面是一条 RC 连接，上面是“按 tag 收发”。两端各有：
 *
 *	receive 的环   TAG_RING 格，全部 post；最后再多一格不 post 的，是对方写 credit
 *	               用的信箱（RDMA WRITE）
 *	send slot      64 个，与发送队列的位置一一对应
 *	matcher        posted 与 unexpected 两个队列
 *
 * 收发本身在 link.c、rendezvous.c 与 eager.c；这里是它们的首尾，和中间的“等”。
 */
#include "channel.h"

#include "base/deadline.h"
#include "base/report.h"
#include "parts.h"

#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#define SEND_SLOTS     64 /* 2 的幂：第几格用按位与就能算出 */
#define MAX_UNEXPECTED 1024
#define MAX_BYTES      (UINT64_C(16) << 20)
/*
 * 空转这么多次让一次 CPU：只有一个 CPU 时，对端（或 rxe 自己的 softirq）正等着它，不让
 * 就要耗到时间片用完，几十微秒变成几毫秒。再多空转一阵才看时钟、信号与对端。
 */
#define POLLS_PER_YIELD 16
#define YIELDS_PER_LOOK 64
/* header 加 64 字节内容：小消息 post 时就拷进 WQE，网卡不必再去查 MR、取内存。*/
#define INLINE_BYTES 96

static uint32_t eager_max_of(const struct tag_limits *limits)
{
	return limits->eager_max ? limits->eager_max : TAG_EAGER_MAX;
}

void tag_channel_config(struct rdma_config *config,
			const struct tag_limits *limits)
{
	uint32_t room = eager_max_of(limits);

	/* 一格要装得下最长的 eager 消息，也要装得下 RTS。*/
	if (room < sizeof(struct tag_rts))
		room = sizeof(struct tag_rts);
	config->msg_size = (uint32_t)sizeof(struct tag_header) + room;
	config->recv_slots = TAG_RING + 1;
	config->send_slots = SEND_SLOTS;
	config->max_inline = INLINE_BYTES;
}

int tag_channel_open(struct tag_channel *ch, struct rdma_resources *res,
		     const struct tag_limits *limits)
{
	uint64_t messages = limits->max_unexpected ? limits->max_unexpected
						   : MAX_UNEXPECTED;
	int rc = 0;

	*ch = (struct tag_channel){ .res = res,
				    .sock = -1,
				    .eager_max = eager_max_of(limits),
				    .max_unexpected = (uint32_t)messages };
	res->more_rkeys = true; /* 每个 RTS 都带来一个 */
	/* 份额之外的消息留在环里，也在 unexpected 队列里：上限要把它们算进去。*/
	tag_match_init(&ch->match, messages + TAG_RING,
		       limits->max_bytes ? limits->max_bytes : MAX_BYTES);
	TAILQ_INIT(&ch->to_send);
	TAILQ_INIT(&ch->to_read);
	TAILQ_INIT(&ch->to_finish);
	for (uint32_t i = 0; i < TAG_RING && !rc; i++)
		rc = post_receive(res, i);
	return rc;
}

struct tag_plan tag_channel_plan(const struct tag_channel *ch)
{
	return (struct tag_plan){
		.magic = TAG_PLAN_MAGIC,
		.version = TAG_PLAN_VERSION,
		.depth = TAG_DEPTH,
		.rendezvous = TAG_RENDEZVOUS,
		.eager_max = ch->eager_max,
		.credit_addr = (uintptr_t)recv_slot(ch->res, TAG_RING),
		.credit_rkey = ch->res->mr->rkey,
	};
}

int tag_channel_meet(struct tag_channel *ch, const struct tag_plan *peers)
{
	const struct tag_plan mine = tag_channel_plan(ch);

	ch->peer = *peers;
	if (peers->magic == mine.magic && peers->version == mine.version &&
	    peers->depth == mine.depth &&
	    peers->rendezvous == mine.rendezvous &&
	    peers->eager_max == mine.eager_max)
		return 0;
	return fail(-EPROTO,
		    "run the same build on both sides, with the same eager "
		    "limit",
		    "the peer's channel is magic 0x%08x version %u, depth %u, "
		    "%u rendezvous, eager up to %u bytes; mine is 0x%08x "
		    "version %u, depth %u, %u, %u bytes",
		    peers->magic, peers->version, peers->depth,
		    peers->rendezvous, peers->eager_max, mine.magic,
		    mine.version, mine.depth, mine.rendezvous, mine.eager_max);
}

static struct tag_plan plan_to_wire(struct tag_plan plan)
{
	plan.magic = htobe32(plan.magic);
	plan.version = htobe16(plan.version);
	plan.depth = htobe16(plan.depth);
	plan.rendezvous = htobe16(plan.rendezvous);
	plan.eager_max = htobe32(plan.eager_max);
	plan.credit_addr = htobe64(plan.credit_addr);
	plan.credit_rkey = htobe32(plan.credit_rkey);
	return plan;
}

int tag_channel_agree(struct tag_channel *ch, int sock, int64_t deadline)
{
	const struct tag_plan mine = plan_to_wire(tag_channel_plan(ch));
	struct tag_plan peers;
	int rc = sock_sync_data(sock, sizeof(mine), &mine, &peers, deadline,
				"channel plan");

	if (rc)
		return rc;
	ch->sock = sock;
	peers = plan_to_wire(peers); /* 字节交换是自己的逆运算 */
	return tag_channel_meet(ch, &peers);
}

bool tag_cancel(struct tag_channel *ch, struct tag_request *request)
{
	if (!tag_match_cancel(&ch->match, &request->recv))
		return false;
	request->status = -ECANCELED;
	return true;
}

int tag_probe(struct tag_channel *ch, uint64_t tag, uint64_t mask,
	      struct tag_message *message)
{
	int rc = tag_progress(ch);
	const struct tag_message *found;

	if (rc < 0)
		return rc;
	found = tag_match_probe(&ch->match, tag, mask);
	if (found)
		*message = *found;
	return found != NULL;
}

static bool has_requests(const struct tag_channel *ch)
{
	bool any = ch->match.n_posted || !TAILQ_EMPTY(&ch->to_send) ||
		   !TAILQ_EMPTY(&ch->to_read) || !TAILQ_EMPTY(&ch->to_finish);

	for (int i = 0; i < TAG_RENDEZVOUS; i++)
		any |= ch->rendezvous[i] != NULL;
	return any;
}

int tag_channel_close(struct tag_channel *ch)
{
	struct tag_message *message;

	if (has_requests(ch))
		tag_end_requests(ch, -ECANCELED);
	while ((message = tag_match_probe(&ch->match, 0, TAG_ANY))) {
		struct tag_unexpected *u =
			tag_entry(message, struct tag_unexpected, message);

		tag_match_take(&ch->match, message);
		if (!u->in_ring)
			free(u);
	}
	return tag_release(&ch->kept);
}

/* 等的那件事成了没有？*/
typedef bool is_over_fn(const struct tag_channel *ch, const void *what);

/* 推进，直到成了（1）、失败，或者空转了一阵还没有（0）。*/
static int spin(struct tag_channel *ch, is_over_fn *is_over, const void *what)
{
	for (int yields = 0; yields < YIELDS_PER_LOOK; yields++) {
		for (int idle = 0; idle < POLLS_PER_YIELD;) {
			int n;

			if (is_over(ch, what))
				return 1;
			n = tag_progress(ch);
			if (n < 0)
				return n;
			idle += !n;
		}
		sched_yield();
	}
	return 0;
}

/* 看看时钟、信号，以及 TCP 那头的对端还在不在。*/
static int check_deadline(struct tag_channel *ch, int64_t deadline)
{
	int rc;

	if (stop_requested())
		return -EINTR;
	/*
	 * RC 只在自己发东西时才发现对端死了；只收不发的一方，什么也不会发生。对端的
	 * 进程一死，内核就关掉它的 TCP 连接：这边立刻知道。
	 */
	rc = ch->sock >= 0 ? sock_check_peer(ch->sock, SYNC_DONE) : 0;
	if (rc)
		return tag_channel_fail(ch, rc);
	return deadline_passed(deadline) ? -ETIMEDOUT : 0;
}

/* 1：成了。多半马上就成，那时一次钟也没有看。*/
static int wait_until(struct tag_channel *ch, is_over_fn *is_over,
		      const void *what, int timeout_ms)
{
	/* 次次都是马上就成，就永远走不到 check_deadline：Ctrl-C 要先看。*/
	int rc = stop_requested() ? -EINTR : spin(ch, is_over, what);
	int64_t deadline;

	if (rc)
		return rc;
	deadline = deadline_in_ms(timeout_ms);
	while (!rc) {
		rc = check_deadline(ch, deadline);
		if (!rc)
			rc = spin(ch, is_over, what);
	}
	return rc;
}

/*
 * 不等了。request 在调用者的内存里（多半在栈上），所以不能让 channel 还记着它：还没
 * 开始的撤回来；已经开始的（对方手里有我的 rkey，或 READ 在途）撤不回，只能让整个
 * channel 失败——QP 进 ERR 之后，谁也碰不到那块内存了。
 */
static void give_up(struct tag_channel *ch, struct tag_request *request, int rc,
		    int timeout_ms)
{
	if (rc == -ETIMEDOUT)
		tag_report_stall(ch, request, timeout_ms);
	if (rc == -EINTR)
		report_error(NULL,
			     "waiting for a message: stopped by a signal");
	if (request && tag_queue_holds(&ch->to_send, request))
		TAILQ_REMOVE(&ch->to_send, request, node);
	else if (!request || !tag_match_cancel(&ch->match, &request->recv))
		tag_channel_fail(ch, rc);
	if (request && request->status == -EINPROGRESS)
		request->status = rc;
}

static bool is_complete(const struct tag_channel *ch, const void *request)
{
	(void)ch;
	return ((const struct tag_request *)request)->status != -EINPROGRESS;
}

int tag_wait(struct tag_channel *ch, struct tag_request *request,
	     int timeout_ms)
{
	int rc = wait_until(ch, is_complete, request, timeout_ms);

	if (rc < 0)
		give_up(ch, request, rc, timeout_ms);
	return request->status;
}

static bool has_sent_all(const struct tag_channel *ch, const void *what)
{
	(void)what;
	return !ch->failed && TAILQ_EMPTY(&ch->to_send) && tag_has_slot(ch);
}

static bool is_acknowledged(const struct tag_channel *ch, const void *last)
{
	return (int32_t)(ch->done - *(const uint32_t *)last) >= 0;
}

int tag_flush(struct tag_channel *ch, int timeout_ms)
{
	int rc = wait_until(ch, has_sent_all, NULL, timeout_ms);
	uint32_t last;

	/*
	 * eager 的发送在拷进 slot 时就“完成”了，对端收没收到还不知道。再发一个 signaled
	 * 的请求：它的 CQE 出来，它之前的就都被 ACK 过了。正好用来还 credit。
	 */
	if (rc > 0)
		rc = tag_write_credits(ch, true);
	last = ch->posted;
	if (!rc)
		rc = wait_until(ch, is_acknowledged, &last, timeout_ms);
	if (rc < 0)
		give_up(ch, NULL, rc, timeout_ms);
	return rc < 0 ? rc : 0;
}

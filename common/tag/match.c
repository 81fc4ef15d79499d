// SPDX-License-Identifier: MIT
/*
 * match.c —— 第 13 课（一）：tag matching，不含任何传输
 *
 * RC 的 SEND 落进“最先 post 的那个 receive”，接收方没有选择的余地。MPI 与 UCX 却让
 * 接收方按 tag 挑消息：先到的消息可以后取，一个 receive 也可以等“任何人的下一条”。
 * 这件事与网络无关，只是两个队列：
 *
 *	posted      已经 post、还没等到消息的 receive
 *	unexpected  已经到达、还没有 receive 要它的消息
 *
 * 每个事件只查“另一个”队列：消息来了查 posted，receive 来了查 unexpected；查不到才
 * 排进自己的队列。因此任何时刻，两个队列里都没有一对是能配上的——这是它的不变量。
 *
 * 顺序就是语义：两条同 tag 的消息先后发出，必须先后被取走；所以两个队列都从最老的
 * 找起，一个也不能跳。UCX 为了快，把 mask 全 1 的 receive 按 tag 散列、其余的另放
 * 一队，再用序号决定谁更老；结果与这里从头找起完全相同（labs/tests/tag/tag_property.c
 * 拿 UCX 自己来对答案）。
 */
#include "match.h"

#include <errno.h>

void tag_match_init(struct tag_match *match, uint64_t max_messages,
		    uint64_t max_bytes)
{
	*match = (struct tag_match){ .max_messages = max_messages,
				     .max_bytes = max_bytes };
	TAILQ_INIT(&match->posted);
	TAILQ_INIT(&match->unexpected);
}

// region fits
static bool tag_fits(uint64_t sent, uint64_t tag, uint64_t mask)
{
	/* 只比较 mask 里为 1 的位：两边不同的位，必须都落在 mask 之外。*/
	return !((sent ^ tag) & mask);
}
// endregion fits

// region post
struct tag_message *tag_match_post(struct tag_match *match,
				   struct tag_recv *recv)
{
	struct tag_message *message =
		tag_match_probe(match, recv->tag, recv->mask);

	if (message) {
		recv->waits = false;
		tag_match_take(match, message);
		return message;
	}
	TAILQ_INSERT_TAIL(&match->posted, recv, node);
	recv->waits = true;
	match->n_posted++;
	return NULL;
}
// endregion post

// region arrive
struct tag_recv *tag_match_arrive(struct tag_match *match, uint64_t tag)
{
	struct tag_recv *recv;

	TAILQ_FOREACH(recv, &match->posted, node)
		if (tag_fits(tag, recv->tag, recv->mask))
			break;
	if (recv)
		tag_match_cancel(match, recv);
	return recv;
}
// endregion arrive

bool tag_match_has_room(const struct tag_match *match, uint64_t held)
{
	return match->n_unexpected < match->max_messages &&
	       held <= match->max_bytes - match->bytes;
}

int tag_match_keep(struct tag_match *match, struct tag_message *message)
{
	/*
	 * unexpected 队列用的是接收方的内存，长短却由发送方决定：没有上限，一个不停
	 * 发送的对端就能把这边的内存吃光。
	 */
	if (!tag_match_has_room(match, message->held))
		return -ENOBUFS;
	TAILQ_INSERT_TAIL(&match->unexpected, message, node);
	match->bytes += message->held;
	match->n_unexpected++;
	return 0;
}

bool tag_match_cancel(struct tag_match *match, struct tag_recv *recv)
{
	/* 已经配上的 receive 不能反悔：消息已经从队列里出来了。*/
	if (!recv->waits)
		return false;
	TAILQ_REMOVE(&match->posted, recv, node);
	recv->waits = false;
	match->n_posted--;
	return true;
}

struct tag_message *tag_match_probe(const struct tag_match *match, uint64_t tag,
				    uint64_t mask)
{
	struct tag_message *message;

	TAILQ_FOREACH(message, &match->unexpected, node)
		if (tag_fits(message->tag, tag, mask))
			break;
	return message;
}

void tag_match_take(struct tag_match *match, struct tag_message *message)
{
	TAILQ_REMOVE(&match->unexpected, message, node);
	match->n_unexpected--;
	match->bytes -= message->held;
}

int tag_match_outcome(const struct tag_recv *recv, uint64_t length)
{
	return length <= recv->size ? 0 : -EMSGSIZE;
}

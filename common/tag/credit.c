// SPDX-License-Identifier: MIT
/*
 * credit.c —— 第 13 课（三）：许对方领先几条，怎样还给它
 *
 * 环有几格，就许对方领先几条。没有 credit，发得快的一方会撞上空的 receive 队列
 * （RNR），对方的网卡要等一段 rnr timer 再重传，延迟从微秒变成毫秒。credit 搭下一条
 * 反方向消息的便车回去；没有反方向的消息，就用 RDMA WRITE 写一个字节——它不消耗对方的
 * receive，所以“还 credit”这件事本身永远不需要 credit，不会死锁。
 */
#include "parts.h"

/*
 * @consumed 是对方的计数（模 256）。它有两条路来：header 里，或 RDMA WRITE 写来的那个
 * 字节；两条路互不排队，旧值可能后到，所以只往前走，绝不后退。
 */
void tag_take_credits(struct tag_channel *ch, uint8_t consumed)
{
	uint8_t ahead = (uint8_t)(ch->sent - ch->returned);

	if ((uint8_t)(consumed - ch->returned) <= ahead)
		ch->returned = consumed;
}

bool tag_has_credit(struct tag_channel *ch)
{
	const uint8_t *mailbox = (const uint8_t *)recv_slot(ch->res, TAG_RING);

	if ((uint8_t)(ch->sent - ch->returned) < TAG_DEPTH)
		return true;
	/*
	 * 为什么只用一个字节？对端的 RDMA WRITE 与这里的读没有先后约束，多个字节可能读到
	 * 一半新、一半旧；一个字节不会。
	 */
	tag_take_credits(ch, __atomic_load_n(mailbox, __ATOMIC_ACQUIRE));
	return (uint8_t)(ch->sent - ch->returned) < TAG_DEPTH;
}

/* 欠了半圈就还；环里压着没人要的消息时，对方所剩无几，欠一个也还。*/
bool tag_owes_credits(const struct tag_channel *ch)
{
	uint8_t owed = (uint8_t)(ch->consumed - ch->told);

	return owed >= TAG_DEPTH / 2 || (owed && ch->n_in_ring);
}

/*
 * 两边都在发时，credit 全靠 header 捎带，那个字节就一直停在旧值上。计数模 256：旧到差
 * 192 以上，旧值看上去便成了“又还了几十个”，对方会多发，撞上空的 receive queue。所以
 * 最多隔 TAG_DEPTH 条就重写一次，而且先于一切要发的消息。
 */
bool tag_credits_are_old(const struct tag_channel *ch)
{
	return (uint8_t)(ch->consumed - ch->written) >= TAG_DEPTH;
}

int tag_write_credits(struct tag_channel *ch, bool signaled)
{
	uint32_t slot = tag_slot(ch);

	ch->told = ch->consumed;
	ch->written = ch->consumed;
	*send_slot(ch->res, slot) = (char)ch->consumed;
	ch->counts.credit_writes++;
	return post_write(ch->res, slot, 1, ch->peer.credit_addr,
			  ch->peer.credit_rkey,
			  tag_mark(ch, signaled) ? IBV_SEND_SIGNALED : 0);
}

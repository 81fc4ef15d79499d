// SPDX-License-Identifier: MIT
/*
 * link.c —— 第 13 课（二）：eager 与 rendezvous 共用的底座
 *
 * 发送队列的位置、receive 的环，以及“一切都失败”时怎样收场。
 */
#include "parts.h"

#include <endian.h>

/* 每这么多个请求才 signal 一次：CQE 要生成、要取走，都不是白来的。*/
#define SIGNAL_EVERY 16

/*
 * 发送队列里的每个请求占一个位置，也占同号的 send slot。完成是按次序的：一个
 * signaled 请求的 CQE 说明它和它之前的全部请求都完成了，位置与 slot 一并收回。
 */
bool tag_has_slot(const struct tag_channel *ch)
{
	return ch->posted - ch->done < ch->res->send_slots;
}

uint32_t tag_slot(const struct tag_channel *ch)
{
	return ch->posted & (ch->res->send_slots - 1);
}

bool tag_mark(struct tag_channel *ch, bool signaled)
{
	ch->posted++;
	ch->unmarked = signaled ? 0 : (ch->unmarked + 1) % SIGNAL_EVERY;
	return !ch->unmarked;
}

void tag_reclaim_slots(struct tag_channel *ch, uint32_t last)
{
	ch->done += ((last - ch->done) & (ch->res->send_slots - 1)) + 1;
}

int tag_post(struct tag_channel *ch, uint32_t length, uint64_t tag,
	     uint64_t bytes, uint16_t id, enum tag_protocol protocol)
{
	uint32_t slot = tag_slot(ch);
	struct tag_header *head = (void *)send_slot(ch->res, slot);

	*head = (struct tag_header){ .tag = htole64(tag),
				     .length = htole32((uint32_t)bytes),
				     .id = htole16(id),
				     .protocol = (uint8_t)protocol,
				     .consumed = ch->consumed };
	ch->told = ch->consumed;
	return post_send(ch->res, slot, length, tag_mark(ch, false));
}

int tag_repost(struct tag_channel *ch)
{
	int rc = 0;

	for (uint32_t i = 0; i < ch->n_fresh && !rc; i++)
		rc = post_receive(ch->res, ch->fresh[i]);
	ch->n_fresh = 0;
	return rc;
}

/*
 * 这一格用完了。不马上 post 回去：先让程序回信，等 CQ 空闲下来再补（不在延迟的关键
 * 路径上）。环里多备了 TAG_FRESH 格，正好抵得上这些还没补的，所以 credit 可以先还。
 */
int tag_free_slot(struct tag_channel *ch, uint32_t slot, bool took_credit)
{
	ch->fresh[ch->n_fresh++] = slot;
	ch->consumed = (uint8_t)(ch->consumed + took_credit);
	return ch->n_fresh == TAG_FRESH ? tag_repost(ch) : 0;
}

int tag_release(struct ibv_mr **mr)
{
	int err = *mr ? ibv_dereg_mr(*mr) : 0;

	*mr = NULL;
	return check_destroyed("ibv_dereg_mr", err);
}

bool tag_queue_holds(const struct tag_queue *queue,
		     const struct tag_request *request)
{
	const struct tag_request *at;

	TAILQ_FOREACH(at, queue, node)
		if (at == request)
			break;
	return at;
}

static void end_queue(struct tag_queue *queue, int status)
{
	struct tag_request *request;

	while ((request = TAILQ_FIRST(queue))) {
		TAILQ_REMOVE(queue, request, node);
		tag_release(&request->mr);
		request->status = status;
	}
}

/*
 * 所有还没完的 request 都以 @status 告终。先让 QP 进 ERR：此后对端的 READ 一律被拒，
 * 注销 MR、归还 buffer 才是安全的。
 */
void tag_end_requests(struct tag_channel *ch, int status)
{
	struct tag_recv *recv;

	if (ch->res->qp)
		modify_qp_to_error(ch->res);
	while ((recv = TAILQ_FIRST(&ch->match.posted))) {
		tag_match_cancel(&ch->match, recv);
		tag_entry(recv, struct tag_request, recv)->status = status;
	}
	end_queue(&ch->to_send, status);
	end_queue(&ch->to_read, status);
	end_queue(&ch->to_finish, status);
	for (int i = 0; i < TAG_RENDEZVOUS; i++) {
		if (!ch->rendezvous[i])
			continue;
		tag_release(&ch->rendezvous[i]->mr);
		ch->rendezvous[i]->status = status;
		ch->rendezvous[i] = NULL;
	}
}

int tag_channel_fail(struct tag_channel *ch, int rc)
{
	if (!ch->failed) {
		ch->failed = rc;
		tag_end_requests(ch, rc);
	}
	return ch->failed;
}

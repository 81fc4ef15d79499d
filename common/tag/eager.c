// SPDX-License-Identifier: MIT
/*
 * eager.c —— 第 13 课（五）：eager 消息，以及一步一步的推进（progress）
 *
 * EAGER：header 与内容放进同一个 SEND，不问对方要不要就发走。对方事先 post 好一圈
 * receive（ring），消息落进哪一格由到达的次序决定，所以非拷贝一次不可：先落在环里，
 * 再按 tag 拷进用户的 buffer。小消息拷贝便宜，换来的是一次 SEND 就到。
 *
 * 没有后台线程：一切都在 tag_progress() 里发生，程序调用它，消息才会配对、READ 才会 post、
 * credit 才会还回去。UCX 的 ucp_worker_progress 也是如此。
 */
#include "base/report.h"
#include "parts.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* 1：现在还不行（没有 slot、credit 或 rendezvous 的编号）。*/
static int send_now(struct tag_channel *ch, struct tag_request *request)
{
	uint64_t length = request->length;
	char *slot;
	int rc;

	if (!tag_has_slot(ch) || !tag_has_credit(ch))
		return 1;
	if (length > ch->eager_max)
		return tag_rendezvous_send(ch, request);
	slot = send_slot(ch->res, tag_slot(ch));
	if (length)
		memcpy(slot + sizeof(struct tag_header), request->buf, length);
	ch->sent++;
	rc = tag_post(ch, (uint32_t)(sizeof(struct tag_header) + length),
		      request->tag, length, 0, TAG_EAGER);
	if (rc)
		return rc;
	ch->counts.eager_sent++;
	/* 内容已经拷走，用户的 buffer 可以再用：这就算发完了，不必等 ACK。*/
	request->status = 0;
	return 0;
}

static int push_sends(struct tag_channel *ch)
{
	struct tag_request *oldest;
	int rc = 0;

	/* 严格先来先发：后面的小消息不能越过前面等编号的大消息，次序就是语义。*/
	while (!rc && (oldest = TAILQ_FIRST(&ch->to_send))) {
		rc = send_now(ch, oldest);
		if (!rc)
			TAILQ_REMOVE(&ch->to_send, oldest, node);
	}
	return rc < 0 ? rc : 0;
}

int tag_send(struct tag_channel *ch, struct tag_request *request,
	     const void *buf, uint64_t length, uint64_t tag)
{
	int rc = 1;

	*request = (struct tag_request){ .status = -EINPROGRESS,
					 .tag = tag,
					 .length = length,
					 .buf = (char *)(uintptr_t)buf };
	if (length > MAX_MSG_SIZE)
		request->status = fail(-EMSGSIZE, "divide it",
				       "a message of %ju bytes is over %u",
				       length, MAX_MSG_SIZE);
	else if (ch->failed)
		request->status = ch->failed;
	else if (TAILQ_EMPTY(&ch->to_send))
		rc = send_now(ch, request);
	if (rc < 0)
		request->status = tag_channel_fail(ch, rc);
	if (request->status != -EINPROGRESS)
		return request->status;
	if (rc) {
		ch->counts.out_of_credits++;
		TAILQ_INSERT_TAIL(&ch->to_send, request, node);
	}
	return 0;
}

/* eager 的内容在手：拷进用户的 buffer，或者装不下。*/
static void deliver(struct tag_request *request, uint64_t tag, const void *data,
		    uint64_t length)
{
	request->tag = tag;
	request->length = length;
	request->status = tag_match_outcome(&request->recv, length);
	if (!request->status && length)
		memcpy(request->buf, data, length);
}

// region unexpected
/*
 * 没有 receive 要它。拷到 heap 上，环里那一格就能还给对方；heap 的份额用完了，就让它
 * 留在格子里：格子不还，credit 就不还，对方发满一圈便停下来等——这就是 back-pressure。
 */
static int keep(struct tag_channel *ch, uint32_t slot,
		const struct tag_unexpected *found)
{
	uint64_t payload = found->rendezvous ? 0 : found->message.length;
	uint64_t held = sizeof(*found) + payload;
	struct tag_unexpected *u = NULL;

	ch->counts.unexpected++;
	if (ch->match.n_unexpected - ch->n_in_ring < ch->max_unexpected &&
	    tag_match_has_room(&ch->match, held))
		u = malloc(held);
	if (!u) {
		u = &ch->in_ring[slot];
		*u = *found;
		u->in_ring = true;
		u->slot = slot;
		ch->n_in_ring++;
		ch->counts.left_in_ring++;
		return tag_match_keep(&ch->match, &u->message);
	}
	*u = *found;
	u->message.held = held;
	u->data = (const char *)(u + 1);
	if (payload)
		memcpy(u + 1, found->data, payload);
	tag_match_keep(&ch->match, &u->message);
	return tag_free_slot(ch, slot, true);
}

static int drop(struct tag_channel *ch, struct tag_unexpected *u)
{
	if (!u->in_ring) {
		free(u);
		return 0;
	}
	ch->n_in_ring--;
	return tag_free_slot(ch, u->slot, true);
}
// endregion unexpected

/* 消息与 receive 配上了：eager 的内容已经在手，rendezvous 的还要去取。*/
static void matched(struct tag_channel *ch, struct tag_request *request,
		    const struct tag_unexpected *u)
{
	if (u->rendezvous)
		tag_rendezvous_start(ch, request, u);
	else
		deliver(request, u->message.tag, u->data, u->message.length);
}

static int arrived(struct tag_channel *ch, uint32_t slot,
		   const struct tag_unexpected *found)
{
	struct tag_recv *recv =
		tag_match_arrive(&ch->match, found->message.tag);

	if (!recv)
		return keep(ch, slot, found);
	matched(ch, tag_entry(recv, struct tag_request, recv), found);
	return tag_free_slot(ch, slot, true);
}

int tag_recv(struct tag_channel *ch, struct tag_request *request, void *buf,
	     uint64_t size, uint64_t tag, uint64_t mask)
{
	struct tag_message *message;
	int rc = 0;

	*request = (struct tag_request){
		.status = -EINPROGRESS,
		.buf = buf,
		.recv = { .tag = tag, .mask = mask, .size = size },
	};
	if (ch->failed) {
		request->status = ch->failed;
		return ch->failed;
	}
	message = tag_match_post(&ch->match, &request->recv);
	if (message) {
		struct tag_unexpected *u =
			tag_entry(message, struct tag_unexpected, message);

		matched(ch, request, u);
		rc = drop(ch, u);
	}
	return rc ? tag_channel_fail(ch, rc) : 0;
}

/* 对端不可信：长度、protocol、id，凡是来自它的，用之前都要查。*/
static int bad_message(uint32_t bytes, const struct tag_header *head)
{
	return fail(-EPROTO, "run the same build on both sides",
		    "the peer's message of %u bytes cannot be: protocol %u, "
		    "length %u, id %u",
		    bytes, bytes < sizeof(*head) ? 0 : head->protocol,
		    bytes < sizeof(*head) ? 0 : le32toh(head->length),
		    bytes < sizeof(*head) ? 0 : le16toh(head->id));
}

static int on_message(struct tag_channel *ch, uint32_t slot, uint32_t bytes)
{
	const struct tag_header *head = (const void *)recv_slot(ch->res, slot);
	const struct tag_rts *rts = (const void *)head;
	struct tag_unexpected u;
	int rc;

	if (bytes < sizeof(*head))
		return bad_message(bytes, head);
	u = (struct tag_unexpected){
		.message = { .tag = le64toh(head->tag),
			     .length = le32toh(head->length) },
		.data = (const char *)(head + 1),
		.id = le16toh(head->id),
	};
	tag_take_credits(ch, head->consumed);
	if (head->protocol == TAG_EAGER &&
	    u.message.length == bytes - sizeof(*head)) {
		ch->counts.eager_received++;
		return arrived(ch, slot, &u);
	}
	if (head->protocol == TAG_RTS && bytes == sizeof(*rts) &&
	    u.message.length && u.message.length <= MAX_MSG_SIZE) {
		ch->counts.rendezvous_received++;
		u.rendezvous = true;
		u.peer_addr = le64toh(rts->addr);
		u.peer_rkey = le32toh(rts->rkey);
		return arrived(ch, slot, &u);
	}
	if (head->protocol != TAG_FIN || bytes != sizeof(*head))
		return bad_message(bytes, head);
	rc = tag_rendezvous_fin(ch, head);
	if (rc == -EPROTO)
		return bad_message(bytes, head);
	return rc ? rc : tag_free_slot(ch, slot, false);
}

static int on_completion(struct tag_channel *ch, const struct ibv_wc *wc)
{
	uint32_t slot = WR_ID_SLOT(wc->wr_id);

	if (wc->opcode == IBV_WC_RECV)
		return on_message(ch, slot, wc->byte_len);
	tag_reclaim_slots(ch, slot);
	return wc->opcode == IBV_WC_RDMA_READ ? tag_rendezvous_read_done(ch)
					      : 0;
}

/* 有事可做才做：ping-pong 时这三个队列都空着，也很少要写 credit。*/
static int push(struct tag_channel *ch)
{
	int rc = 0;

	if (tag_credits_are_old(ch) && tag_has_slot(ch))
		rc = tag_write_credits(ch, false);
	if (rc)
		return rc;
	if (!TAILQ_EMPTY(&ch->to_read) || !TAILQ_EMPTY(&ch->to_finish))
		rc = tag_rendezvous_push(ch);
	if (!rc && !TAILQ_EMPTY(&ch->to_send))
		rc = push_sends(ch);
	if (!rc && tag_owes_credits(ch) && tag_has_slot(ch))
		rc = tag_write_credits(ch, false);
	return rc;
}

int tag_progress(struct tag_channel *ch)
{
	struct ibv_wc wc;
	int rc, n;

	if (ch->failed)
		return ch->failed;
	n = try_completion(ch->res, &wc);
	if (n > 0)
		rc = on_completion(ch, &wc);
	else
		rc = n ? n : tag_repost(ch); /* CQ 空了：补 receive 的好时候 */
	if (!rc)
		rc = push(ch);
	return rc ? tag_channel_fail(ch, rc) : n;
}

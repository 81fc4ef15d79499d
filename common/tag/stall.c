// SPDX-License-Identifier: MIT
/*
 * stall.c —— 等到了期限：在等什么，为什么没有等到
 *
 * 没有一个 verb 失败，所以没有 errno 可看；但 channel 自己知道这个 request 走到了哪
 * 一步，每一步等的是不同的东西。两个队列此刻的样子，往往就是答案：消息其实到了，只是
 * tag 对不上，正躺在 unexpected 队列里。
 */
#include "base/report.h"
#include "explain/explain.h"
#include "parts.h"

#include <stdio.h>

/* unexpected 队列里最老的几条：配不上的原因一眼可见。*/
#define SHOWN 4

static const char *unexpected_text(const struct tag_channel *ch, char *out,
				   size_t size)
{
	const struct tag_message *m;
	size_t at = 0;
	int i = 0;

	out[0] = '\0';
	TAILQ_FOREACH(m, &ch->match.unexpected, node) {
		if (i == SHOWN) {
			snprintf(out + at, size - at, ", ...");
			break;
		}
		at += (size_t)snprintf(out + at, size - at,
				       "%stag 0x%jx of %ju bytes",
				       i++ ? ", " : "", m->tag, m->length);
	}
	return out;
}

static void receive_waits(const struct tag_channel *ch,
			  const struct tag_request *request, int ms)
{
	uint64_t n = ch->match.n_unexpected;
	char seen[SHOWN * 64];

	report_error(n ? "compare tag and mask with what the peer sends"
		       : "does the peer send at all, and with this tag?",
		     "no message fits tag 0x%jx, mask 0x%jx within %d ms; "
		     "%ju unexpected%s%s%s",
		     request->recv.tag, request->recv.mask, ms, n,
		     n ? ": " : "", unexpected_text(ch, seen, sizeof(seen)),
		     ch->n_in_ring ? "; the ring is full of them, later "
				     "messages wait behind"
				   : "");
}

static void queued_send_waits(struct tag_channel *ch,
			      const struct tag_request *request, int ms)
{
	bool credit = tag_has_credit(ch);

	report_error("does the peer post receives that fit, and make progress?",
		     "the message with tag 0x%jx was not sent within %d ms: %s",
		     request->tag, ms,
		     !credit ? "the peer has not made room for it (no credit)"
		     : !tag_has_slot(ch)
			     ? "the send queue is full"
			     : "older messages wait for the peer to fetch "
			       "them");
}

/* 已经配上，READ 在途：这一层是 verbs 的事，问解释器。*/
static void read_waits(const struct tag_channel *ch,
		       const struct tag_request *request, int ms)
{
	const struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ,
					.send_flags = IBV_SEND_SIGNALED };
	const struct explain_request rq = { .send = &wr,
					    .polled = ch->res->cq };
	struct explanation why = explain_stall(ch->res->qp, &rq, ms);
	char next[EXPLAIN_NEXT_SIZE];
	struct explain_words words;

	explain_in_words(&words, &why, false);
	report_error(explain_next(next, &words),
		     "%ju of %ju bytes of the message with tag 0x%jx were "
		     "read within %d ms%s%s",
		     request->fetched, request->length, request->tag, ms,
		     words.cause[0] ? ": " : "", words.cause);
}

void tag_report_stall(struct tag_channel *ch, const struct tag_request *request,
		      int ms)
{
	if (!request)
		report_error("see the peer's own messages",
			     "the peer has not acknowledged what was sent "
			     "within %d ms",
			     ms);
	else if (request->recv.waits)
		receive_waits(ch, request, ms);
	else if (tag_queue_holds(&ch->to_send, request))
		queued_send_waits(ch, request, ms);
	else if (tag_queue_holds(&ch->to_read, request) ||
		 tag_queue_holds(&ch->to_finish, request))
		read_waits(ch, request, ms);
	else
		report_error("does the peer post a receive that fits, and make "
			     "progress?",
			     "the peer has not fetched the message with tag "
			     "0x%jx of %ju bytes within %d ms",
			     request->tag, request->length, ms);
}

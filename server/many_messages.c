// SPDX-License-Identifier: MIT
/*
 * many_messages.c —— 共用的 slot：收进来，轮流回答，还回去
 *
 * 一条消息从到达到答完，一直在同一个 slot 里：SRQ 把它交给某个 QP，CQE 说出是谁的，
 * 回信就从这个 slot 里发（省一次拷贝），发完才还给 SRQ。所以一个 client 占着多少 slot，
 * 数得清楚。
 *
 * SRQ 不管公平：谁灌得快，谁就把 receive 取空，别人只好收 RNR NAK 再等。RC 没有“每个
 * QP 至多取几个”的开关，client 又不受我们指挥，能用的是两样：
 *
 *	轮流   先把 CQ 取空，分到各人名下；每一轮，每人至多处理他那一份（credits）。
 *	       积压多的只耽误自己：他的 slot 答完才还，别人的照常还。
 *	推迟   积压着的，把他 QP 的 min_rnr_timer 调长。SRQ 空的时候，他收到的 RNR NAK
 *	       写着“0.16 秒后再来”，别人的写着“0.64 毫秒后再来”，于是 slot 先归别人。
 */
#include "many.h"

#include "base/deadline.h"
#include "base/report.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	RNR_TIMER_164_MS = 28, /* IBTA 9.7.5.2.8 */
	ITERS_MOST = 100000000,
};

/* ---- 一个 client 的消息 ------------------------------------------------------ */

static int refuse_plan(const struct client *c, int rc, uint32_t mode,
		       uint32_t size)
{
	return fail(rc, "start the server with a --size that holds it",
		    "client %u (%s) plans mode %s, messages of %u bytes; a "
		    "slot has %u",
		    c->number, c->name, mode_name(mode), size,
		    c->many->shared.res.msg_size);
}

void serve_client(struct client *c, const struct plan_msg *wire)
{
	const struct rdma_resources *res = &c->many->shared.res;
	struct plan_msg mine = *wire;
	uint32_t mode = be32toh(wire->mode);
	bool once = mode == MODE_ONCE;
	int rc = 0;

	c->size = be32toh(wire->size);
	c->plan = (struct measure_plan){ .mode = mode,
					 .iters = be64toh(wire->iters) };
	if (mode > MODE_BANDWIDTH || !once == !c->plan.iters ||
	    c->plan.iters > ITERS_MOST || !c->size)
		rc = refuse_plan(c, -EPROTO, mode, c->size);
	else if (c->size > res->msg_size)
		rc = refuse_plan(c, -EMSGSIZE, mode, c->size);
	/* client 自己也比较两份计划：别的大小它不认，会原样报告这里的数。*/
	if (once)
		mine.size =
			htobe32((uint32_t)strlen(c->many->opt->message) + 1);
	else if (rc)
		mine.size = htobe32(res->msg_size);
	if (once)
		c->plan.iters = 1;
	c->state = SERVING;
	c->heard = now_ns();
	client_send(c, &mine, sizeof(mine));
	if (rc)
		client_leave(c, rc);
}

/* 内容也要对：ping-pong 与带宽的消息，开头是序号（pair/measure.c）。*/
static bool is_expected(const struct client *c, uint32_t slot)
{
	const struct many *m = c->many;
	uint64_t stamp = htole64(c->received);

	if (c->plan.mode == MODE_ONCE)
		return true;
	return m->slots[slot].length == c->size &&
	       !memcmp(recv_slot(&m->shared.res, slot), &stamp,
		       c->size < sizeof(stamp) ? c->size : sizeof(stamp));
}

static int post_answer(struct client *c, uint32_t slot, uint32_t length)
{
	const struct rdma_resources *res = &c->many->shared.res;
	struct ibv_sge sge = { .addr = (uintptr_t)recv_slot(res, slot),
			       .length = length,
			       .lkey = res->mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = WR_ID_SEND(slot),
					.sg_list = &sge,
					.num_sge = 1,
					.opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	/* 就从收到它的那个 slot 里发：PD 相同，MR 相同，不必拷贝。*/
	int err = ibv_post_send(c->res.qp, &wr, &bad);

	return err ? post_send_failed(c->res.qp, &wr, err) : 0;
}

static int answer(struct client *c, uint32_t slot)
{
	struct many *m = c->many;
	char *data = recv_slot(&m->shared.res, slot);
	uint32_t length = m->slots[slot].length;
	char text[256];
	int rc;

	if (c->plan.mode == MODE_ONCE) {
		report_fact("client %u: \"%s\"", c->number,
			    printable_text(text, sizeof(text), data, length));
		length = (uint32_t)strlen(m->opt->message) + 1;
		memcpy(data, m->opt->message, length);
	}
	rc = post_answer(c, slot, length);
	c->answers += !rc;
	return rc;
}

/* 轮到的一条：核对，回答。*/
static void take_message(struct client *c)
{
	struct many *m = c->many;
	uint32_t slot = c->first;
	bool right = c->received < c->plan.iters && is_expected(c, slot);
	int rc = 0;

	c->first = m->slots[slot].next;
	if (!--c->backlog)
		TAILQ_REMOVE(&m->busy, c, busy);
	if (!right)
		rc = fail(-EBADMSG, NULL,
			  "client %u (%s): message %ju is not what it planned",
			  c->number, c->name, c->received);
	c->received += right;
	m->count.messages += right;
	if (right && c->plan.mode != MODE_BANDWIDTH)
		rc = answer(c, slot);
	if (rc || c->plan.mode == MODE_BANDWIDTH)
		free_slot(m, slot);
	if (rc)
		client_leave(c, rc);
	else
		check_done(c);
}

// region turns
/* 他的 RNR NAK 上写多久。RTS 里也能改，收得到的下一个 NAK 就按新的。*/
static void put_off(struct client *c)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
				    .min_rnr_timer = RNR_TIMER_164_MS };
	int rc = modify_qp(&c->res, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);

	c->put_off = true;
	c->many->count.put_off++;
	if (rc)
		client_leave(c, rc);
}

/* 每人每轮至多几条：在场的人平分一半的 slot；另一半留给刚来的。*/
static uint32_t credits(const struct many *m)
{
	uint32_t share;

	if (m->opt->credits >= 0)
		return m->opt->credits ? (uint32_t)m->opt->credits : UINT32_MAX;
	share = m->shared.res.recv_slots / 2 / (m->places ? m->places : 1);
	return share ? share : 1;
}

void take_turns(struct many *m)
{
	const uint32_t most = credits(m);
	struct client *c, *next;

	for (c = TAILQ_FIRST(&m->busy); c; c = next) {
		next = TAILQ_NEXT(c, busy);
		for (uint32_t n = 0;
		     n < most && c->backlog && c->state == SERVING; n++)
			take_message(c);
		if (c->state == SERVING && c->backlog && !c->put_off &&
		    m->places > 1)
			put_off(c);
	}
	find_lost(m);
	refill(m);
}
// endregion turns

/* ---- CQ 里取出来的，派给各人 ------------------------------------------------- */

static void queue_message(struct client *c, const struct ibv_wc *wc)
{
	struct many *m = c->many;
	uint32_t slot = WR_ID_SLOT(wc->wr_id);

	m->slots[slot].holder = c;
	m->slots[slot].length = wc->byte_len;
	/* 要等回信才发下一条的，不会有两条同时在等。*/
	if (c->backlog && c->plan.mode != MODE_BANDWIDTH) {
		free_slot(m, slot);
		client_leave(c, fail(-EPROTO, NULL,
				     "client %u (%s) does not wait for its "
				     "answers",
				     c->number, c->name));
		return;
	}
	if (!c->backlog++) {
		c->first = slot;
		TAILQ_INSERT_TAIL(&m->busy, c, busy);
	} else {
		m->slots[c->last].next = slot;
	}
	c->last = slot;
}

void deliver(void *many, void *owner, const struct ibv_wc *wc)
{
	struct many *m = many;
	struct client *c = owner;
	uint32_t slot = WR_ID_SLOT(wc->wr_id);
	bool receive = wc->wr_id == WR_ID_RECV(slot);
	bool good = wc->status == IBV_WC_SUCCESS;

	if (receive)
		overtake(m, &m->slots[slot]);
	if (c)
		c->heard = now_ns();
	if (receive && good && c && c->state == SERVING) {
		queue_message(c, wc);
		return;
	}
	/* 收错了，来早了，人走了：slot 没有错，还能用。拆 QP 时收回过的不收第二次。*/
	if (receive || (c && m->slots[slot].holder == c))
		free_slot(m, slot);
	if (!c)
		return;
	c->answers -= !receive;
	if (c->state >= LEAVING)
		return;
	if (good && !receive) {
		check_done(c);
		return;
	}
	client_leave(c, fail(good ? -EPROTO : -EIO, NULL,
			     "client %u (%s): %s%s", c->number, c->name,
			     good ? "a message before its plan"
				  : "its QP failed with ",
			     good ? "" : wc_status_name(wc->status)));
}

// SPDX-License-Identifier: MIT
/*
 * many_slots.c —— 共用的 slot：空着、在 SRQ 里、在某个 client 手里，只在一处
 */
#include "many.h"

#include "base/deadline.h"

#include <errno.h>
#include <stdlib.h>

#define LOST_MS 2000 /* 期限之外，再等这么久 */

void free_slot(struct many *m, uint32_t slot)
{
	m->slots[slot].holder = NULL;
	m->free[m->free_count++] = slot;
}

// region refill
/* 把空着的 slot 都还给 SRQ，再设 limit：先补，后设。*/
void refill(struct many *m)
{
	int rc = 0;

	/*
	 * 不是收一条补一条，而是少到 low 才补一批。SRQ_LIMIT_REACHED 是设备说的“不多了”，
	 * 它可能比我们从 CQ 里数出来的早；posted 是我们自己数的，SRQ 空了也不会漏。
	 */
	if (!m->dry && m->posted >= m->low)
		return;
	while (!rc && m->free_count) {
		struct slot *s = &m->slots[m->free[m->free_count - 1]];

		rc = post_shared_receive(&m->shared, (uint32_t)(s - m->slots));
		if (rc)
			break;
		m->free_count--;
		m->posted++;
		s->overtaken = 0;
		TAILQ_INSERT_TAIL(&m->order, s, order);
	}
	if (!rc && m->dry && m->posted >= m->low)
		rc = arm_srq_limit(&m->shared, m->low);
	if (m->posted >= m->low)
		m->dry = false;
	if (rc)
		m->rc = rc;
}
// endregion refill

// region lost
/*
 * 一条长消息收到一半，人被杀了：规范说那个 receive 要以 FLUSH_ERR 交还。rxe 不还，也不放
 * 回 SRQ，它就此不见；每死一个少一个，SRQ 迟早是空的。receive 是按 post 的次序取走的，
 * 所以后 post 的都完成了，它还没有，它就在某个 QP 手里；而哪个 QP 也不会拿着一条消息比
 * 期限更久（那样的 client 已经被请走了），过了期限，它便不在任何人手里。物理网卡不保证
 * 这个次序，也不丢。
 */
void overtake(struct many *m, struct slot *completed)
{
	struct slot *s = TAILQ_FIRST(&m->order);

	for (; s != completed; s = TAILQ_NEXT(s, order))
		if (!s->overtaken)
			s->overtaken = now_ns();
	TAILQ_REMOVE(&m->order, completed, order);
	m->posted--;
}

void find_lost(struct many *m)
{
	const int64_t limit = (timeout_or(m->opt, POLL_TIMEOUT_MS) + LOST_MS) *
			      INT64_C(1000000);
	struct slot *s;

	while (m->rxe && (s = TAILQ_FIRST(&m->order)) && s->overtaken &&
	       now_ns() - s->overtaken > limit) {
		TAILQ_REMOVE(&m->order, s, order);
		m->posted--;
		m->count.lost++;
		m->dry = true;
		free_slot(m, (uint32_t)(s - m->slots));
	}
}

/* 一个 QP 也没有了，CQ 也取空了：换一个 SRQ，丢没丢、丢了几个，不必再问。*/
void renew_slots(struct many *m)
{
	struct slot *s;
	int rc = renew_srq(&m->shared);

	while ((s = TAILQ_FIRST(&m->order))) {
		TAILQ_REMOVE(&m->order, s, order);
		free_slot(m, (uint32_t)(s - m->slots));
	}
	m->posted = 0;
	m->dry = true;
	if (rc)
		m->rc = rc;
}
// endregion lost

int slots_open(struct many *m)
{
	const uint32_t n = m->shared.res.recv_slots;

	m->slots = calloc(n, sizeof(*m->slots));
	m->free = calloc(n, sizeof(*m->free));
	if (!m->slots || !m->free)
		return call_failed(ENOMEM, "calloc(%u slots)", n);
	for (uint32_t i = n; i > 0; i--)
		free_slot(m, i - 1);
	m->low = n / 2;
	m->rxe = device_is_rxe(m->shared.res.context);
	m->dry = true; /* limit 还没有设 */
	refill(m);
	return m->rc;
}

void slots_close(struct many *m)
{
	free(m->slots);
	free(m->free);
}

void drop_backlog(struct client *c)
{
	if (c->backlog)
		TAILQ_REMOVE(&c->many->busy, c, busy);
	for (; c->backlog; c->backlog--) {
		uint32_t slot = c->first;

		c->first = c->many->slots[slot].next;
		free_slot(c->many, slot);
	}
}

void slots_take_back(struct client *c)
{
	struct many *m = c->many;

	for (uint32_t i = 0; i < m->shared.res.recv_slots; i++)
		if (m->slots[i].holder == c)
			free_slot(m, i);
}

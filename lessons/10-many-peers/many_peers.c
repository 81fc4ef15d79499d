// SPDX-License-Identifier: MIT
/*
 * 第 10 课：许多对端
 *
 * 八个 client 与它们的 server 在同一个进程里。server 的八个 QP 从一个 SRQ 里取 receive，
 * 完成都到一个 CQ：一个线程怎样分清谁说了什么、怎样睡、怎样补、怎样拆。
 */
#include "many_peers.h"

#include "base/report.h"

#include <errno.h>
#include <string.h>

/* ---- 一个 CQ ----------------------------------------------------------------- */

struct heard {
	struct classroom *c;
	int completions;
};

// region deliver
static void deliver(void *context, void *owner, const struct ibv_wc *wc)
{
	const struct rdma_resources *place = owner;
	struct heard *h = context;
	uint32_t slot = WR_ID_SLOT(wc->wr_id);
	char text[64];

	h->completions++;
	/* wr_id 说是哪一个 receive，qp_num 说是谁的。*/
	report_fact("QP %u is place %td; slot %u: \"%s\"", wc->qp_num,
		    place - h->c->place, slot,
		    printable_text(text, sizeof(text),
				   recv_slot(&h->c->server.res, slot),
				   wc->byte_len));
}
// endregion deliver

static int one_event(struct classroom *c)
{
	static const int order[] = { 3, 0, 7, 3 };
	struct heard h = { .c = c };
	int rc = post_receives(c, 0, SLOTS / 4);

	report_step("clients 3, 0, 7 and 3 send; then the server wakes up");
	for (uint32_t i = 0; i < 4 && !rc; i++) {
		rc = client_says(c, order[i], i, 16);
		if (!rc)
			rc = client_done(c, IBV_WC_SUCCESS);
	}
	if (!rc)
		rc = event_within(c, POLL_TIMEOUT_MS);
	if (!rc)
		rc = dispatch_completions(&c->server, deliver, &h);
	if (!rc)
		report_fact("1 event, %d completions", h.completions);
	return rc;
}

/* ---- SRQ --------------------------------------------------------------------- */

static void count_only(void *context, void *owner, const struct ibv_wc *wc)
{
	(void)owner;
	(void)wc;
	++*(int *)context;
}

// region limit
/* SRQ 里还有 4 个，limit 是 3。第几条消息之后响？*/
static int limit(struct classroom *c)
{
	struct ibv_async_event event;
	int taken = 0, sent = 0, rc;

	report_step("4 receives are left in the SRQ; its limit is 3");
	rc = arm_srq_limit(&c->server, 3);
	while (!rc && sent < 4) {
		rc = client_says(c, sent++, 0, 16);
		if (!rc)
			rc = client_done(c, IBV_WC_SUCCESS);
		if (!rc && take_async_event(&c->server.res, &event) == 1)
			report_fact("after message %d: %s", sent,
				    ibv_event_type_str(event.event_type));
	}
	if (!rc)
		rc = dispatch_completions(&c->server, count_only, &taken);
	/* 响过一次就归零；补了，再设。*/
	if (!rc)
		rc = post_receives(c, 0, SLOTS / 2);
	return rc ? rc : arm_srq_limit(&c->server, 3);
}
// endregion limit

/* ---- 走的时候 ---------------------------------------------------------------- */

// region last-wqe
static int leave(struct classroom *c)
{
	struct rdma_resources *place = &c->place[CLIENTS - 1];
	struct ibv_async_event event;
	int rc = modify_qp_to_error(place);

	report_step("client %d goes: its place to ERR", CLIENTS - 1);
	/* 问过设备，它会说才等。*/
	report_fact("the device tells LAST_WQE_REACHED: %s",
		    c->server.tells_last_wqe ? "yes" : "no");
	while (!rc && !async_within(&c->server, SHORT_MS))
		if (take_async_event(&c->server.res, &event) == 1)
			report_fact("%s", ibv_event_type_str(event.event_type));
	if (!rc)
		rc = dispatch_completions(&c->server, count_only, &(int){ 0 });
	return rc ? rc : destroy_peer_qp(&c->server, place);
}
// endregion last-wqe

static int walk(struct classroom *c)
{
	int rc = sum_of_memory(c);

	if (!rc)
		rc = one_event(c);
	if (!rc)
		rc = limit(c);
	if (!rc)
		rc = leave(c);
	return rc ? rc : datagrams(c);
}

int main(int argc, char *argv[])
{
	struct lesson lesson;
	struct classroom c = { .lesson = &lesson };
	int rc = lesson_parse(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	rc = open_classroom(&c);
	if (!rc)
		rc = lesson.broken ? lesson_plant(&lesson, &c) : walk(&c);
	rc |= close_classroom(&c);
	return rc ? 1 : 0;
}

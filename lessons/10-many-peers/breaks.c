// SPDX-License-Identifier: MIT
/*
 * breaks.c —— 许多对端的错误，一个一函数；八个 client 都已连上，SRQ 是空的
 */
#include "many_peers.h"

#include "base/report.h"
#include "explain/qp_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define FEW  4	/* 要这么多 CQE */
#define MANY 20 /* 完成这么多 */

/* 一条消息到了 server 的 CQ 里：client 的 SEND 完成，就是它的 ACK 已经回来。*/
static int message(struct classroom *c, int i)
{
	int rc = client_says(c, i, (uint32_t)i, 16);

	return rc ? rc : client_done(c, IBV_WC_SUCCESS);
}

/* ---- event ------------------------------------------------------------------- */

// region arm-late
/* 先取空，后 arm：两者之间到了一条。*/
static int arm_late(void *classroom)
{
	struct classroom *c = classroom;
	struct rdma_resources *res = &c->server.res;
	struct ibv_wc wc;
	int rc = post_receives(c, 0, 2);

	if (!rc)
		rc = message(c, 0);
	if (!rc)
		rc = event_within(c, POLL_TIMEOUT_MS);
	if (!rc)
		rc = take_cq_event(res);
	while (!rc && ibv_poll_cq(res->cq, 1, &wc) > 0)
		continue;
	if (!rc)
		rc = message(c, 1); /* 就在这时 */
	if (!rc)
		rc = arm_cq(res);
	if (rc || !event_within(c, SHORT_MS))
		return rc ? rc : not_seen("a missed completion");
	return fail(-ETIMEDOUT, "arm first, then poll until it is empty",
		    "no event within %d ms, and the CQ holds %d completion",
		    SHORT_MS, ibv_poll_cq(res->cq, 1, &wc));
}
// endregion arm-late

static void *destroy_cq(void *cq)
{
	ibv_destroy_cq(cq);
	return NULL;
}

// region unacked
/* 取了 event，没有 ack：ibv_destroy_cq 一直不返回。*/
static int unacked(void *classroom)
{
	struct classroom *c = classroom;
	struct rdma_resources *res = &c->server.res;
	struct timespec until;
	pthread_t thread;
	void *context;
	struct ibv_cq *cq;
	int rc = post_receives(c, 0, 1);

	if (!rc)
		rc = message(c, 0);
	if (!rc)
		rc = event_within(c, POLL_TIMEOUT_MS);
	if (rc || ibv_get_cq_event(res->channel, &cq, &context))
		return rc ? rc : not_seen("an event");
	for (int i = 0; i < CLIENTS && !rc; i++)
		rc = destroy_peer_qp(&c->server, &c->place[i]);
	if (rc || pthread_create(&thread, NULL, destroy_cq, cq))
		return rc ? rc : not_seen("a thread");
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (!pthread_timedjoin_np(thread, NULL, &until))
		return not_seen("a wait");
	ibv_ack_cq_events(cq, 1);
	pthread_join(thread, NULL);
	res->cq = NULL;
	return fail(-ETIMEDOUT, "acknowledge each event that you get",
		    "ibv_destroy_cq() has not returned for a second, until 1 "
		    "event was acknowledged");
}
// endregion unacked

/* ---- SRQ --------------------------------------------------------------------- */

// region own-receive
static int own_receive(void *classroom)
{
	struct classroom *c = classroom;
	struct ibv_recv_wr *bad, wr = { .wr_id = WR_ID_RECV(0) };
	struct ibv_qp *qp = c->place[0].qp;
	int err = ibv_post_recv(qp, &wr, &bad);

	return err ? post_recv_failed(qp, &wr, err) : not_seen("EINVAL");
}

static int srq_first(void *classroom)
{
	struct classroom *c = classroom;
	int rc = renew_srq(&c->server);

	return rc ? rc : not_seen("EBUSY");
}
// endregion own-receive

static int seat_again(struct classroom *c, int i, uint8_t rnr_retry)
{
	int rc = destroy_peer_qp(&c->clients, &c->client[i]);

	if (!rc)
		rc = destroy_peer_qp(&c->server, &c->place[i]);
	return rc ? rc : seat(c, i, rnr_retry);
}

// region dry
/* SRQ 空了。client 0 只肯再试一次，client 1 一直试。*/
static int dry(void *classroom)
{
	struct classroom *c = classroom;
	int rc = seat_again(c, 0, 1);

	if (!rc)
		rc = client_says(c, 0, 0, 16);
	if (!rc)
		rc = client_done(c, IBV_WC_RNR_RETRY_EXC_ERR);
	if (rc)
		return rc;
	report_fact("client 0: %s", wc_status_name(IBV_WC_RNR_RETRY_EXC_ERR));
	rc = client_says(c, 1, 1, 16);
	if (!rc)
		rc = post_receives(c, 0, 1);
	if (!rc)
		rc = client_done(c, IBV_WC_SUCCESS);
	if (rc)
		return rc;
	report_fact("client 1, after one receive was posted: success");
	return fail(-EIO, "post receives in time, and let clients retry (7)",
		    "the SRQ was empty, and client 0 has lost its connection");
}
// endregion dry

/* ---- CQ ---------------------------------------------------------------------- */

static void count_only(void *context, void *owner, const struct ibv_wc *wc)
{
	(void)owner;
	(void)wc;
	++*(int *)context;
}

/* 二十条都到了对面：于是这边该有二十个 CQE。*/
static int send_many(struct classroom *c, int *arrived)
{
	int rc = post_receives(c, 0, MANY + 1);

	for (uint32_t i = 0; i < MANY && !rc; i++)
		rc = client_says(c, 0, i, 16);
	while (!rc && *arrived < MANY) {
		rc = event_within(c, POLL_TIMEOUT_MS);
		if (!rc)
			rc = dispatch_completions(&c->server, count_only,
						  arrived);
	}
	return rc;
}

// region cq-overrun
/* client 0 的 QP 换一个小 CQ；20 个 SEND 都要 completion，却没有人去取。*/
static int cq_overrun(void *classroom)
{
	struct classroom *c = classroom;
	struct ibv_cq *usual = c->clients.res.cq;
	struct ibv_cq *small =
		ibv_create_cq(usual->context, FEW, NULL, NULL, 0);
	struct ibv_async_event event;
	struct ibv_qp_attr attr = { 0 };
	struct ibv_wc wc;
	int arrived = 0, errors = 0, got = 0, rc;

	if (!small)
		return call_failed(errno, "ibv_create_cq(%d)", FEW);
	c->clients.res.cq = small;
	rc = seat_again(c, 0, RNR_EVER);
	if (!rc)
		rc = send_many(c, &arrived);
	while (!rc && !async_within(&c->clients, SHORT_MS))
		if (take_async_event(&c->clients.res, &event) == 1)
			errors += event.event_type == IBV_EVENT_CQ_ERR;
	while (!rc && ibv_poll_cq(small, 1, &wc) == 1)
		got++;
	if (!rc)
		rc = query_qp(&c->client[0], &attr);
	if (!rc)
		report_fact("asked for %d CQEs, got room for %d; %d messages "
			    "arrived",
			    FEW, small->cqe, arrived);
	if (!rc)
		report_fact("%d completions, %d times CQ_ERR; the QP is in %s",
			    got, errors, qp_state_name(attr.qp_state));
	c->clients.res.cq = usual;
	destroy_peer_qp(&c->clients, &c->client[0]);
	ibv_destroy_cq(small);
	if (rc || got == MANY)
		return rc ? rc : not_seen("an overrun");
	return fail(-EOVERFLOW,
		    "make the CQ as large as all that may be outstanding",
		    "%d completions are lost", MANY - got);
}
// endregion cq-overrun

const struct lesson_break breaks[] = {
	{ "arm-late", "poll until empty, and arm after that", arm_late },
	{ "unacked", "get an event and never acknowledge it", unacked },
	{ "own-receive", "ibv_post_recv on a QP that has an SRQ", own_receive },
	{ "srq-first", "destroy the SRQ while QPs use it", srq_first },
	{ "dry", "nobody posts receives; client 0 tries twice", dry },
	{ "cq-overrun", "20 completions for a CQ of 4", cq_overrun },
	{ "wrong-qkey", "UD with another Q_Key", wrong_qkey },
	{ "no-room", "UD, and no room for the 40 bytes", no_room },
	{ "over-mtu", "UD, one byte more than the MTU", over_mtu },
	{ 0 },
};

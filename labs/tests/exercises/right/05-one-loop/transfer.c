// SPDX-License-Identifier: MIT
/* Right, in another hand: one loop for polling and for events, no arming twice. */
#include "base/deadline.h"
#include "rdma_common.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

int post_receive(struct rdma_resources *res, uint32_t slot)
{
	struct ibv_recv_wr wr, *bad_wr = NULL;
	struct ibv_sge sge;
	int ret;

	memset(&wr, 0, sizeof(wr));
	sge.addr = (uint64_t)(uintptr_t)recv_slot(res, slot);
	sge.length = res->msg_size;
	sge.lkey = res->mr->lkey;
	wr.wr_id = WR_ID_RECV(slot);
	wr.sg_list = &sge;
	wr.num_sge = 1;
	remember_receive(&res->posted[slot % res->recv_slots], &wr);
	ret = ibv_post_recv(res->qp, &wr, &bad_wr);
	if (ret)
		return post_recv_failed(res->qp, &wr, ret);
	return 0;
}

int post_all_receives(struct rdma_resources *res)
{
	uint32_t slot = 0;

	while (slot < res->recv_slots)
		if (post_receive(res, slot++))
			return -EIO;
	return 0;
}

int post_request(struct rdma_resources *res, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad_wr = NULL;
	uint32_t slot = WR_ID_SLOT(wr->wr_id) % res->send_slots;
	int ret;

	if (wr->opcode != IBV_WR_RDMA_READ &&
	    wr->sg_list->length <= res->max_inline)
		wr->send_flags |= IBV_SEND_INLINE;
	remember_send(&res->posted[res->recv_slots + slot], wr);
	ret = ibv_post_send(res->qp, wr, &bad_wr);
	return ret ? post_send_failed(res->qp, wr, ret) : 0;
}

int post_send(struct rdma_resources *res, uint32_t slot, uint32_t length,
	      bool signaled)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	memset(&wr, 0, sizeof(wr));
	sge.addr = (uint64_t)(uintptr_t)send_slot(res, slot);
	sge.length = length;
	sge.lkey = res->mr->lkey;
	wr.wr_id = WR_ID_SEND(slot);
	wr.opcode = IBV_WR_SEND;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	if (signaled)
		wr.send_flags = IBV_SEND_SIGNALED;
	return post_request(res, &wr);
}

static int bad(struct rdma_resources *res, const struct ibv_wc *wc,
	       uint64_t wr_id, int ms)
{
	return completion_failed(res->qp, wc, wr_id, ms, res->posted,
				 res->recv_slots + res->send_slots, res->mr,
				 res->more_rkeys ? NULL : &res->remote);
}

static bool is_ours(const struct ibv_wc *wc)
{
	switch (wc->opcode) {
	case IBV_WC_RECV:
		return WR_ID_RECV(0) >> 32 == wc->wr_id >> 32;
	case IBV_WC_SEND:
		return WR_ID_SEND(0) >> 32 == wc->wr_id >> 32;
	case IBV_WC_RDMA_READ:
		return WR_ID_READ(0) >> 32 == wc->wr_id >> 32;
	case IBV_WC_RDMA_WRITE:
		return WR_ID_WRITE(0) >> 32 == wc->wr_id >> 32;
	default:
		return false;
	}
}

int try_completion(struct rdma_resources *res, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(res->cq, 1, wc);

	if (n == 0)
		return 0;
	if (n < 0)
		return call_failed(EIO, "ibv_poll_cq()");
	if (wc->status != IBV_WC_SUCCESS)
		return bad(res, wc, wc->wr_id, 0);
	return is_ours(wc) ? 1 : unexpected_completion(wc);
}

int arm_cq(struct rdma_resources *res)
{
	int ret = ibv_req_notify_cq(res->cq, 0);

	if (ret)
		return call_failed(ret, "ibv_req_notify_cq()");
	res->armed = true;
	return 0;
}

int take_cq_event(struct rdma_resources *res)
{
	struct ibv_cq *which;
	void *context;

	if (ibv_get_cq_event(res->channel, &which, &context)) {
		if (errno == EAGAIN)
			return 0;
		return call_failed(errno, "ibv_get_cq_event()");
	}
	ibv_ack_cq_events(which, 1);
	res->armed = false;
	return 0;
}

/* Waits a little, in one way or the other. */
static int linger(struct rdma_resources *res, int64_t deadline)
{
	int rc = 0;

	if (!res->channel)
		return 0;
	if (!res->armed)
		return arm_cq(res);
	rc = wait_fd(res->channel->fd, POLLIN, deadline);
	return rc ? rc : take_cq_event(res);
}

int await_completion(struct rdma_resources *res, uint64_t wr_id,
		     struct ibv_wc *wc, int timeout_ms)
{
	int64_t deadline = deadline_in_ms(timeout_ms);
	int rc = 0;

	while (!rc) {
		rc = try_completion(res, wc);
		if (rc)
			return rc < 0 ? rc : 0;
		rc = linger(res, deadline);
		if (!rc && stop_requested())
			rc = -EINTR;
		if (!rc && deadline_passed(deadline))
			rc = -ETIMEDOUT;
	}
	if (rc == -ETIMEDOUT)
		return bad(res, NULL, wr_id, timeout_ms);
	if (rc == -EINTR)
		return wait_failed(rc, "waiting for %s", "a completion");
	return rc;
}

int poll_completion(struct rdma_resources *res, uint64_t wr_id,
		    struct ibv_wc *wc, int timeout_ms)
{
	struct ibv_wc one;
	int rc;

	if (res->have_early && res->early.wr_id == wr_id) {
		res->have_early = false;
		if (wc)
			*wc = res->early;
		return 0;
	}
	for (;;) {
		rc = await_completion(res, wr_id, &one, timeout_ms);
		if (rc)
			return rc;
		if (one.wr_id == wr_id)
			break;
		if (res->have_early)
			return unexpected_completion(&one);
		res->have_early = true;
		res->early = one;
	}
	if (wc)
		*wc = one;
	return 0;
}

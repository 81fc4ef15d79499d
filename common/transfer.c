// SPDX-License-Identifier: MIT
/*
 * transfer.c —— 第 5 阶段：post_receive、post_send、poll_completion
 *
 * RDMA 的 I/O 是“先登记、后完成”：post 只是把一个 WQE（Work Queue Element）放进
 * 队列并按一下门铃（doorbell），立即返回；真正的搬运由网卡做；做完之后在 CQ 里放
 * 一个 CQE（Completion Queue Entry）。在那之前，WQE 指向的内存归网卡所有。
 */
#include "base/deadline.h"
#include "rdma_common.h"

#include <errno.h>
#include <poll.h>

/*
 * 每空转这么多次才看一次时钟：读时钟远比查一次空 CQ 贵（虚拟机里可能要陷入
 * 宿主）。8192 次约合 0.3 ms，对以秒计的期限绰绰有余，而热路径上一次也不必读。
 */
#define POLLS_PER_CLOCK 8192
#define EVENTS_PER_ACK	64 /* 攒够了才一次 ack：ack 要拿锁，不宜每个都做 */

// region post-receive
int post_receive(struct rdma_resources *res, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)recv_slot(res, slot),
		.length = res->msg_size,
		.lkey = res->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		/* wr_id 原样出现在 CQE 里：只有靠它才能识别是哪个请求完成了。*/
		.wr_id = WR_ID_RECV(slot),
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad;
	/* SEND 不带目的地址：数据放到哪里，由接收方最先 post 的那个 WR 决定。*/
	int err = ibv_post_recv(res->qp, &wr, &bad);

	remember_receive(&res->posted[slot % res->recv_slots], &wr);
	return err ? post_recv_failed(res->qp, &wr, err) : 0;
}
// endregion post-receive

int post_all_receives(struct rdma_resources *res)
{
	int rc = 0;

	for (uint32_t i = 0; i < res->recv_slots && !rc; i++)
		rc = post_receive(res, i);
	return rc;
}

/* 数据由这一端发出的请求。READ 与 ATOMIC 的数据从对端来，谈不上 inline。*/
static bool carries_data(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE ||
	       opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// region post-send
int post_request(struct rdma_resources *res, struct ibv_send_wr *wr)
{
	uint32_t slot = WR_ID_SLOT(wr->wr_id) % res->send_slots;
	struct ibv_send_wr *bad;
	int err;

	/* inline：post 时就把内容拷进 WQE，网卡省去一次取数据。只适合很小的消息。*/
	if (carries_data(wr->opcode) && wr->sg_list->length <= res->max_inline)
		wr->send_flags |= IBV_SEND_INLINE;
	err = ibv_post_send(res->qp, wr, &bad);
	/* 记下请求了什么：失败的 CQE 里没有，解释时却要用。*/
	remember_send(&res->posted[res->recv_slots + slot], wr);
	return err ? post_send_failed(res->qp, wr, err) : 0;
}

int post_send(struct rdma_resources *res, uint32_t slot, uint32_t length,
	      bool signaled)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)send_slot(res, slot),
		.length = length,
		.lkey = res->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_SEND(slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		/*
		 * 不带 SIGNALED 的 SEND 成功时不产生 CQE，但它占的 SQ 位置要等后面某个
		 * signaled 的 CQE 被取走才释放。一直不 signal，SQ 迟早满（ENOMEM）。
		 */
		.send_flags = signaled ? IBV_SEND_SIGNALED : 0,
	};

	return post_request(res, &wr);
}
// endregion post-send

/* 等不来，或等来的是失败：把知道的都交给解释器。返回 -ETIMEDOUT 或 -EIO。*/
static int explain_failure(struct rdma_resources *res, const struct ibv_wc *wc,
			   uint64_t wr_id, int wait_ms)
{
	return completion_failed(res->qp, wc, wr_id, wait_ms, res->posted,
				 res->recv_slots + res->send_slots, res->mr,
				 res->more_rkeys ? NULL : &res->remote);
}

// region check-completion
/* status、wr_id、opcode 三者都要对，才算是“我的那个请求成功了”。*/
static int check_completion(struct rdma_resources *res, const struct ibv_wc *wc)
{
	static const struct {
		uint64_t wr_id;
		enum ibv_wc_opcode opcode;
	} ours[] = { { WR_ID_RECV(0), IBV_WC_RECV },
		     { WR_ID_SEND(0), IBV_WC_SEND },
		     { WR_ID_READ(0), IBV_WC_RDMA_READ },
		     { WR_ID_WRITE(0), IBV_WC_RDMA_WRITE },
		     { WR_ID_RECV(0), IBV_WC_RECV_RDMA_WITH_IMM },
		     { WR_ID_SWAP(0), IBV_WC_COMP_SWAP },
		     { WR_ID_ADD(0), IBV_WC_FETCH_ADD },
		     { WR_ID_BIND(0), IBV_WC_BIND_MW },
		     { WR_ID_INVALIDATE(0), IBV_WC_LOCAL_INV } };

	if (wc->status != IBV_WC_SUCCESS)
		return explain_failure(res, wc, wc->wr_id, 0);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (wc->opcode == ours[i].opcode &&
		    wc->wr_id >> 32 == ours[i].wr_id >> 32)
			return 0;
	return unexpected_completion(wc);
}

int try_completion(struct rdma_resources *res, struct ibv_wc *wc)
{
	int rc, n = ibv_poll_cq(res->cq, 1, wc);

	if (n < 0)
		return call_failed_for(EIO, "the CQ can no longer be read",
				       NULL, "ibv_poll_cq() = %d", n);
	rc = n ? check_completion(res, wc) : 0;
	return rc ? rc : n;
}
// endregion check-completion

// region event-wait
int arm_cq(struct rdma_resources *res)
{
	int err = ibv_req_notify_cq(res->cq, 0);

	res->armed = !err;
	return err ? call_failed(err, "ibv_req_notify_cq()") : 0;
}

int take_cq_event(struct rdma_resources *res)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(res->channel, &cq, &context))
		return errno == EAGAIN /* 非阻塞，event 已被取走 */
			       ? 0
			       : call_failed(errno, "ibv_get_cq_event()");
	res->armed = false;
	if (++res->event_debt >= EVENTS_PER_ACK) {
		ibv_ack_cq_events(res->cq, res->event_debt);
		res->event_debt = 0;
	}
	return 0;
}

/*
 * CQ 空了：睡到有 event 为止。没有 arm 过就先 arm，并让调用者再查一次 CQ，查过还是空的
 * 才睡。否则 CQE 若恰好在“查完”与“arm”之间到达，就永远不会再有 event。
 */
static int arm_or_sleep(struct rdma_resources *res, int64_t deadline)
{
	int rc;

	if (!res->armed)
		return arm_cq(res);
	rc = wait_fd(res->channel->fd, POLLIN, deadline);
	return rc ? rc : take_cq_event(res);
}
// endregion event-wait

// region next-completion
int await_completion(struct rdma_resources *res, uint64_t wr_id,
		     struct ibv_wc *wc, int timeout_ms)
{
	int64_t deadline = deadline_in_ms(timeout_ms);
	int polls = 0;
	int n = 0;

	while (!n) {
		/* 每次都先检查：即使总有 completion 可取，也要能响应 Ctrl-C。*/
		if (stop_requested())
			n = -EINTR;
		else
			n = try_completion(res, wc);
		if (!n && res->channel)
			n = arm_or_sleep(res, deadline);
		else if (!n && ++polls % POLLS_PER_CLOCK == 0 &&
			 deadline_passed(deadline))
			n = -ETIMEDOUT;
	}
	if (n == -EINTR)
		return wait_failed(n, "waiting for %s", "a completion");
	if (n == -ETIMEDOUT)
		return explain_failure(res, NULL, wr_id, timeout_ms);
	return n < 0 ? n : 0;
}
// endregion next-completion

// region poll-completion
int poll_completion(struct rdma_resources *res, uint64_t wr_id,
		    struct ibv_wc *wc, int timeout_ms)
{
	struct ibv_wc got = res->early;
	int rc = 0;

	/*
	 * CQ 只保证同一个队列内部有序。client 的 SEND 与 RECV 谁先完成并不一定：
	 * ACK 丢了重传时，对端的回信会先到。先到的那个留着，下次再取。
	 */
	if (res->have_early && got.wr_id == wr_id)
		res->have_early = false;
	else
		rc = await_completion(res, wr_id, &got, timeout_ms);
	while (!rc && got.wr_id != wr_id) {
		if (res->have_early)
			return unexpected_completion(&got);
		res->early = got;
		res->have_early = true;
		rc = await_completion(res, wr_id, &got, timeout_ms);
	}
	if (!rc && wc)
		*wc = got;
	return rc;
}
// endregion poll-completion

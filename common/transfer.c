// SPDX-License-Identifier: MIT
/*
 * transfer.c —— 第 5 阶段：post_receive、post_send、poll_completion
 *
 * RDMA 的 I/O 是“先登记、后完成”：post 只是把一个 WQE（Work Queue Element）放进
 * 队列并按一下门铃（doorbell），立即返回；真正的搬运由网卡做；做完之后在 CQ 里放
 * 一个 CQE（Completion Queue Entry）。在那之前，WQE 指向的内存归网卡所有。
 */
#include "base/deadline.h"
#include "base/failure.h"
#include "base/report.h"
#include "explain/explain.h"
#include "rdma_common.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/*
 * 每空转这么多次才看一次时钟：读时钟远比查一次空 CQ 贵（虚拟机里可能要陷入
 * 宿主）。8192 次约合 0.3 ms，对以秒计的期限绰绰有余，而热路径上一次也不必读。
 */
#define POLLS_PER_CLOCK 8192
/* event 累积到这个数再一次性 ack：ack 要拿锁，不宜每个都做。*/
#define EVENTS_PER_ACK 64

// region post-receive
int post_receive(struct rdma_resources *res, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)recv_slot(res, slot),
		.length = res->msg_size,
		.lkey = res->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		/* wr_id 原样出现在 CQE 里：是我们认出“哪一个做完了”的唯一凭据。*/
		.wr_id = WR_ID_RECV(slot),
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad;
	/* SEND 不带目的地址：数据落在哪里，由接收方最先 post 的那个 WR 决定。*/
	int err = ibv_post_recv(res->qp, &wr, &bad);

	if (!err)
		return 0;
	return verb_failed(err, explain_post_recv(res->qp, &wr, err),
			   "ibv_post_recv(QP %u, slot %u, %u bytes)",
			   res->qp->qp_num, slot, res->msg_size);
}
// endregion post-receive

// region post-send
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
	};
	struct ibv_send_wr *bad;
	int err;

	/* inline：post 时就把内容拷进 WQE，网卡省去一次取数据。只适合很小的消息。*/
	if (length <= res->max_inline)
		wr.send_flags |= IBV_SEND_INLINE;
	/*
	 * 不带 SIGNALED 的 SEND 成功时不产生 CQE，但它占的 SQ 位置要等后面某个
	 * signaled 的 CQE 被取走才释放。一直不 signal，SQ 迟早满（ENOMEM）。
	 */
	if (signaled)
		wr.send_flags |= IBV_SEND_SIGNALED;
	err = ibv_post_send(res->qp, &wr, &bad);
	if (!err)
		return 0;
	return verb_failed(err, explain_post_send(res->qp, &wr, err),
			   "ibv_post_send(QP %u, slot %u, %u bytes)",
			   res->qp->qp_num, slot, length);
}
// endregion post-send

// region one-sided
/*
 * 单边操作：不消耗对端的 receive，对端的 CPU 与 CQ 都毫无察觉。对端只需事先把地址和
 * rkey 告诉我们；它的 MR 与 QP 都要允许 REMOTE_READ / REMOTE_WRITE。
 */
int post_read(struct rdma_resources *res, uint32_t slot, struct ibv_sge *into,
	      uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_READ(slot),
		.sg_list = into,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		/* 数据何时到齐，只有这个 CQE 知道，所以 READ 总是 signaled。*/
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};
	struct ibv_send_wr *bad;
	int err = ibv_post_send(res->qp, &wr, &bad);

	if (!err)
		return 0;
	return verb_failed(err, explain_post_send(res->qp, &wr, err),
			   "ibv_post_send(QP %u, READ of %u bytes)",
			   res->qp->qp_num, into->length);
}

int post_write(struct rdma_resources *res, uint32_t slot, uint32_t length,
	       uint64_t addr, uint32_t rkey, bool signaled)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)send_slot(res, slot),
		.length = length,
		.lkey = res->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_WRITE(slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags =
			(length <= res->max_inline ? IBV_SEND_INLINE : 0u) |
			(signaled ? IBV_SEND_SIGNALED : 0u),
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};
	struct ibv_send_wr *bad;
	int err = ibv_post_send(res->qp, &wr, &bad);

	if (!err)
		return 0;
	return verb_failed(err, explain_post_send(res->qp, &wr, err),
			   "ibv_post_send(QP %u, WRITE of %u bytes)",
			   res->qp->qp_num, length);
}
// endregion one-sided

/* wr_id 的高 32 位说是哪一种请求。*/
static const struct wr_kind {
	uint64_t wr_id;
	const char *name;
	enum ibv_wr_opcode posted; /* 不看 receive 的 */
	enum ibv_wc_opcode completed;
} wr_kinds[] = {
	{ WR_ID_RECV(0), "receive", IBV_WR_SEND, IBV_WC_RECV },
	{ WR_ID_SEND(0), "send", IBV_WR_SEND, IBV_WC_SEND },
	{ WR_ID_READ(0), "READ", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ },
	{ WR_ID_WRITE(0), "WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE },
};

static const struct wr_kind *wr_kind(uint64_t wr_id)
{
	for (size_t i = 0; i < sizeof(wr_kinds) / sizeof(wr_kinds[0]); i++)
		if (wr_id >> 32 == wr_kinds[i].wr_id >> 32)
			return &wr_kinds[i];
	return NULL;
}

static const char *wr_name(uint64_t wr_id)
{
	const struct wr_kind *kind = wr_kind(wr_id);

	return kind ? kind->name : "request";
}

// region explain-status
/*
 * 把自己知道的都交给解释器：这个 slot 的 buffer 与 MR。它据此排除“lkey 不对”这一类
 * 原因，再去看对端。出错的 CQE 里只有 wr_id、status、qp_num、vendor_err 可信，别读
 * opcode：是 send 还是 receive，看 wr_id。
 */
static struct explanation explain_slot(struct rdma_resources *res,
				       const struct ibv_wc *wc, uint64_t wr_id,
				       int64_t wait_ms)
{
	const struct explain_mr mr = { .pd = res->pd,
				       .addr = (uintptr_t)res->mr->addr,
				       .length = res->mr->length,
				       .lkey = res->mr->lkey,
				       .rkey = res->mr->rkey,
				       .access = IBV_ACCESS_LOCAL_WRITE };
	const struct wr_kind *kind = wr_kind(wr_id);
	const bool received = kind && kind->completed == IBV_WC_RECV;
	/* READ 落在别人的 MR 里，这里不知道是哪一个：关于内存就什么都不说。*/
	const bool elsewhere = kind && kind->completed == IBV_WC_RDMA_READ;
	const uint32_t slot = WR_ID_SLOT(wr_id);
	struct ibv_sge sge = { .length = res->msg_size, .lkey = res->mr->lkey };
	const struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 };
	const struct ibv_send_wr send = { .sg_list = &sge,
					  .num_sge = elsewhere ? 0 : 1,
					  .opcode = kind ? kind->posted
							 : IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED };
	struct explain_request request = { .polled = res->cq,
					   .local = elsewhere ? NULL : &mr,
					   .n_local = elsewhere ? 0 : 1 };

	if (kind) {
		request.recv = received ? &recv : NULL;
		request.send = received ? NULL : &send;
		sge.addr = (uintptr_t)(received ? recv_slot(res, slot)
						: send_slot(res, slot));
	}
	return wc ? explain_completion(res->qp, wc, &request)
		  : explain_silence(res->qp, &request, wait_ms);
}

static int bad_status(struct rdma_resources *res, const struct ibv_wc *wc)
{
	struct explanation why = explain_slot(res, wc, wc->wr_id, 0);
	char next[EXPLAIN_NEXT_SIZE];

	report_error(explain_next(next, &why),
		     "the %s of slot %u on QP %u completed with %s (%d): %s",
		     wr_name(wc->wr_id), WR_ID_SLOT(wc->wr_id), wc->qp_num,
		     ibv_wc_status_str(wc->status), wc->status, why.cause);
	return -EIO;
}
// endregion explain-status

// region check-completion
/* status、wr_id、opcode 三者都要对，才算是“我的那个请求成功了”。*/
static int check_completion(struct rdma_resources *res, const struct ibv_wc *wc)
{
	const struct wr_kind *kind = wr_kind(wc->wr_id);

	if (wc->status != IBV_WC_SUCCESS)
		return bad_status(res, wc);
	if (kind && wc->opcode == kind->completed)
		return 0;
	report_error(NULL,
		     "unexpected completion: wr_id 0x%llx opcode %d on QP %u",
		     (unsigned long long)wc->wr_id, wc->opcode, wc->qp_num);
	return -EIO;
}
// endregion check-completion

/* 一直没有 completion：没有 errno 也没有 status 可解释，只能去看 QP 和对端。*/
static int wait_expired(struct rdma_resources *res, int rc, uint64_t wr_id,
			int timeout_ms)
{
	char next[EXPLAIN_NEXT_SIZE];
	struct explanation why = { 0 };

	if (rc != -EINTR)
		why = explain_slot(res, NULL, wr_id, timeout_ms);
	if (rc == -EINTR)
		report_error(NULL,
			     "waiting for a completion on QP %u: stopped by a "
			     "signal",
			     res->qp->qp_num);
	else
		report_error(explain_next(next, &why),
			     "no completion on QP %u within %d ms%s%s",
			     res->qp->qp_num, timeout_ms,
			     why.cause[0] ? ": " : "", why.cause);
	return rc;
}

// region event-wait
/*
 * 睡到下一个 CQ event。顺序不能错：先 req_notify（武装），再查一次 CQ，确认空
 * 了才睡。否则 CQE 若恰好在“查完”与“武装”之间到达，就永远不会再有 event。
 */
static int sleep_on_channel(struct rdma_resources *res, int64_t deadline)
{
	struct ibv_cq *cq;
	void *context;
	int rc = wait_fd(res->channel->fd, POLLIN, deadline);

	if (rc)
		return rc;
	if (ibv_get_cq_event(res->channel, &cq, &context))
		return call_failed(errno, "ibv_get_cq_event()");
	res->armed = false;
	if (++res->event_debt >= EVENTS_PER_ACK) {
		ibv_ack_cq_events(res->cq, res->event_debt);
		res->event_debt = 0;
	}
	return 0;
}

static int arm_cq(struct rdma_resources *res)
{
	int err = ibv_req_notify_cq(res->cq, 0);

	if (err)
		return call_failed(err, "ibv_req_notify_cq()");
	res->armed = true;
	return 0;
}
// endregion event-wait

/*
 * CQ 空着时做一次“等”：event 模式下武装或睡眠，polling 模式下偶尔看一眼时钟。
 * 期限从第一次看时钟算起（*deadline 为 0 表示还没看过）。
 */
static int idle_once(struct rdma_resources *res, unsigned int polls,
		     int64_t *deadline, int timeout_ms)
{
	if (!res->channel && polls % POLLS_PER_CLOCK)
		return 0;
	if (!*deadline)
		*deadline = deadline_in_ms(timeout_ms);
	if (res->channel)
		return res->armed ? sleep_on_channel(res, *deadline)
				  : arm_cq(res);
	if (stop_requested())
		return -EINTR;
	return deadline_passed(*deadline) ? -ETIMEDOUT : 0;
}

// region next-completion
int try_completion(struct rdma_resources *res, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(res->cq, 1, wc);

	if (n < 0)
		return call_failed(errno, "ibv_poll_cq()");
	if (!n)
		return 0;
	n = check_completion(res, wc);
	return n ? n : 1;
}

/* @wr_id：等的是哪一个；0 是“随便哪个”，只用来解释为什么没有等到。*/
static int await_completion(struct rdma_resources *res, struct ibv_wc *wc,
			    uint64_t wr_id, int timeout_ms)
{
	int64_t deadline = 0;
	unsigned int polls = 0;
	int rc;

	for (;;) {
		int n = try_completion(res, wc);

		if (n)
			return n < 0 ? n : 0;
		rc = idle_once(res, ++polls, &deadline, timeout_ms);
		if (rc == -ETIMEDOUT || rc == -EINTR)
			return wait_expired(res, rc, wr_id, timeout_ms);
		if (rc)
			return rc;
	}
}

int next_completion(struct rdma_resources *res, struct ibv_wc *wc,
		    int timeout_ms)
{
	return await_completion(res, wc, 0, timeout_ms);
}
// endregion next-completion

// region poll-completion
int poll_completion(struct rdma_resources *res, uint64_t wr_id,
		    struct ibv_wc *wc, int timeout_ms)
{
	struct ibv_wc got;
	int rc;

	/*
	 * CQ 只保证同一个队列内部有序。client 的 SEND 与 RECV 谁先完成并不一定：
	 * ACK 丢了重传时，对端的回信会先到。先到的那个留着，下次再取。
	 */
	if (res->have_early && res->early.wr_id == wr_id) {
		res->have_early = false;
		if (wc)
			*wc = res->early;
		return 0;
	}
	for (;;) {
		rc = await_completion(res, &got, wr_id, timeout_ms);
		if (rc)
			return rc;
		if (got.wr_id == wr_id)
			break;
		if (res->have_early) {
			report_error(NULL,
				     "expected the %s of slot %u, got the %s "
				     "of slot %u",
				     wr_name(wr_id), WR_ID_SLOT(wr_id),
				     wr_name(got.wr_id), WR_ID_SLOT(got.wr_id));
			return -EIO;
		}
		res->early = got;
		res->have_early = true;
	}
	if (wc)
		*wc = got;
	return 0;
}
// endregion poll-completion

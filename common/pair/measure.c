// SPDX-License-Identifier: MIT
/*
 * measure.c —— 把第 5 阶段重复很多次：ping-pong 延迟与单向带宽
 *
 * 与“只测时间”的 benchmark 不同，这里每条消息都带序号并逐条核对：一个更快、但会
 * 丢消息或串消息的实现，测出来的数字毫无意义。
 *
 * 两个性能要点：
 *  1. 不是每个 SEND 都要 completion。每半圈 signal 一次，CQE 与取 CQE 的开销就
 *     降到几十分之一；而 SQ 的位置由那一个 CQE 一并释放。
 *  2. 收到之后先把回信发出去，再去补 post receive：后者不在延迟的关键路径上。
 */
#include "measure.h"

#include "base/deadline.h"
#include "base/laps.h"
#include "base/report.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/*
 * 每个方向的 slot 总共占多少字节。不是越大越好：轮流写过几十 MB，cache 就全被冲掉；
 * 太小则对端的 SEND 会赶上还没补的 receive（RNR）。
 */
#define SLOT_BUDGET (4u << 20)

/*
 * 至少 @wanted 个、但不超出预算的 2 的幂：于是“第几个 slot”用一次按位与就能算出，
 * 热路径上没有除法。
 */
static uint32_t fit_slots(uint32_t wanted, uint32_t msg_size)
{
	uint32_t slots = 2;

	while (slots < wanted && slots * 2 <= SLOT_BUDGET / msg_size)
		slots *= 2;
	return slots;
}

void measure_slots(struct rdma_config *config, const struct measure_plan *plan)
{
	bool ping = plan->mode == MODE_PINGPONG;

	if (plan->mode == MODE_ONCE)
		return; /* 一收一发，各一个 slot */
	config->recv_slots = fit_slots(ping ? 4 : 512, config->msg_size);
	config->send_slots =
		fit_slots(ping ? 64 : plan->window, config->msg_size);
}

const char *mode_name(uint32_t mode)
{
	static const char *const names[] = { "once", "pingpong", "bandwidth" };

	return mode <= MODE_BANDWIDTH ? names[mode] : "unknown";
}

static int plans_differ(const struct plan_msg *mine,
			const struct plan_msg *peers)
{
	return fail(-EPROTO,
		    "give --bw, --iters and --size the same values on both "
		    "sides",
		    "the peer plans mode %s, %ju messages of %u bytes; this "
		    "side mode %s, %ju messages of %u bytes",
		    mode_name(be32toh(peers->mode)), be64toh(peers->iters),
		    be32toh(peers->size), mode_name(be32toh(mine->mode)),
		    be64toh(mine->iters), be32toh(mine->size));
}

/*
 * RDMA 不会像 TCP 那样把长消息拆给多次 recv：一条 SEND 对应一个 RECV，装不下就是
 * 错误，QP 也随之报废。所以在发之前就比较好；两边看到同样的数，也就一起退出。
 */
static int check_fit(const char *whose, uint32_t size, uint32_t room)
{
	if (size <= room)
		return 0;
	return fail(-EMSGSIZE,
		    "start both sides with a --size that holds the message",
		    "%s message has %u bytes, the receive buffer %u", whose,
		    size, room);
}

struct plan_msg plan_msg_of(const struct measure_plan *plan, uint32_t size)
{
	return (struct plan_msg){ htobe32(plan->mode), htobe32(size),
				  htobe64(plan->iters) };
}

int compare_plans(const struct rdma_resources *res,
		  const struct measure_plan *plan, uint32_t size,
		  struct plan_msg peers)
{
	const struct plan_msg mine = plan_msg_of(plan, size);
	int rc;

	if (mine.mode != peers.mode || mine.iters != peers.iters ||
	    (plan->mode != MODE_ONCE && mine.size != peers.size))
		return plans_differ(&mine, &peers);
	rc = check_fit("my", size, res->remote.size);
	return rc ? rc
		  : check_fit("the peer's", be32toh(peers.size), res->msg_size);
}

int agree_on_plan(const struct rdma_resources *res,
		  const struct measure_plan *plan, uint32_t size, int sock,
		  int64_t deadline)
{
	struct plan_msg mine = plan_msg_of(plan, size), peers;
	int rc = sock_sync_data(sock, sizeof(mine), &mine, &peers, deadline,
				"transfer plan");

	return rc ? rc : compare_plans(res, plan, size, peers);
}

/* 一次测量的进度。序号从 0 开始，第 i 条消息用第 i & (slots - 1) 个 slot。*/
struct progress {
	struct rdma_resources *res;
	int timeout_ms;
	uint64_t iters;	   /* messages in each direction */
	uint64_t sent;	   /* posted */
	uint64_t done;	   /* sends known to be complete */
	uint64_t received; /* arrived and checked */
	uint64_t reposted; /* receives given back to the QP */
	uint32_t window;   /* sends outstanding at most */
	uint32_t stride;   /* every stride-th send is signaled; power of two */
};

/* slot 的个数总是 2 的幂（见 fit_slots）。*/
static uint32_t slot_of(uint64_t sequence, uint32_t slots)
{
	return (uint32_t)sequence & (slots - 1);
}

// region stamp
/* 序号写在消息开头（不足 8 字节则写低位）；其余字节不动，省得测的是 memset。*/
static size_t stamp_size(const struct rdma_resources *res)
{
	return res->msg_size < sizeof(uint64_t) ? res->msg_size
						: sizeof(uint64_t);
}

static int send_next(struct progress *p)
{
	struct rdma_resources *res = p->res;
	uint32_t slot = slot_of(p->sent, res->send_slots);
	uint64_t stamp = htole64(p->sent);
	bool signaled;

	memcpy(send_slot(res, slot), &stamp, stamp_size(res));
	p->sent++;
	signaled = !slot_of(p->sent, p->stride) || p->sent == p->iters;
	return post_send(res, slot, res->msg_size, signaled);
}

static int check_received(struct progress *p, const struct ibv_wc *wc)
{
	struct rdma_resources *res = p->res;
	uint64_t stamp = htole64(p->received);
	uint32_t slot = WR_ID_SLOT(wc->wr_id);

	if (wc->byte_len == res->msg_size &&
	    slot == slot_of(p->received, res->recv_slots) &&
	    !memcmp(recv_slot(res, slot), &stamp, stamp_size(res))) {
		p->received++;
		return 0;
	}
	return fail(-EBADMSG, NULL,
		    "message %ju arrived wrong: %u bytes in slot %u (%u "
		    "bytes expected)",
		    p->received, wc->byte_len, slot, res->msg_size);
}
// endregion stamp

static int take_completion(struct progress *p)
{
	struct ibv_wc wc;
	int rc = await_completion(p->res, 0, &wc, p->timeout_ms);

	if (rc)
		return rc;
	if (wc.opcode == IBV_WC_RECV)
		return check_received(p, &wc);
	/* 一个 signaled 的 CQE 说明：它以及它之前的所有 SEND 都完成了。*/
	p->done += p->stride - slot_of(p->done, p->stride);
	if (p->done > p->iters)
		p->done = p->iters;
	return 0;
}

/* 直到可以再发一条：SQ 里有空位，而且那个 slot 的上一次 SEND 已经完成。*/
static int wait_for_slot(struct progress *p)
{
	int rc = 0;

	while (!rc && p->sent - p->done >= p->window)
		rc = take_completion(p);
	return rc;
}

/* 把已经收完、还没还给 QP 的 slot 都还回去。*/
static int repost_received(struct progress *p)
{
	int rc = 0;

	while (!rc && p->reposted < p->received)
		rc = post_receive(p->res,
				  slot_of(p->reposted++, p->res->recv_slots));
	return rc;
}

// region pingpong
/* 先把消息发出去，再补 receive：后者不在延迟的关键路径上。*/
static int send_and_repost(struct progress *p)
{
	int rc = wait_for_slot(p);

	if (!rc)
		rc = send_next(p);
	return rc ? rc : repost_received(p);
}

static int ping_pong(struct progress *p, bool first, struct laps *laps)
{
	int rc = 0;

	if (first)
		laps_start(laps);
	for (uint64_t i = 0; i < p->iters && !rc; i++) {
		if (first)
			rc = send_and_repost(p);
		while (!rc && p->received <= i)
			rc = take_completion(p);
		if (!rc && !first)
			rc = send_and_repost(p);
		if (first)
			laps_next(laps);
	}
	while (!rc && p->done < p->iters)
		rc = take_completion(p);
	return rc;
}
// endregion pingpong

static int stream_out(struct progress *p)
{
	int rc = 0;

	while (!rc && p->sent < p->iters) {
		rc = wait_for_slot(p);
		if (!rc)
			rc = send_next(p);
	}
	while (!rc && p->done < p->iters)
		rc = take_completion(p);
	return rc;
}

static int stream_in(struct progress *p)
{
	int rc = 0;

	while (!rc && p->received < p->iters) {
		rc = take_completion(p);
		if (!rc)
			rc = repost_received(p);
	}
	return rc;
}

int measure_run(struct rdma_resources *res, const struct measure_plan *plan,
		bool first, int timeout_ms, struct measure_result *result)
{
	struct progress p = { .res = res,
			      .timeout_ms = timeout_ms,
			      .iters = plan->iters,
			      .window = res->send_slots,
			      .stride = res->send_slots / 2 };
	bool ping = plan->mode == MODE_PINGPONG;
	double bytes = (double)plan->iters * res->msg_size * (ping ? 2 : 1);
	struct laps laps = { 0 };
	int64_t start;
	double seconds;
	int rc;

	/* 窗口可以小于 slot 数；signal 的间隔不能大于窗口，否则谁也等不到谁。*/
	if (!ping && plan->window < p.window)
		p.window = plan->window;
	while (p.stride > 1 && p.stride > p.window / 2)
		p.stride /= 2;
	if (ping && first && laps_init(&laps, plan->iters))
		return -ENOMEM;
	start = now_ns();
	if (ping)
		rc = ping_pong(&p, first, &laps);
	else
		rc = first ? stream_out(&p) : stream_in(&p);
	seconds = (double)(now_ns() - start) / 1e9;
	if (!rc && first) {
		*result = (struct measure_result){
			.seconds = seconds,
			.mb_per_s = bytes / seconds / 1e6,
		};
		if (ping)
			result->half_us = laps_halved(&laps);
	}
	laps_free(&laps);
	return rc;
}

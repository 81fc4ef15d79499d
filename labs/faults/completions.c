// SPDX-License-Identifier: MIT
/*
 * completions.c —— post 成功了，completion 却是坏的
 *
 * 同一个 status 有许多来历：下面光是 12（没有 ACK）就有好几种。
 */
#include "faults.h"

#include <errno.h>

/* ---- 本端的 buffer -------------------------------------------------------- */

WRONG_MESSAGE(lkey_wrong, 64, rig->send_sge.lkey ^= 0xff00)
WRONG_MESSAGE(mr_gone, 64, if (!ibv_dereg_mr(rig->a.mr)) rig->a.n_mrs = 0)

WRONG_MESSAGE(other_pd, 64,
	      rig->send_sge.lkey =
		      add_foreign_mr(&rig->a, IBV_ACCESS_LOCAL_WRITE)->lkey)
WRONG_MESSAGE(sge_outside, 128, rig->send_sge.addr += BUFFER_BYTES - 64)
WRONG_SEND(read_into_read_only, IBV_WR_RDMA_READ, 64,
	   rig->send_sge.lkey = add_mr(&rig->a, PAGE, 0)->lkey)
WRONG_SEND(read_inline, IBV_WR_RDMA_READ, 16,
	   rig->send.send_flags |= IBV_SEND_INLINE)

/* ---- 对端的 receive ------------------------------------------------------- */

static void recv_too_small(struct rig *rig)
{
	post_recv(rig, 64);
	prepare_send(rig, IBV_WR_SEND, 128);
	try_send(rig);
}

/* 同一件事，从接收方看：rxe 给 2，规范说是 1。*/
static void recv_too_small_there(struct rig *rig)
{
	recv_too_small(rig);
	wait_recv(rig, WAIT_MS);
}

static void recv_not_writable(struct rig *rig)
{
	struct ibv_mr *mr = add_mr(&rig->b, PAGE, 0);

	rig->recv_sge = (struct ibv_sge){ .addr = (uintptr_t)rig->b.buf,
					  .length = 64,
					  .lkey = mr->lkey };
	send_message(rig, 64);
	wait_recv(rig, WAIT_MS);
}

WRONG_SEND(no_receive, IBV_WR_SEND, 64, (void)0)
WRONG_SEND(no_receive_for_imm, IBV_WR_RDMA_WRITE_WITH_IMM, 64, (void)0)

/* ---- 两端对不上 ------------------------------------------------------------ */

/* path_mtu 两端不同：SEND 侥幸成功，多包的 WRITE 被拒。*/
WRONG_PLAN(mtu_differs, IBV_WR_RDMA_WRITE, 8000,
	   rig->a.plan.path_mtu = IBV_MTU_2048;
	   rig->b.plan.path_mtu = IBV_MTU_1024)

/* ---- 没有 ACK ------------------------------------------------------------- */

WRONG_PLAN(wrong_qpn, IBV_WR_SEND, 64, rig->a.plan.dest_qp_num += 1000)

static void psn_differs(struct rig *rig)
{
	rig->b.plan.rq_psn += 500;
	connect_ends(rig);
	send_message(rig, 64);
}

/* 对端还没准备好。只凭这一端能看到的来解释：对端的 QP 就在本机内核里。*/
static void send_one_sided(struct rig *rig)
{
	const struct explain_request request = { .send = &rig->send };

	prepare_send(rig, IBV_WR_SEND, 64);
	if (!try_post(rig))
		wait_for(rig, rig->a.qp, rig->a.send_cq, &request, WAIT_MS);
}

#define ONE_SIDED(function, before)           \
	static void function(struct rig *rig) \
	{                                     \
		before;                       \
		send_one_sided(rig);          \
	}
ONE_SIDED(peer_in_init, connect_end(&rig->a))
ONE_SIDED(peer_in_err, do_step(&rig->b, step_state(IBV_QPS_ERR)))
ONE_SIDED(peer_gone, errno = ibv_destroy_qp(rig->b.qp))
ONE_SIDED(peer_expects_another, rig->b.plan.dest_qp_num += 1000;
	  connect_ends(rig))
ONE_SIDED(psn_one_sided, rig->b.plan.rq_psn += 500; connect_ends(rig))

/* ---- 后果 ----------------------------------------------------------------- */

/* 第一个坏的没人看，只看见后面一串 flush。*/
static void only_flushes(struct rig *rig)
{
	struct ibv_wc wc;

	prepare_send(rig, IBV_WR_RDMA_WRITE, 64);
	rig->send.wr.rdma.rkey ^= 0xff00;
	if (try_post(rig))
		return;
	prepare_send(rig, IBV_WR_SEND, 64);
	if (try_post(rig) || !next_wc(rig->a.send_cq, &wc, WAIT_MS))
		return;
	wait_send(rig, WAIT_MS);
}

WRONG_PLAN(uc_read, IBV_WR_RDMA_READ, 64, make_qps(rig, IBV_QPT_UC, false))

const struct fault completion_faults[] = {
	ROW("lkey-wrong", "a send with an lkey that belongs to no MR",
	    "wc.status 2 ", "lkey-unknown", CONNECTED, lkey_wrong),
	ROW("mr-deregistered", "the MR is gone before the send", "wc.status 2 ",
	    "lkey-unknown", CONNECTED, mr_gone),
	ROW("lkey-of-another-pd", "the MR is registered in another PD",
	    "wc.status 2 ", "lkey-other-pd", CONNECTED, other_pd),
	ROW("sge-outside-mr", "a send reaches over the end of its MR",
	    "wc.status 4 ", "sge-outside-mr", CONNECTED, sge_outside),
	ROW("read-into-read-only-mr", "a READ into an MR without LOCAL_WRITE",
	    "wc.status 4 ", "mr-not-writable", CONNECTED, read_into_read_only),
	ROW("read-inline", "a READ with IBV_SEND_INLINE", "wc.status 4 ",
	    "inline-read", CONNECTED, read_inline),
	ROW("recv-too-small", "128 bytes sent into a receive of 64",
	    "wc.status 11 ", "recv-too-small", CONNECTED, recv_too_small),
	ROW("recv-too-small-receiver", "the same, as the receiver sees it",
	    "wc.status 2 ", "recv-too-small", CONNECTED, recv_too_small_there),
	ROW("recv-mr-not-writable", "a receive into an MR without LOCAL_WRITE",
	    "wc.status 2 ", "mr-not-writable", CONNECTED, recv_not_writable),
	ROW("rnr", "the peer has posted no receive", "wc.status 13 ",
	    "no-receive-posted", CONNECTED, no_receive),
	ROW("rnr-write-with-imm",
	    "WRITE with immediate, and the peer has posted no receive",
	    "wc.status 13 ", "no-receive-posted", CONNECTED,
	    no_receive_for_imm),
	ROW("mtu-differs", "path_mtu 2048 here, 1024 there",
	    "wc.status (9|12) ", "mtu-differs", RESET, mtu_differs),
	ROW("wrong-qpn", "dest_qp_num is not the peer's", "wc.status 12 ",
	    "qpn-differs", RESET, wrong_qpn),
	ROW("psn-differs", "rq_psn is not the peer's sq_psn", "wc.status 12 ",
	    "psn-differs", RESET, psn_differs),
	ROW("psn-differs-one-sided", "the same, as one side alone can see it",
	    "wc.status 12 ", "psn-differs", RESET, psn_one_sided),
	ROW("peer-in-init", "a send before the peer is in RTR", "wc.status 12 ",
	    "peer-not-ready", INIT, peer_in_init),
	ROW("peer-in-err", "the peer's QP went to ERR", "wc.status 12 ",
	    "peer-in-error", CONNECTED, peer_in_err),
	ROW("peer-gone", "the peer has destroyed its QP", "wc.status 12 ",
	    "peer-qp-absent", CONNECTED, peer_gone),
	ROW("peer-expects-another", "the peer was given another QPN than mine",
	    "wc.status 12 ", "peer-expects-another", RESET,
	    peer_expects_another),
	ROW("only-flushes", "the first bad completion is ignored",
	    "wc.status 5 ", "WR_FLUSH_ERR", CONNECTED, only_flushes),
	ROW("uc-read", "a READ on a UC QP", "wc.status 2 ",
	    "opcode-not-for-type", OPEN, uc_read),
	{ 0 },
};

// SPDX-License-Identifier: MIT
/*
 * one_sided.c —— WRITE、READ、atomic：对端的内存不让进
 *
 * 对端的程序什么也没做错、什么也不知道：拒绝的是它的设备，两道门（MR 的权限、QP 的权限）
 * 任何一道都行。发起方只拿到 9 或 10，哪一道门、为什么，要自己查。
 */
#include "faults.h"

/* ---- 钥匙 ------------------------------------------------------------------ */

WRONG_SEND(rkey_wrong, IBV_WR_RDMA_WRITE, 64, rig->send.wr.rdma.rkey ^= 0xff00)
/* 把自己的 rkey 当成对端的：本机注册的 MR，对端的设备没听说过。*/
WRONG_SEND(rkey_mine, IBV_WR_RDMA_READ, 64,
	   rig->send.wr.rdma.rkey = rig->a.mr->rkey)
WRONG_SEND(
	rkey_gone, IBV_WR_RDMA_READ, 64, if (!ibv_dereg_mr(rig->b.mr)) {
		rig->b.mr = NULL;
		rig->b.n_mrs = 0;
	})

WRONG_SEND(rkey_other_pd, IBV_WR_RDMA_WRITE, 64,
	   rig->send.wr.rdma.rkey = add_foreign_mr(&rig->b, WRITABLE)->rkey)

/* ---- 地址与长度 ------------------------------------------------------------- */

WRONG_SEND(write_past_end, IBV_WR_RDMA_WRITE, 128,
	   rig->send.wr.rdma.remote_addr += BUFFER_BYTES - 64)
WRONG_SEND(read_before_start, IBV_WR_RDMA_READ, 64,
	   rig->send.wr.rdma.remote_addr--)
WRONG_SEND(address_zero, IBV_WR_RDMA_WRITE, 64,
	   rig->send.wr.rdma.remote_addr = 0)
WRONG_SEND(atomic_past_end, IBV_WR_ATOMIC_FETCH_AND_ADD, 8,
	   rig->send.wr.atomic.remote_addr += BUFFER_BYTES)
/* 长度两头都要够：WRITE 还没上线就被自己的设备拒绝，READ 由对端的设备拒绝。*/
#define TWO_GIB (UINT32_C(1) << 31)
WRONG_SEND(write_two_gib, IBV_WR_RDMA_WRITE, 64, rig->send_sge.length = TWO_GIB)
WRONG_SEND(read_two_gib, IBV_WR_RDMA_READ, 64, rig->send_sge.length = TWO_GIB)

/* ---- 第一道门：MR 的权限 ---------------------------------------------------- */

/* B 的又一个 MR 的 rkey，对端只有 @rights。*/
static uint32_t rkey_with(struct rig *rig, int rights)
{
	return add_mr(&rig->b, PAGE, IBV_ACCESS_LOCAL_WRITE | rights)->rkey;
}

WRONG_SEND(mr_lacks_write, IBV_WR_RDMA_WRITE, 64,
	   rig->send.wr.rdma.rkey = rkey_with(rig, IBV_ACCESS_REMOTE_READ))
WRONG_SEND(mr_lacks_read, IBV_WR_RDMA_READ, 64,
	   rig->send.wr.rdma.rkey = rkey_with(rig, IBV_ACCESS_REMOTE_WRITE))
/* READ 与 WRITE 都许可，也不等于 atomic 许可。*/
WRONG_SEND(mr_lacks_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8,
	   rig->send.wr.atomic.rkey = rkey_with(
		   rig, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE))

/* ---- 第二道门：QP 的权限 ---------------------------------------------------- */

WRONG_PLAN(qp_lacks_write, IBV_WR_RDMA_WRITE, 64,
	   rig->b.plan.qp_access_flags = IBV_ACCESS_REMOTE_READ)
WRONG_PLAN(qp_lacks_read, IBV_WR_RDMA_READ, 64,
	   rig->b.plan.qp_access_flags = IBV_ACCESS_REMOTE_WRITE)
WRONG_PLAN(qp_lacks_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD, 8,
	   rig->b.plan.qp_access_flags = IBV_ACCESS_REMOTE_READ |
					 IBV_ACCESS_REMOTE_WRITE)
WRONG_PLAN(read_depth_zero, IBV_WR_RDMA_READ, 64,
	   rig->b.plan.max_dest_rd_atomic = 0)
WRONG_PLAN(atomic_depth_zero, IBV_WR_ATOMIC_FETCH_AND_ADD, 8,
	   rig->b.plan.max_dest_rd_atomic = 0)

/* ---- memory window ---------------------------------------------------------- */

/* 在 B 的 QP 上做一个请求，等它完成；true：成功。*/
static bool done_at_b(struct rig *rig, struct ibv_send_wr *wr)
{
	const struct explain_request request = { .send = wr,
						 .local = rig->b.mrs,
						 .n_local = rig->b.n_mrs };
	struct ibv_send_wr *bad;
	int err = ibv_post_send(rig->b.qp, wr, &bad);

	if (!err)
		return wait_for(rig, rig->b.qp, rig->b.send_cq, &request,
				WAIT_MS);
	saw_error(rig, "ibv_post_send", err);
	rig->why = explain_post_send(rig->b.qp, bad, err);
	return false;
}

/* B 的 @length 个字节，底下的 MR 是一页，有 @mr_access；上面的 window 只许写。*/
static struct ibv_mw *window(struct rig *rig, int mr_access, uint64_t length)
{
	struct ibv_mr *mr =
		add_mr(&rig->b, PAGE, IBV_ACCESS_LOCAL_WRITE | mr_access);
	struct ibv_mw *mw = ibv_alloc_mw(rig->b.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW,
				    .send_flags = IBV_SEND_SIGNALED };

	if (!mw)
		return NULL;
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = mr,
		.addr = (uintptr_t)rig->b.buf,
		.length = length,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	if (!done_at_b(rig, &bind))
		return NULL;
	mw->rkey = bind.bind_mw.rkey;
	/* 对端看来，window 与 MR 没有区别：一把钥匙，一段地址，几样权限。*/
	rig->b.mrs[rig->b.n_mrs++] = (struct explain_mr){
		.pd = rig->b.pd,
		.addr = (uintptr_t)rig->b.buf,
		.length = length,
		.rkey = mw->rkey,
		.access = IBV_ACCESS_REMOTE_WRITE,
	};
	return mw;
}

FAULT(bind_refused, window(rig, 0, PAGE))
FAULT(bind_too_much, window(rig, IBV_ACCESS_MW_BIND, PAGE + 1))

#define AT_WINDOW(function, change)                                        \
	static void function(struct rig *rig)                              \
	{                                                                  \
		struct ibv_mw *mw = window(rig, IBV_ACCESS_MW_BIND, PAGE); \
                                                                           \
		if (!mw)                                                   \
			return;                                            \
		prepare_send(rig, IBV_WR_RDMA_WRITE, 64);                  \
		rig->send.wr.rdma.rkey = mw->rkey;                         \
		change;                                                    \
		try_send(rig);                                             \
	}
AT_WINDOW(window_end, rig->send.wr.rdma.remote_addr += PAGE)
AT_WINDOW(window_right, rig->send.opcode = IBV_WR_RDMA_READ)

static void close_window(struct rig *rig, const struct ibv_mw *mw)
{
	struct ibv_send_wr invalidate = { .opcode = IBV_WR_LOCAL_INV,
					  .send_flags = IBV_SEND_SIGNALED,
					  .invalidate_rkey = mw->rkey };

	if (done_at_b(rig, &invalidate))
		rig->b.n_mrs--;
}
AT_WINDOW(window_closed, close_window(rig, mw))

const struct fault one_sided_faults[] = {
	ROW("rkey-wrong", "a WRITE with an rkey that belongs to no MR",
	    "wc.status 10 ", "rkey-unknown", CONNECTED, rkey_wrong),
	ROW("rkey-of-my-own", "a READ with the rkey of one's own MR",
	    "wc.status 10 ", "own-rkey", CONNECTED, rkey_mine),
	ROW("rkey-deregistered", "the peer's MR is gone before the READ",
	    "wc.status 10 ", "rkey-unknown", CONNECTED, rkey_gone),
	ROW("rkey-of-another-pd", "the peer's MR is in another PD than its QP",
	    "wc.status 10 ", "rkey-other-pd", CONNECTED, rkey_other_pd),
	ROW("write-past-end", "a WRITE reaches over the end of the peer's MR",
	    "wc.status 10 ", "remote-outside-mr", CONNECTED, write_past_end),
	ROW("read-before-start", "a READ begins one byte before the peer's MR",
	    "wc.status 10 ", "remote-outside-mr", CONNECTED, read_before_start),
	ROW("remote-address-zero", "the address was never sent: a WRITE to 0",
	    "wc.status 10 ", "remote-outside-mr", CONNECTED, address_zero),
	ROW("atomic-past-end", "an atomic right behind the peer's MR",
	    "wc.status 10 ", "remote-outside-mr", CONNECTED, atomic_past_end),
	ROW("write-of-2-gib", "a WRITE of 2 GiB from an MR of 64 KiB",
	    "wc.status [24] ", "sge-outside-mr", CONNECTED, write_two_gib),
	ROW("read-of-2-gib", "a READ of 2 GiB from an MR of 64 KiB",
	    "wc.status 10 ", "remote-outside-mr", CONNECTED, read_two_gib),
	ROW("mr-lacks-remote-write", "a WRITE to an MR without REMOTE_WRITE",
	    "wc.status 10 ", "mr-lacks-right", CONNECTED, mr_lacks_write),
	ROW("mr-lacks-remote-read", "a READ of an MR without REMOTE_READ",
	    "wc.status 10 ", "mr-lacks-right", CONNECTED, mr_lacks_read),
	ROW("mr-lacks-remote-atomic",
	    "an atomic on an MR with REMOTE_READ and REMOTE_WRITE only",
	    "wc.status 10 ", "mr-lacks-right", CONNECTED, mr_lacks_atomic),
	ROW("qp-lacks-remote-write",
	    "the MR allows the WRITE, the QP's access flags do not",
	    "wc.status 9 ", "qp-lacks-right", RESET, qp_lacks_write),
	ROW("qp-lacks-remote-read",
	    "the MR allows the READ, the QP's access flags do not",
	    "wc.status 9 ", "qp-lacks-right", RESET, qp_lacks_read),
	ROW("qp-lacks-remote-atomic",
	    "the MR allows the atomic, the QP's access flags do not",
	    "wc.status 9 ", "qp-lacks-right", RESET, qp_lacks_atomic),
	ROW("read-refused", "a READ, and the peer has max_dest_rd_atomic 0",
	    "wc.status 9 ", "dest-rd-atomic-zero", RESET, read_depth_zero),
	ROW("atomic-refused",
	    "an atomic, and the peer has max_dest_rd_atomic 0", "wc.status 9 ",
	    "dest-rd-atomic-zero", RESET, atomic_depth_zero),
	ROW("window-on-mr-without-bind",
	    "a window is bound to an MR without MW_BIND", "wc.status 6 ",
	    "mr-lacks-bind", CONNECTED, bind_refused),
	ROW("window-outside-its-mr",
	    "a window is bound to more than the MR has", "wc.status 6 ",
	    "window-outside-mr", CONNECTED, bind_too_much),
	ROW("window-past-its-end", "a WRITE within the MR, past the window",
	    "wc.status 10 ", "remote-outside-mr", CONNECTED, window_end),
	ROW("window-lacks-right", "a READ through a window for WRITE",
	    "wc.status 10 ", "mr-lacks-right", CONNECTED, window_right),
	ROW("window-invalidated", "the peer has invalidated the window",
	    "wc.status 10 ", "rkey-unknown", CONNECTED, window_closed),
	{ 0 },
};

// SPDX-License-Identifier: MIT
/*
 * exchange.c —— 两端交换数据时的错误：字节序、截断、用错了自己的
 *
 * 单看每个值都像那么回事；ibv_modify_qp 多半照收。
 */
#include "faults.h"

#include <byteswap.h>

WRONG_STEP(qpn_swapped, step_rtr,
	   s.attr.dest_qp_num = bswap_32(s.attr.dest_qp_num))
WRONG_STEP(qpn_zero, step_rtr, s.attr.dest_qp_num = 0)
WRONG_STEP(psn_long, step_rtr, s.attr.rq_psn |= 0x5a000000)
WRONG_SEND(rkey_swapped, IBV_WR_RDMA_WRITE, 64,
	   rig->send.wr.rdma.rkey = bswap_32(rig->send.wr.rdma.rkey))
WRONG_SEND(
	addr_swapped, IBV_WR_RDMA_WRITE, 64,
	rig->send.wr.rdma.remote_addr = bswap_64(rig->send.wr.rdma.remote_addr))

/* 两个 MR，用了自己的那个 rkey。*/
WRONG_SEND(own_rkey, IBV_WR_RDMA_WRITE, 64,
	   rig->send.wr.rdma.rkey = add_mr(&rig->a, PAGE, WRITABLE)->rkey)

/* 把自己的 GID 当成了对端的：包又回到了自己的设备。*/
static void own_gid(struct rig *rig)
{
	/* 两个设备各数各的 QPN；号码若碰巧相同，包就真的有人收了。*/
	while (rig->a.qp->qp_num == rig->b.qp->qp_num)
		make_qp(&rig->b, IBV_QPT_RC, false);
	introduce(rig);
	rig->a.plan.ah_attr.grh.dgid = rig->a.gid;
	connect_ends(rig);
	prepare_send(rig, IBV_WR_SEND, 64);
	try_send(rig);
}

/* 对端重新建了 QP，这边却还拿着旧的 QPN。*/
static void old_qpn(struct rig *rig)
{
	uint32_t old = rig->b.qp->qp_num;

	ibv_destroy_qp(rig->b.qp);
	make_qp(&rig->b, IBV_QPT_RC, false);
	introduce(rig);
	rig->a.plan.dest_qp_num = old;
	connect_ends(rig);
	prepare_send(rig, IBV_WR_SEND, 64);
	try_send(rig);
}

const struct fault exchange_faults[] = {
	ROW("qpn-byte-order", "the QPN is swapped once too often",
	    "ibv_modify_qp: 0", "qpn-byte-order", INIT, qpn_swapped),
	ROW("qpn-zero", "RTR is done before the peer's data came",
	    "ibv_modify_qp: 0", "qpn-not-set", INIT, qpn_zero),
	ROW("psn-too-long", "a PSN of 32 bits", "ibv_modify_qp: 0",
	    "psn-too-long", INIT, psn_long),
	ROW("rkey-byte-order", "the rkey is not in host byte order",
	    "wc.status 10 ", "rkey-byte-order", CONNECTED, rkey_swapped),
	ROW("addr-byte-order", "the remote address is not in host byte order",
	    "wc.status 10 ", "addr-byte-order", CONNECTED, addr_swapped),
	ROW("own-rkey", "this side's own rkey instead of the peer's",
	    "wc.status 10 ", "own-rkey", CONNECTED, own_rkey),
	ROW("own-gid", "this side's own GID instead of the peer's",
	    "wc.status 12 ", "gid-differs", RESET, own_gid),
	ROW("old-qpn", "the peer made its QP anew, the QPN is the old one",
	    "wc.status 12 ", "qpn-differs", RESET, old_qpn),
	{ 0 },
};

// SPDX-License-Identifier: MIT
/*
 * one_sided.c —— 第 8 阶段：WRITE、READ、带 immediate 的 WRITE、原子操作、memory window
 *
 * SEND 说“给你”，落在哪里由对方定；单边操作说“放到你那里的这个地址”。地址与 rkey 是
 * 对端早先交出来的（第 4 阶段），之后它的程序就不再参与：不消耗 receive，没有
 * completion，CPU 也毫无察觉（在 rxe 上，“网卡”是对端的内核，用的还是它的 CPU）。
 *
 * 包里带着 RETH（地址、rkey、长度）。对端的设备逐项核对，任何一项不对就回 NAK：
 *
 *	QP  这条连接准不准做这种操作？          allow_remote()      否则 status 9
 *	MR  rkey 有没有、同不同 PD、在不在范围、
 *	    注册时给没给这个权限？              expose_memory()     否则 status 10
 *
 * 两道闸都要开。一旦被拒，两端的 QP 都进 ERR，而对端的程序仍然什么也不知道。
 */
#include "rdma_common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

static struct ibv_sge slot_sge(const struct rdma_resources *res, uint32_t slot,
			       uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)send_slot(res, slot),
				 .length = length,
				 .lkey = res->mr->lkey };
}

// region gates
int expose_memory(struct rdma_resources *res, void *addr, size_t size,
		  int access, struct ibv_mr **mr)
{
	/*
	 * 只授予必需的权限：rkey 一旦交出去，持有它的一方可以写这个 MR 的任何
	 * 位置，收回的办法只有 ibv_dereg_mr()（或者改用 window）。
	 *
	 * LOCAL_WRITE 总是需要的：REMOTE_WRITE 与 REMOTE_ATOMIC 没有它就是
	 * EINVAL，因为替对端写内存的是本地的设备。
	 */
	struct ibv_mr *made = ibv_reg_mr(res->pd, addr, size,
					 access | IBV_ACCESS_LOCAL_WRITE);

	if (!made)
		return reg_mr_failed(res->pd, addr, size, access, errno);
	*mr = made;
	return 0;
}

int allow_remote(struct rdma_resources *res, unsigned int access)
{
	/*
	 * INIT→INIT 与 RTS→RTS 都可以只改 ACCESS_FLAGS；RTR→RTR 不是合法的转
	 * 换。有很多对端时，就在这里按连接授予或收回权限：同一个 MR，这个 QP 能
	 * 写，那个不能。
	 */
	struct ibv_qp_attr attr = { .qp_state = res->qp->state,
				    .qp_access_flags = access };

	return modify_qp(res, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
}
// endregion gates

// region read
int post_read(struct rdma_resources *res, uint32_t slot, struct ibv_sge *into,
	      uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_READ(slot),
		.sg_list = into,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		/*
		 * 数据是否到齐，只有这个 CQE 能说明，所以 READ 总是 signaled。
		 */
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};

	return post_request(res, &wr);
}
// endregion read

// region write
int post_write(struct rdma_resources *res, uint32_t slot, uint32_t length,
	       uint64_t addr, uint32_t rkey, unsigned int flags)
{
	struct ibv_sge sge = slot_sge(res, slot, length);
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_WRITE(slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		/*
		 * 成功的 CQE 只说明对端的设备已经接收数据，并对它负责。它不说
		 * 明数据已经在对端的内存里，更不说明对端的程序已经看到。
		 */
		.send_flags = flags,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};

	return post_request(res, &wr);
}
// endregion write

// region write-imm
int post_write_imm(struct rdma_resources *res, uint32_t slot, uint32_t length,
		   uint64_t addr, uint32_t rkey, uint32_t imm,
		   unsigned int flags)
{
	struct ibv_sge sge = slot_sge(res, slot, length);
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_WRITE(slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = flags,
		/*
		 * 4 个字节，随最后一个包送到。字段是 big-endian，所以两端字节
		 * 序不同也不会错。
		 */
		.imm_data = htonl(imm),
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};

	/*
	 * 数据直接写到指定的地址，与 WRITE 相同。此外，对端用掉一个 receive
	 * （不写它的 buffer，也可以没有 buffer），得到一个 completion。
	 * completion 到了，数据就一定已经在内存里。没有 receive 的后果与 SEND
	 * 相同：RNR。
	 */
	return post_request(res, &wr);
}

uint32_t received_imm(const struct ibv_wc *wc)
{
	/* 只有 wc_flags 里有 IBV_WC_WITH_IMM 时，这个字段才有意义。*/
	return ntohl(wc->imm_data);
}
// endregion write-imm

// region atomics
static int post_atomic(struct rdma_resources *res, uint64_t wr_id,
		       enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey,
		       uint64_t compare_add, uint64_t swap)
{
	/*
	 * 旧值放进本地的这 8 个字节，与 READ 相同；所以它也占用一个
	 * max_rd_atomic。
	 */
	struct ibv_sge sge = slot_sge(res, WR_ID_SLOT(wr_id), 8);
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		/* 不知道旧值，就不知道是否成功：总是 signaled。*/
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { .remote_addr = addr,
			       .rkey = rkey,
			       .compare_add = compare_add,
			       .swap = swap },
	};

	return post_request(res, &wr);
}

int post_compare_swap(struct rdma_resources *res, uint32_t slot, uint64_t addr,
		      uint32_t rkey, uint64_t expected, uint64_t desired)
{
	/*
	 * 没有换成也是 SUCCESS：操作已经完成，只是条件不成立。返回的旧值等于
	 * expected，才说明换成了。
	 */
	return post_atomic(res, WR_ID_SWAP(slot), IBV_WR_ATOMIC_CMP_AND_SWP,
			   addr, rkey, expected, desired);
}

int post_fetch_add(struct rdma_resources *res, uint32_t slot, uint64_t addr,
		   uint32_t rkey, uint64_t add)
{
	/* 加负数就是加它的补码：64 位，溢出时回绕。*/
	return post_atomic(res, WR_ID_ADD(slot), IBV_WR_ATOMIC_FETCH_AND_ADD,
			   addr, rkey, add, 0);
}

uint64_t atomic_result(const struct rdma_resources *res, uint32_t slot)
{
	uint64_t before;

	memcpy(&before, send_slot(res, slot), sizeof(before));
	return before;
}
// endregion atomics

// region windows
int alloc_window(struct rdma_resources *res, struct ibv_mw **mw)
{
	const unsigned int type_2 =
		IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	const char *device = ibv_get_device_name(res->context->device);
	struct ibv_mw *made;

	if (!(res->device_attr.device_cap_flags & type_2))
		return no_support(device, "memory windows of type 2");
	made = ibv_alloc_mw(res->pd, IBV_MW_TYPE_2);
	if (!made)
		return call_failed(errno, "ibv_alloc_mw(%s, type 2)", device);
	*mw = made;
	return 0;
}

int post_bind_window(struct rdma_resources *res, uint32_t slot,
		     struct ibv_mw *mw, const struct ibv_mw_bind_info *part)
{
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_BIND(slot),
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw,
			     /*
			      * 低 8 位由程序决定：每次 bind 换一个值，旧的 key
			      * 就失效。
			      */
			     .rkey = ibv_inc_rkey(mw->rkey),
			     .bind_info = *part },
	};
	int rc = post_request(res, &wr);

	/*
	 * type 1 的 ibv_bind_mw() 由库更新 mw->rkey；type 2 要自己更新，下一次
	 * bind 和 invalidate 都用它来找到这个 window。
	 */
	if (!rc)
		mw->rkey = wr.bind_mw.rkey;
	return rc;
}

int post_invalidate(struct rdma_resources *res, uint32_t slot, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_INVALIDATE(slot),
		.opcode = IBV_WR_LOCAL_INV,
		/*
		 * 它完成之前，对端用旧 key 写的仍然有效；完成之后，一个字节也
		 * 写不进来。
		 */
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey,
	};

	return post_request(res, &wr);
}

int post_send_invalidate(struct rdma_resources *res, uint32_t slot,
			 uint32_t length, uint32_t rkey)
{
	struct ibv_sge sge = slot_sge(res, slot, length);
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_SEND(slot),
		.sg_list = &sge,
		.num_sge = 1,
		/*
		 * “已经用完，key 还给你”：一条消息完成两件事，对端不必再做
		 * LOCAL_INV。
		 */
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey,
	};

	if (!(res->device_attr.device_cap_flags &
	      IBV_DEVICE_MEM_MGT_EXTENSIONS))
		return no_support(ibv_get_device_name(res->context->device),
				  "SEND with invalidate");
	return post_request(res, &wr);
}

uint32_t invalidated_rkey(const struct ibv_wc *wc)
{
	/*
	 * 该看的是 IBV_WC_WITH_INV（1 << 3）。rxe（6.1 与 6.12）却把内核里的值 1 << 2
	 * 原样交给用户态，那一位在这里叫 IP_CSUM_OK；RC 上它别无用处，两个都认。
	 */
	if (wc->wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK))
		return wc->invalidated_rkey;
	return 0;
}
// endregion windows

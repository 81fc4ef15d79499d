// SPDX-License-Identifier: MIT
/*
 * request.c —— 从请求本身就能证明的原因：SGE、lkey、rkey、长度、opcode
 *
 * 设备只报一个 status，不说是哪个字段。可是 WR 是自己填的，MR 是自己注册的，对端的
 * addr/rkey/长度是它告诉我们的：把设备做过的核对再做一遍，错的那一个就找到了。
 */
#include "case.h"
#include "qp_table.h"

#include <byteswap.h>
#include <string.h>

#define MOST_SGES 64

const char *request_peer_name(const struct case_of *c)
{
	return c->rq->peer && c->rq->peer->name ? c->rq->peer->name
						: "the peer";
}

/* ---- 本端的 SGE ----------------------------------------------------------- */

static bool is_read(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

static bool covers(const struct explain_mr *mr, uint64_t addr, uint64_t length)
{
	return addr >= mr->addr && length <= mr->length &&
	       addr - mr->addr <= mr->length - length;
}

static struct explanation check_sge(const struct ibv_sge *sge, bool writes,
				    const struct ibv_pd *pd,
				    const struct explain_mr *mrs, size_t n,
				    const char *whose)
{
	const struct explain_mr *mr = NULL;

	for (size_t i = 0; i < n && !mr; i++)
		if (mrs[i].lkey == sge->lkey)
			mr = &mrs[i];
	if (!mr)
		return because("lkey-unknown", "0x%x\t%s\t%s", sge->lkey, whose,
			       EXPLAIN_ANY_KEY);
	if (pd && mr->pd && mr->pd != pd)
		return because("lkey-other-pd", "0x%x\t%s", sge->lkey, whose);
	if (!covers(mr, sge->addr, sge->length))
		return because("sge-outside-mr", "%s\t0x%jx\t%u\t0x%jx\t%ju",
			       whose, sge->addr, sge->length, mr->addr,
			       mr->length);
	if (writes && mr->access >= 0 && !(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return because("mr-not-writable", "%s", whose);
	return no_idea();
}

static struct explanation check_sges(const struct ibv_sge *sges, int n,
				     bool writes, const struct ibv_pd *pd,
				     const struct explain_mr *mrs, size_t n_mrs,
				     const char *whose)
{
	struct explanation why = no_idea();

	for (int i = 0; sges && mrs && i < n && i < MOST_SGES && !why.id; i++)
		why = check_sge(&sges[i], writes, pd, mrs, n_mrs, whose);
	return why;
}

struct explanation request_sges(const struct case_of *c)
{
	const struct explain_request *rq = c->rq;

	if (rq->recv)
		return check_sges(rq->recv->sg_list, rq->recv->num_sge, true,
				  c->qp->pd, rq->local, rq->n_local,
				  "the buffer of this receive");
	if (!rq->send || (rq->send->send_flags & IBV_SEND_INLINE))
		return no_idea();
	return check_sges(rq->send->sg_list, rq->send->num_sge,
			  is_read(rq->send->opcode), c->qp->pd, rq->local,
			  rq->n_local, "the buffer of this send");
}

struct explanation request_inline_read(const struct case_of *c)
{
	if (!c->rq->send || !is_read(c->rq->send->opcode) ||
	    !(c->rq->send->send_flags & IBV_SEND_INLINE))
		return no_idea();
	return because("inline-read");
}

struct explanation request_opcode(const struct case_of *c)
{
	enum ibv_wr_opcode opcode;
	bool allowed = true;

	if (!c->rq->send)
		return no_idea();
	opcode = c->rq->send->opcode;
	if (!strcmp(wr_opcode_name(opcode), "UNKNOWN"))
		return because("opcode-unknown");
	if (c->qp->qp_type == IBV_QPT_UC)
		allowed = !is_read(opcode);
	else if (c->qp->qp_type == IBV_QPT_UD)
		allowed =
			opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
	if (allowed)
		return no_idea();
	return because("opcode-not-for-type", "%s\t%s",
		       qp_type_name(c->qp->qp_type), wr_opcode_name(opcode));
}

/* 自己的 SGE 都对，receive 还是失败：只剩下“消息比它长”。*/
struct explanation request_recv_length(const struct case_of *c)
{
	uint64_t room;

	if (!c->rq->recv || !c->rq->local)
		return no_idea();
	room = bytes_of(c->rq->recv->sg_list, c->rq->recv->num_sge);
	if (c->qp->qp_type == IBV_QPT_UD)
		return because("ud-no-grh-room", "%ju", room);
	return because("recv-too-small", "this side\t%ju", room);
}

/* ---- 对端的内存 ----------------------------------------------------------- */

static bool remote_target(const struct ibv_send_wr *wr, uint64_t *addr,
			  uint32_t *rkey)
{
	if (is_atomic(wr->opcode)) {
		*addr = wr->wr.atomic.remote_addr;
		*rkey = wr->wr.atomic.rkey;
		return true;
	}
	*addr = wr->wr.rdma.remote_addr;
	*rkey = wr->wr.rdma.rkey;
	return wr->opcode == IBV_WR_RDMA_WRITE ||
	       wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
	       wr->opcode == IBV_WR_RDMA_READ;
}

static int right_for(enum ibv_wr_opcode opcode, const char **name)
{
	if (is_atomic(opcode)) {
		*name = "REMOTE_ATOMIC";
		return IBV_ACCESS_REMOTE_ATOMIC;
	}
	if (opcode == IBV_WR_RDMA_READ) {
		*name = "REMOTE_READ";
		return IBV_ACCESS_REMOTE_READ;
	}
	*name = "REMOTE_WRITE";
	return IBV_ACCESS_REMOTE_WRITE;
}

/* 没有一个 MR 是这个 rkey。它像什么？*/
static struct explanation foreign_rkey(const struct case_of *c, uint32_t rkey)
{
	const struct explain_request *rq = c->rq;

	for (size_t i = 0; i < rq->n_remote; i++) {
		if (bswap_32(rkey) == rq->remote[i].rkey)
			return because("rkey-byte-order", "0x%x\t%s\t0x%x",
				       rkey, request_peer_name(c),
				       rq->remote[i].rkey);
		/* 对端只说了 rkey 的，lkey 是 0：不知道 */
		if (rkey && rkey == rq->remote[i].lkey)
			return because("lkey-for-rkey", "0x%x\t%s\t0x%x", rkey,
				       request_peer_name(c),
				       rq->remote[i].rkey);
	}
	for (size_t i = 0; i < rq->n_local; i++)
		if (rkey && rkey == rq->local[i].rkey)
			return because("own-rkey", "0x%x\t%s", rkey,
				       request_peer_name(c));
	return because("rkey-unknown", "0x%x\t%s\t%s", rkey,
		       request_peer_name(c), EXPLAIN_ANY_KEY);
}

/* 不在 MR 里的地址，像是什么。*/
static const char *what_address(const struct case_of *c,
				const struct explain_mr *mr, uint64_t addr,
				uint64_t length)
{
	if (!(addr >> 32) && covers(mr, (mr->addr >> 32 << 32) | addr, length))
		return ": it is the lower half of an address there, so 64 bits "
		       "were cut to 32";
	if (addr < mr->length)
		return ": it looks like an offset into that MR";
	for (size_t i = 0; i < c->rq->n_local; i++)
		if (covers(&c->rq->local[i], addr, length))
			return ": it is an address of this side's own memory";
	return "";
}

struct explanation request_remote(const struct case_of *c)
{
	const struct explain_request *rq = c->rq;
	const struct explain_mr *mr = NULL;
	const char *right;
	uint64_t addr, length;
	uint32_t rkey;
	int bit;

	if (!rq->send || !remote_target(rq->send, &addr, &rkey))
		return no_idea();
	if (is_atomic(rq->send->opcode) && addr % 8)
		return because("atomic-misaligned", "0x%jx", addr);
	if (!rq->remote)
		return no_idea();
	for (size_t i = 0; i < rq->n_remote && !mr; i++)
		if (rq->remote[i].rkey == rkey)
			mr = &rq->remote[i];
	if (!mr)
		return foreign_rkey(c, rkey);
	if (rq->peer_pd && mr->pd && mr->pd != rq->peer_pd)
		return because("rkey-other-pd", "0x%x\t%s", rkey,
			       request_peer_name(c));
	/* 设备也是先看权限，再看范围；没有任何远端权限的 MR，rxe 给的 rkey 是 0 */
	bit = right_for(rq->send->opcode, &right);
	if (mr->access >= 0 && !(mr->access & bit))
		return because("mr-lacks-right", "%s\t%s", request_peer_name(c),
			       right);
	length = is_atomic(rq->send->opcode)
			 ? 8
			 : bytes_of(rq->send->sg_list, rq->send->num_sge);
	if (!covers(mr, addr, length) && covers(mr, bswap_64(addr), length))
		return because("addr-byte-order", "0x%jx", addr);
	if (!covers(mr, addr, length))
		return because("remote-outside-mr",
			       "0x%jx\t%ju\t%s\t0x%jx\t%ju\t%s", addr, length,
			       request_peer_name(c), mr->addr, mr->length,
			       what_address(c, mr, addr, length));
	return no_idea();
}

/* window 只在那个 MR 肯让的时候才能 bind：要有 MW_BIND，而且不能伸出去。*/
struct explanation request_window(const struct case_of *c)
{
	const struct explain_request *rq = c->rq;
	const struct ibv_mw_bind_info *part;

	if (!rq->send || rq->send->opcode != IBV_WR_BIND_MW ||
	    !rq->send->bind_mw.bind_info.mr)
		return no_idea();
	part = &rq->send->bind_mw.bind_info;
	for (size_t i = 0; i < rq->n_local; i++) {
		const struct explain_mr *mr = &rq->local[i];

		if (mr->lkey != part->mr->lkey)
			continue;
		if (mr->access >= 0 && !(mr->access & IBV_ACCESS_MW_BIND))
			return because("mr-lacks-bind", "0x%x", mr->lkey);
		if (!covers(mr, part->addr, part->length))
			return because("window-outside-mr",
				       "0x%jx\t%ju\t0x%jx\t%ju", part->addr,
				       part->length, mr->addr, mr->length);
	}
	return no_idea();
}

struct explanation request_peer_access(const struct case_of *c)
{
	const struct explain_side *peer = c->rq->peer;
	const char *right;
	uint64_t addr;
	uint32_t rkey;
	int bit;

	if (!peer || !c->rq->send || !remote_target(c->rq->send, &addr, &rkey))
		return no_idea();
	bit = right_for(c->rq->send->opcode, &right);
	if ((peer->attr_mask & IBV_QP_ACCESS_FLAGS) &&
	    !(peer->attr.qp_access_flags & (unsigned int)bit))
		return because("qp-lacks-right", "%s\t%s", peer->name, right);
	if (is_read(c->rq->send->opcode) &&
	    (peer->attr_mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
	    !peer->attr.max_dest_rd_atomic)
		return because("dest-rd-atomic-zero", "%s", peer->name);
	return no_idea();
}

struct explanation request_peer_recv(const struct case_of *c)
{
	const struct ibv_recv_wr *recv = c->rq->peer_recv;
	struct explanation why;
	uint64_t room, length;

	if (!recv || !c->rq->send)
		return no_idea();
	room = bytes_of(recv->sg_list, recv->num_sge);
	length = bytes_of(c->rq->send->sg_list, c->rq->send->num_sge);
	if (length > room) {
		why = because("recv-too-small", "%s\t%ju", request_peer_name(c),
			      room);
		also_seen(&why, "message", "%ju", length);
		return why;
	}
	return check_sges(recv->sg_list, recv->num_sge, true, NULL,
			  c->rq->remote, c->rq->n_remote,
			  "the buffer of the peer's receive");
}

// SPDX-License-Identifier: MIT
/*
 * post.c —— ibv_post_send、ibv_post_recv 为什么失败
 *
 * post 是用户态的活：provider 自己查 WR（SGE 个数、inline 长度、atomic 的对齐），
 * 再查环里还有没有位置；QP 的状态则要等按门铃进了内核才查。两个坑：
 *   - rxe 上因状态太早而被拒的 send 仍留在环里，到了 RTS 会跟着下一次门铃一起
 *     发出去；此时 *bad_wr 是 NULL。绝大多数物理网卡这时返回 0。
 *   - ENOMEM 与内存无关：是队列满了。
 */
#include "parts.h"
#include "qp_table.h"

#include <stdio.h>

#define ATOMIC_BYTES 8

struct posted {
	struct ibv_qp *qp;
	const struct ibv_send_wr *wr;
	bool known;
	struct ibv_qp_attr now; /* state and caps, from the kernel */
	unsigned long long bytes;
};

static struct posted look_at(struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	struct posted p = { .qp = qp, .wr = wr };
	struct ibv_qp_init_attr init;

	p.known = peek_at_qp(qp, &p.now, IBV_QP_STATE | IBV_QP_CAP, &init);
	/* 有的 provider 只填 init_attr.cap。*/
	if (p.known && !p.now.cap.max_send_sge && !p.now.cap.max_recv_sge)
		p.now.cap = init.cap;
	p.bytes = wr ? bytes_of(wr->sg_list, wr->num_sge) : 0;
	return p;
}

static struct explanation explain_post(int err)
{
	return err == EINVAL ? because("post-arguments") : no_idea();
}

struct explanation explain_null_ah(void)
{
	return because("ah-null");
}

struct explanation explain_wr_cycle(void)
{
	return because("wr-list-cycle");
}

static struct explanation check_sges(int wanted, uint32_t limit,
				     const char *whose, const char *cap)
{
	if (wanted >= 0 && (uint32_t)wanted <= limit)
		return no_idea();
	return because("too-many-sges", "%d\t%s\t%s\t%u", wanted, whose, cap,
		       limit);
}

static struct explanation check_inline(const struct posted *p)
{
	if (!(p->wr->send_flags & IBV_SEND_INLINE))
		return no_idea();
	if (p->wr->opcode == IBV_WR_RDMA_READ)
		return because("inline-read");
	if (p->bytes <= p->now.cap.max_inline_data)
		return no_idea();
	return because("inline-too-long", "%llu\t%u", p->bytes,
		       p->now.cap.max_inline_data);
}

static struct explanation check_atomic(const struct posted *p)
{
	unsigned long long addr;

	if (!is_atomic(p->wr->opcode))
		return no_idea();
	addr = p->wr->wr.atomic.remote_addr;
	if (addr % ATOMIC_BYTES)
		return because("atomic-misaligned", "0x%llx", addr);
	if (p->bytes < ATOMIC_BYTES)
		return because("atomic-short", "%llu", p->bytes);
	return no_idea();
}

static struct explanation check_send_state(const struct posted *p)
{
	struct explanation why;

	if (!p->known || p->now.qp_state >= IBV_QPS_RTS)
		return no_idea();
	why = because("send-too-early", "%s", qp_state_name(p->now.qp_state));
	also_seen(&why, "qp-state", "%s\t%s", qp_state_name(p->now.qp_state),
		  qp_state_name(p->qp->state));
	return why;
}

static struct explanation full(const char *queue, uint32_t limit,
			       const struct posted *p)
{
	struct explanation why = because("queue-full", "%s\t%u", queue, limit);

	if (p->known && p->now.qp_state != IBV_QPS_RTS)
		also_seen(&why, "qp-stopped", "%s",
			  qp_state_name(p->now.qp_state));
	return why;
}

struct explanation explain_post_send(struct ibv_qp *qp,
				     const struct ibv_send_wr *wr, int err)
{
	KEEP_ERRNO;
	struct explanation why = no_idea();
	struct posted p;

	if (!explain_is_on())
		return why;
	p = look_at(qp, wr);
	if (err == ENOMEM)
		return full("send", p.now.cap.max_send_wr, &p);
	if (err != EINVAL || !wr || !p.known)
		return explain_post(err);
	why = check_sges(wr->num_sge, p.now.cap.max_send_sge, "QP",
			 "max_send_sge");
	if (!why.id)
		why = check_inline(&p);
	if (!why.id)
		why = check_atomic(&p);
	if (!why.id)
		why = check_send_state(&p);
	if (!why.id)
		why = because("driver-refused", "%s, flags 0x%x, %s QP",
			      wr_opcode_name(wr->opcode), wr->send_flags,
			      qp_type_name(qp->qp_type));
	return why;
}

struct explanation explain_post_recv(struct ibv_qp *qp,
				     const struct ibv_recv_wr *wr, int err)
{
	KEEP_ERRNO;
	struct explanation why;
	struct posted p;

	if (!explain_is_on())
		return no_idea();
	p = look_at(qp, NULL);
	if (err == ENOMEM)
		return full("receive", p.now.cap.max_recv_wr, &p);
	if (err != EINVAL || !wr || !p.known)
		return explain_post(err);
	if (p.now.qp_state == IBV_QPS_RESET) {
		why = because("recv-too-early");
		also_seen(&why, "qp-state", "RESET\t%s",
			  qp_state_name(qp->state));
		return why;
	}
	if (qp->srq)
		return because("qp-has-srq");
	why = check_sges(wr->num_sge, p.now.cap.max_recv_sge, "QP",
			 "max_recv_sge");
	return why.id ? why : explain_post(err);
}

struct explanation explain_post_srq_recv(struct ibv_srq *srq,
					 const struct ibv_recv_wr *wr, int err)
{
	KEEP_ERRNO;
	struct explanation why = no_idea();
	struct ibv_srq_attr attr;

	if (!explain_is_on())
		return why;
	if (ibv_query_srq(srq, &attr))
		return explain_post(err);
	if (err == ENOMEM)
		return because("queue-full", "receive\t%u", attr.max_wr);
	if (err == EINVAL && wr)
		why = check_sges(wr->num_sge, attr.max_sge, "SRQ", "max_sge");
	return why.id ? why : explain_post(err);
}

// SPDX-License-Identifier: MIT
/*
 * post.c —— ibv_post_send、ibv_post_recv 为什么失败
 *
 * post 是用户态的活：provider 自己查 WR（SGE 个数、inline 长度、atomic 的对齐），
 * 再查环里还有没有位置；QP 的状态则要等按门铃进了内核才查。两个坑：
 *   - rxe 上因状态太早而被拒的 send 仍留在环里，到了 RTS 会跟着下一次门铃一起
 *     发出去；此时 *bad_wr 是 NULL。绝大多数真网卡这时返回 0。
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
	switch (err) {
	case EINVAL:
		return because("post-arguments",
			       "query the QP's state with ibv_query_qp; on rxe "
			       "the refused send stays in the ring and runs "
			       "after RTS",
			       "the QP is in too early a state (receives need "
			       "INIT, sends need RTS), or num_sge or an inline "
			       "length is too large");
	case ENOMEM:
		return because("queue-full",
			       "poll completions before posting more; "
			       "unsignaled sends are freed only by a later "
			       "signaled one",
			       "the work queue is full");
	}
	return no_idea();
}

struct explanation explain_null_ah(void)
{
	return because("ah-null",
		       "make the address handle with ibv_create_ah before the "
		       "first post, and look whether that gave NULL",
		       "wr.ud.ah is NULL: a datagram needs the address to go "
		       "to, and the driver reads it without a check");
}

struct explanation explain_wr_cycle(void)
{
	return because("wr-list-cycle",
		       "set wr.next to NULL in the last request of each list",
		       "the list of work requests leads back into itself "
		       "through wr.next: the driver went round until the queue "
		       "was full");
}

static struct explanation check_sges(int wanted, uint32_t limit,
				     const char *whose, const char *cap)
{
	if (wanted >= 0 && (uint32_t)wanted <= limit)
		return no_idea();
	return because("too-many-sges",
		       "ask for more in init.cap at ibv_create_qp, or split "
		       "the request",
		       "num_sge %d is above the %s's %s %u", wanted, whose, cap,
		       limit);
}

static struct explanation check_inline(const struct posted *p)
{
	if (!(p->wr->send_flags & IBV_SEND_INLINE))
		return no_idea();
	if (p->wr->opcode == IBV_WR_RDMA_READ)
		return because("inline-read", "leave IBV_SEND_INLINE out",
			       "an RDMA READ sends no data, so there is "
			       "nothing to inline");
	if (p->bytes <= p->now.cap.max_inline_data)
		return no_idea();
	return because("inline-too-long",
		       "leave IBV_SEND_INLINE out for long messages; the "
		       "limit is in init.cap after ibv_create_qp",
		       "%llu bytes inline are above the QP's max_inline_data "
		       "%u",
		       p->bytes, p->now.cap.max_inline_data);
}

static struct explanation check_atomic(const struct posted *p)
{
	unsigned long long addr;

	if (!is_atomic(p->wr->opcode))
		return no_idea();
	addr = p->wr->wr.atomic.remote_addr;
	if (addr % ATOMIC_BYTES)
		return because("atomic-misaligned", "align the word on 8 bytes",
			       "the remote address 0x%llx of an atomic is not "
			       "a multiple of 8",
			       addr);
	if (p->bytes < ATOMIC_BYTES)
		return because("atomic-short", "give it an SGE of 8 bytes",
			       "an atomic brings back 8 bytes, and its SGEs "
			       "have room for %llu",
			       p->bytes);
	return no_idea();
}

static struct explanation check_send_state(const struct posted *p)
{
	struct explanation why;

	if (!p->known || p->now.qp_state >= IBV_QPS_RTS)
		return no_idea();
	why = because("send-too-early",
		      "do not post it a second time: on rxe the refused send "
		      "stays in the ring and runs with the first one after RTS",
		      "the QP is in %s, and sends need RTS",
		      qp_state_name(p->now.qp_state));
	also_seen(&why, "the kernel has the QP in %s, the library remembers %s",
		  qp_state_name(p->now.qp_state), qp_state_name(p->qp->state));
	return why;
}

static struct explanation full(const char *queue, uint32_t limit,
			       const struct posted *p, const char *next)
{
	struct explanation why =
		because("queue-full", next,
			"the %s queue is full: %u requests are outstanding",
			queue, limit);

	if (p->known && p->now.qp_state != IBV_QPS_RTS)
		also_seen(&why, "the QP is in %s, where it works off nothing",
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
		return full("send", p.now.cap.max_send_wr, &p,
			    "poll the send CQ before posting more, and signal "
			    "at least every half queue: unsignaled sends are "
			    "freed only by the completion of a later signaled "
			    "one");
	if (err != EINVAL || !wr || !p.known)
		return explain_post(err);
	why = check_sges(wr->num_sge, p.now.cap.max_send_sge, "QP",
			 "max_send_sge");
	if (!why.cause[0])
		why = check_inline(&p);
	if (!why.cause[0])
		why = check_atomic(&p);
	if (!why.cause[0])
		why = check_send_state(&p);
	if (!why.cause[0])
		why = because("driver-refused",
			      "compare opcode and flags with ibv_post_send(3) "
			      "and the QP's type",
			      "state, SGEs and inline length are right, so the "
			      "driver does not take %s with flags 0x%x on a QP "
			      "of type %s",
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
		return full("receive", p.now.cap.max_recv_wr, &p,
			    "wait for receive completions before posting "
			    "more, or ask for a larger max_recv_wr");
	if (err != EINVAL || !wr || !p.known)
		return explain_post(err);
	if (p.now.qp_state == IBV_QPS_RESET) {
		why = because("recv-too-early",
			      "bring the QP to INIT first, then post receives, "
			      "then tell the peer that you are ready",
			      "the QP is in RESET, and receives need INIT");
		also_seen(&why, "the library remembers %s",
			  qp_state_name(qp->state));
		return why;
	}
	if (qp->srq)
		return because("qp-has-srq", "use ibv_post_srq_recv",
			       "the QP takes its receives from an SRQ");
	why = check_sges(wr->num_sge, p.now.cap.max_recv_sge, "QP",
			 "max_recv_sge");
	return why.cause[0] ? why : explain_post(err);
}

struct explanation explain_post_srq_recv(struct ibv_srq *srq,
					 const struct ibv_recv_wr *wr, int err)
{
	KEEP_ERRNO;
	struct explanation why = no_idea();
	struct ibv_srq_attr attr;

	if (!explain_is_on())
		return why;
	if (err == EINVAL && wr && !ibv_query_srq(srq, &attr))
		why = check_sges(wr->num_sge, attr.max_sge, "SRQ", "max_sge");
	return why.cause[0] ? why : explain_post(err);
}

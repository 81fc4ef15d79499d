// SPDX-License-Identifier: MIT
/*
 * accepted.c —— 内核收下了、以后却会出事的值
 *
 * 最难查的错误是不报错的错误：ibv_modify_qp 返回 0，几秒之后一个 SEND 没有回音。
 * 这里的每一行都在 rxe 上实测过：modify 成功，后果写在 cause 里。物理网卡对其中几个
 * 会回 EINVAL（例如 mlx5 对 path_mtu 0），所以代码“在 rxe 上能跑”并不说明它是对的。
 *
 * 后半部分比较一条连接的两端：每一端的值单独看都合法，合起来才看得出错。
 */
#include "parts.h"
#include "qp_table.h"

#include <byteswap.h>
#include <string.h>

#define MAX_24_BITS 0xffffffu
#define RETRY_MAX   7 /* 3 位；IBTA：7 次。rnr_retry 的 7 才是“无限” */
#define RNR_TIMERS  31
#define HALF_PSN    0x800000u

struct accepted {
	struct ibv_qp *qp;
	const struct ibv_qp_attr *attr;
	int mask;
	enum ibv_qp_state before;
	bool known;
	struct ibv_qp_attr now; /* after the call, from the kernel */
	bool rxe;
	unsigned int active_mtu; /* 0: not known */
};

struct explanation explain_swapped_qpn(uint32_t qpn)
{
	uint32_t swapped = bswap_32(qpn);

	/* QPN 只有 24 位，所以反过来的 QPN 最低字节必为 0。*/
	if (qpn <= MAX_24_BITS || swapped > MAX_24_BITS || !swapped)
		return no_idea();
	return because("qpn-byte-order", "0x%x\t0x%x", qpn, swapped);
}

static struct explanation check_nothing_asked(const struct accepted *a)
{
	const struct qp_transition *row =
		qp_transition(a->qp->qp_type, a->before, a->before);
	char bits[256];

	if (!a->mask)
		return because("mask-empty");
	if ((a->mask & IBV_QP_STATE) || (a->mask & IBV_QP_CUR_STATE) ||
	    (row && !(a->mask & ~(row->required | row->optional))))
		return no_idea();
	return because("state-bit-forgotten", "%s\t%s",
		       qp_mask_text(bits, sizeof(bits), a->mask),
		       qp_state_name(a->before));
}

static struct explanation check_claim(const struct accepted *a)
{
	if (!(a->mask & IBV_QP_CUR_STATE) || a->attr->cur_qp_state == a->before)
		return no_idea();
	return because("cur-state-lies", "%s\t%s",
		       qp_state_name(a->attr->cur_qp_state),
		       qp_state_name(a->before));
}

static struct explanation check_qpn(const struct accepted *a)
{
	uint32_t qpn = a->attr->dest_qp_num;
	struct explanation why = explain_swapped_qpn(qpn);

	if (!(a->mask & IBV_QP_DEST_QPN))
		return no_idea();
	if (why.id)
		return why;
	if (qpn > MAX_24_BITS)
		return because("qpn-too-long", "0x%x", qpn);
	if (qpn <= 1)
		return because("qpn-not-set", "%u", qpn);
	return no_idea();
}

static struct explanation check_psn(const struct accepted *a)
{
	bool rq = (a->mask & IBV_QP_RQ_PSN) && a->attr->rq_psn > MAX_24_BITS;
	bool sq = (a->mask & IBV_QP_SQ_PSN) && a->attr->sq_psn > MAX_24_BITS;
	uint32_t psn = rq ? a->attr->rq_psn : a->attr->sq_psn;

	if (!rq && !sq)
		return no_idea();
	return because("psn-too-long", "%s\t0x%x\t0x%x",
		       rq ? "rq_psn" : "sq_psn", psn, psn & MAX_24_BITS);
}

static struct explanation check_path_mtu(const struct accepted *a)
{
	unsigned int mtu = a->attr->path_mtu;

	if (!(a->mask & IBV_QP_PATH_MTU))
		return no_idea();
	if (!mtu_bytes(mtu))
		return because("path-mtu-not-enum", "%u\t%s", mtu,
			       mtu >= 256 ? " (it looks like bytes)" : "");
	if (!a->active_mtu || mtu_bytes(mtu) <= a->active_mtu)
		return no_idea();
	return because("path-mtu-above-active", "%u\t%u", mtu_bytes(mtu),
		       a->active_mtu);
}

static struct explanation check_retry(const struct accepted *a)
{
	unsigned int count = a->attr->retry_cnt;

	if (!(a->mask & IBV_QP_RETRY_CNT))
		return no_idea();
	if (count > RETRY_MAX)
		return because("retry-too-large", "%u", count);
	if (count < RETRY_MAX || !a->rxe)
		return no_idea();
	return because("retry-forever");
}

static struct explanation check_timeout(const struct accepted *a)
{
	if (!(a->mask & IBV_QP_TIMEOUT) || a->attr->timeout)
		return no_idea();
	return because("timeout-zero");
}

static struct explanation check_rnr(const struct accepted *a)
{
	if ((a->mask & IBV_QP_RNR_RETRY) && a->attr->rnr_retry > RETRY_MAX)
		return because("rnr-retry-too-large", "%u", a->attr->rnr_retry);
	if ((a->mask & IBV_QP_MIN_RNR_TIMER) &&
	    a->attr->min_rnr_timer > RNR_TIMERS)
		return because("rnr-timer-too-large", "%u\t%u",
			       a->attr->min_rnr_timer,
			       a->attr->min_rnr_timer & RNR_TIMERS);
	return no_idea();
}

static struct explanation check_rd_atomic(const struct accepted *a)
{
	if ((a->mask & IBV_QP_MAX_QP_RD_ATOMIC) && !a->attr->max_rd_atomic)
		return because("rd-atomic-zero");
	if ((a->mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
	    !a->attr->max_dest_rd_atomic)
		return because("dest-rd-atomic-zero", "this QP");
	return no_idea();
}

static struct explanation check_gid_type(const struct accepted *a)
{
	const struct ibv_ah_attr *ah = &a->attr->ah_attr;
	struct ibv_gid_entry entry;

	if (!(a->mask & IBV_QP_AV) || !ah->is_global ||
	    ibv_query_gid_ex(a->qp->context, ah->port_num, ah->grh.sgid_index,
			     &entry, 0) ||
	    entry.gid_type != IBV_GID_TYPE_ROCE_V1)
		return no_idea();
	return because("gid-not-v2", "%u", ah->grh.sgid_index);
}

static struct explanation (*const checks[])(const struct accepted *a) = {
	check_nothing_asked, check_claim,     check_qpn,   check_psn,
	check_path_mtu,	     check_gid_type,  check_retry, check_timeout,
	check_rnr,	     check_rd_atomic,
};

size_t explain_accepted(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
			int attr_mask, enum ibv_qp_state before,
			struct explanation *out, size_t most)
{
	KEEP_ERRNO;
	struct accepted a = {
		.qp = qp, .attr = attr, .mask = attr_mask, .before = before
	};
	struct ibv_qp_init_attr init;
	struct ibv_port_attr port;
	size_t count = 0;

	if (!explain_is_on())
		return 0;
	a.known = peek_at_qp(qp, &a.now, IBV_QP_STATE | IBV_QP_AV, &init);
	a.rxe = device_is_rxe(qp->context);
	if (a.known && a.now.port_num &&
	    !ibv_query_port(qp->context, a.now.port_num, &port))
		a.active_mtu = mtu_bytes(port.active_mtu);
	for (size_t i = 0;
	     i < sizeof(checks) / sizeof(checks[0]) && count < most; i++) {
		out[count] = checks[i](&a);
		if (out[count].id)
			count++;
	}
	return count;
}

/* ---- 两端 ----------------------------------------------------------------- */

/* 逐项照 mask 抄，不抄整个结构：没有位的成员是没有初始化的。*/
void explain_side_learn(struct explain_side *side,
			const struct ibv_qp_attr *attr, int attr_mask)
{
#define LEARN(bit, member)                                \
	do {                                              \
		if (attr_mask & (bit))                    \
			side->attr.member = attr->member; \
	} while (0)
	LEARN(IBV_QP_STATE, qp_state);
	LEARN(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	LEARN(IBV_QP_QKEY, qkey);
	LEARN(IBV_QP_AV, ah_attr);
	LEARN(IBV_QP_PATH_MTU, path_mtu);
	LEARN(IBV_QP_DEST_QPN, dest_qp_num);
	LEARN(IBV_QP_RQ_PSN, rq_psn);
	LEARN(IBV_QP_SQ_PSN, sq_psn);
	LEARN(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	LEARN(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef LEARN
	side->attr_mask |= attr_mask;
}

/* 一个方向：a 发，b 收。*/
struct direction {
	const struct explain_side *from, *to;
};

static bool both_gave(const struct direction *d, int from_bit, int to_bit)
{
	return (d->from->attr_mask & from_bit) == from_bit &&
	       (d->to->attr_mask & to_bit) == to_bit;
}

static struct explanation pair_qpn(const struct direction *d)
{
	uint32_t dest = d->from->attr.dest_qp_num;

	if (!(d->from->attr_mask & IBV_QP_DEST_QPN) || dest == d->to->qp_num)
		return no_idea();
	if (dest <= 1)
		return because("qpn-not-set", "%u", dest);
	if (bswap_32(dest) == d->to->qp_num)
		return because("qpn-byte-order", "0x%x\t0x%x", dest,
			       d->to->qp_num);
	return because("qpn-differs", "%s\t0x%x\t%s\t0x%x", d->from->name, dest,
		       d->to->name, d->to->qp_num);
}

static struct explanation pair_gid(const struct direction *d)
{
	char dest[GID_TEXT_SIZE], own[GID_TEXT_SIZE];

	if (!(d->from->attr_mask & IBV_QP_AV) || gid_is_zero(&d->to->gid) ||
	    !memcmp(d->from->attr.ah_attr.grh.dgid.raw, d->to->gid.raw, 16))
		return no_idea();
	return because("gid-differs", "%s\t%s\t%s\t%s", d->from->name,
		       gid_text(dest, d->from->attr.ah_attr.grh.dgid.raw),
		       d->to->name, gid_text(own, d->to->gid.raw));
}

/* 差 2^23 以内算“超前”，否则算“落后”：PSN 是 24 位的圆环。*/
static struct explanation pair_psn(const struct direction *d)
{
	uint32_t sq = d->from->attr.sq_psn & MAX_24_BITS;
	uint32_t rq = d->to->attr.rq_psn & MAX_24_BITS;
	bool ahead = ((sq - rq) & MAX_24_BITS) < HALF_PSN;

	if (!both_gave(d, IBV_QP_SQ_PSN, IBV_QP_RQ_PSN) || sq == rq)
		return no_idea();
	return because("psn-differs", "%s\t%u\t%s\t%u\t%s", d->from->name, sq,
		       d->to->name, rq,
		       ahead ? "later ones after a gap" : "old ones");
}

static struct explanation pair_mtu(const struct direction *d)
{
	unsigned int a = d->from->attr.path_mtu, b = d->to->attr.path_mtu;

	if (!both_gave(d, IBV_QP_PATH_MTU, IBV_QP_PATH_MTU) || a == b)
		return no_idea();
	return because("mtu-differs", "%s\t%u\t%s\t%u", d->from->name,
		       mtu_bytes(a), d->to->name, mtu_bytes(b));
}

size_t explain_pair(const struct explain_side *a, const struct explain_side *b,
		    struct explanation *out, size_t most)
{
	static struct explanation (*const pairs[])(
		const struct direction *d) = {
		pair_qpn,
		pair_gid,
		pair_psn,
		pair_mtu,
	};
	const struct direction ways[] = { { a, b }, { b, a } };
	size_t count = 0;

	if (!a || !b)
		return 0;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		for (size_t w = 0; w < 2 && count < most; w++) {
			out[count] = pairs[i](&ways[w]);
			if (out[count].id)
				count++;
			/* MTU 不分方向：一次就够了。*/
			if (pairs[i] == pair_mtu)
				break;
		}
	}
	return count;
}

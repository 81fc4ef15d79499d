// SPDX-License-Identifier: MIT
/*
 * modify_qp.c —— ibv_modify_qp 为什么失败
 *
 * EINVAL 是 modify_qp 里最没有信息量的错误：三层代码都用它，而且互不相干：
 *
 *	uverbs    port、ah_attr.port_num、状态值本身、ALT_PATH
 *	ib_core   GRH、GID 表、路由（见 path.c）
 *	驱动      状态机的表（ib_modify_qp_is_ok）、path_mtu、rd_atomic、timeout
 *
 * 下面是一张检查表，次序就是内核检查的次序：第一个不对的就是内核停下来的地方，
 * 也就是原因；后面还有不对的，记在证据里，省得改一处再撞一处。唯一的例外是“根本
 * 没有这条路”：此时其它检查的结论都只是它的后果，所以放在最前。
 */
#include "parts.h"
#include "qp_table.h"

#include <stdio.h>

/* 内核 uverbs 认识的 mask 位（IB_USER_LEGACY_LAST_QP_ATTR_MASK）：0 … 20。*/
#define STANDARD_BITS 0x1fffff
#define MAX_TIMEOUT   31 /* 5 位 */
#define BITS_TEXT     256

struct modify {
	struct ibv_qp *qp;
	const struct ibv_qp_attr *attr;
	int mask;
	bool known;		/* the kernel told its state: */
	struct ibv_qp_attr now; /* this */
	enum ibv_qp_state from, to;
	bool have_device;
	struct ibv_device_attr device;
};

static const char *state(unsigned int value)
{
	return qp_state_name((enum ibv_qp_state)value);
}

static bool believes_caller(const struct modify *m)
{
	return m->mask & IBV_QP_CUR_STATE;
}

static struct modify look_at(struct ibv_qp *qp, const struct ibv_qp_attr *attr,
			     int mask)
{
	struct modify m = { .qp = qp, .attr = attr, .mask = mask };
	struct ibv_qp_init_attr init;

	m.known = peek_at_qp(qp, &m.now, IBV_QP_STATE, &init);
	m.from = believes_caller(&m) ? attr->cur_qp_state : m.now.qp_state;
	m.to = mask & IBV_QP_STATE ? attr->qp_state : m.from;
	m.have_device = !ibv_query_device(qp->context, &m.device);
	return m;
}

static bool has_table(const struct modify *m)
{
	return (m->known || believes_caller(m)) &&
	       qp_transition(m->qp->qp_type, IBV_QPS_RESET, IBV_QPS_INIT);
}

static const struct qp_transition *row_of(const struct modify *m)
{
	return has_table(m) ? qp_transition(m->qp->qp_type, m->from, m->to)
			    : NULL;
}

/* ---- 检查表的各行：没有毛病就返回空的解释 --------------------------------- */

/*
 * 内核相信 cur_qp_state，不去核对它；唯独它必须是这四个之一，而且后面的检查都
 * 按它说的状态来做。
 */
static struct explanation check_claimed_state(const struct modify *m)
{
	const unsigned int may = 1u << IBV_QPS_RTR | 1u << IBV_QPS_RTS |
				 1u << IBV_QPS_SQD | 1u << IBV_QPS_SQE;
	unsigned int claimed = m->attr->cur_qp_state;

	if (!believes_caller(m))
		return no_idea();
	if (claimed > IBV_QPS_SQE || !(may >> claimed & 1))
		return because("cur-state-not-allowed", "%s", state(claimed));
	if (m->known && claimed != m->now.qp_state && !row_of(m))
		return because("cur-state-lies", "%s\t%s", state(claimed),
			       state(m->now.qp_state));
	return no_idea();
}

/* 在 RTS 里改不了、停下发送之后才改得了的。*/
static struct explanation needs_sqd(const struct modify *m, int extra)
{
	const struct qp_transition *row =
		qp_transition(m->qp->qp_type, IBV_QPS_SQD, IBV_QPS_SQD);
	char bits[BITS_TEXT];

	if (m->from != IBV_QPS_RTS || !row ||
	    (extra & ~(row->required | row->optional)))
		return no_idea();
	return because("bits-need-sqd", "%s\t%s",
		       qp_mask_text(bits, sizeof(bits), extra),
		       m->mask & IBV_QP_STATE ? "" : ", and STATE is missing");
}

static struct explanation check_state_bit(const struct modify *m)
{
	const struct qp_transition *row = row_of(m);
	int given = m->mask & ~IBV_QP_CUR_STATE;
	struct explanation why = no_idea();
	char bits[BITS_TEXT];

	if ((m->mask & IBV_QP_STATE) || !has_table(m))
		return no_idea();
	if (row && !(given & ~(row->required | row->optional)))
		return no_idea();
	if (row)
		why = needs_sqd(m, given & ~(row->required | row->optional));
	if (why.id)
		return why;
	return because("state-bit-forgotten", "%s\t%s",
		       qp_mask_text(bits, sizeof(bits), m->mask),
		       state(m->from));
}

static struct explanation check_states_exist(const struct modify *m)
{
	if ((m->mask & IBV_QP_STATE) &&
	    (unsigned int)m->attr->qp_state > IBV_QPS_ERR)
		return because("no-such-state", "%u",
			       (unsigned int)m->attr->qp_state);
	return no_idea();
}

/* 卡在某个状态的人，十之八九是前一步失败了而没有看返回值。*/
static const char *advice_for(const struct modify *m)
{
	if (m->to == IBV_QPS_SQE)
		return "No call leads to SQE: an error does.";
	if (m->to == IBV_QPS_ERR)
		return "RESET cannot go to ERR: there is nothing to flush.";
	if (m->from == IBV_QPS_ERR || m->to == IBV_QPS_INIT || m->to == m->from)
		return "Use new PSNs then.";
	return "Did the step before this one fail unnoticed?";
}

static struct explanation check_way(const struct modify *m)
{
	if (!(m->mask & IBV_QP_STATE) || !has_table(m) || row_of(m) ||
	    believes_caller(m))
		return no_idea();
	return because("no-way", "%s\t%s\t%s", state(m->from), state(m->to),
		       advice_for(m));
}

static struct explanation check_port(const struct modify *m)
{
	unsigned int ports = m->have_device ? m->device.phys_port_cnt : 255;
	unsigned int port = m->attr->port_num;

	if (!(m->mask & IBV_QP_PORT) || (port >= 1 && port <= ports))
		return no_idea();
	return because("port", "%u\t%u", port, ports);
}

static struct explanation check_av_port(const struct modify *m)
{
	unsigned int ports = m->have_device ? m->device.phys_port_cnt : 255;
	unsigned int port = m->attr->ah_attr.port_num;

	if (!(m->mask & IBV_QP_AV))
		return no_idea();
	if (port < 1 || port > ports)
		return because("av-port", "%u\t%u", port, ports);
	return no_idea();
}

static struct explanation check_alt_path(const struct modify *m)
{
	if (!(m->mask & IBV_QP_ALT_PATH))
		return no_idea();
	return because("alt-path");
}

static struct explanation check_path(const struct modify *m)
{
	if (!(m->mask & IBV_QP_AV))
		return no_idea();
	return explain_path_values(m->qp->context, &m->attr->ah_attr);
}

static struct explanation check_missing(const struct modify *m)
{
	const struct qp_transition *row = row_of(m);
	char bits[BITS_TEXT];

	if (!row || !(row->required & ~m->mask))
		return no_idea();
	return because(
		"bits-missing", "%s\t%s\t%s", state(m->from), state(m->to),
		qp_mask_text(bits, sizeof(bits), row->required & ~m->mask));
}

static struct explanation check_forbidden(const struct modify *m)
{
	const struct qp_transition *row = row_of(m);
	struct explanation why = no_idea();
	char bits[BITS_TEXT];
	int extra;

	if (!row)
		return no_idea();
	extra = m->mask & ~(row->required | row->optional | IBV_QP_STATE);
	if (!extra)
		return no_idea();
	if (m->from == m->to)
		why = needs_sqd(m, extra);
	if (why.id)
		return why;
	return because("bits-forbidden", "%s\t%s\t%s", state(m->from),
		       state(m->to), qp_mask_text(bits, sizeof(bits), extra));
}

static struct explanation check_draining(const struct modify *m)
{
	if (!m->known || m->now.qp_state != IBV_QPS_SQD ||
	    !m->now.sq_draining || m->to == IBV_QPS_ERR)
		return no_idea();
	return because("sq-draining");
}

/*
 * path_mtu 在系统调用里只有 8 位。字节数 1024、2048、4096 变成 0，rxe 照收；
 * 1500 变成 220，超过 5，于是 EINVAL。
 */
static struct explanation check_path_mtu(const struct modify *m)
{
	unsigned int mtu = m->attr->path_mtu;
	struct ibv_port_attr port;

	if (!(m->mask & IBV_QP_PATH_MTU))
		return no_idea();
	if (!mtu_bytes(mtu))
		return because("path-mtu-not-enum", "%u\t%s", mtu,
			       mtu >= 256 ? " (it looks like bytes)" : "");
	if (ibv_query_port(m->qp->context,
			   m->now.port_num ? m->now.port_num : 1, &port) ||
	    mtu <= (unsigned int)port.max_mtu)
		return no_idea();
	return because("path-mtu-too-large", "%u\t%u", mtu_bytes(mtu),
		       mtu_bytes(port.max_mtu));
}

static struct explanation check_rd_atomic(const struct modify *m)
{
	if (!m->have_device)
		return no_idea();
	if ((m->mask & IBV_QP_MAX_QP_RD_ATOMIC) &&
	    m->attr->max_rd_atomic > m->device.max_qp_init_rd_atom)
		return because("rd-atomic-too-large", "%u\t%d",
			       m->attr->max_rd_atomic,
			       m->device.max_qp_init_rd_atom);
	/* rxe 不查这一个（它往上取整）；别的驱动会查。*/
	if ((m->mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
	    m->attr->max_dest_rd_atomic > m->device.max_qp_rd_atom &&
	    !device_is_rxe(m->qp->context))
		return because("dest-rd-atomic-too-large", "%u\t%d",
			       m->attr->max_dest_rd_atomic,
			       m->device.max_qp_rd_atom);
	return no_idea();
}

static struct explanation check_timeout(const struct modify *m)
{
	if (!(m->mask & IBV_QP_TIMEOUT) || m->attr->timeout <= MAX_TIMEOUT)
		return no_idea();
	return because("timeout-too-large", "%u", m->attr->timeout);
}

static struct explanation check_access(const struct modify *m)
{
	/* 第 8、9 位是较新的 FLUSH 权限，旧头文件里没有名字。*/
	const unsigned int known = 0x3ff | IBV_ACCESS_OPTIONAL_RANGE;

	if (!(m->mask & IBV_QP_ACCESS_FLAGS) ||
	    !(m->attr->qp_access_flags & ~known))
		return no_idea();
	return because("access-unknown", "0x%x\t0x%x", m->attr->qp_access_flags,
		       m->attr->qp_access_flags & ~known);
}

// region checks
static struct explanation (*const checks[])(const struct modify *m) = {
	check_claimed_state, check_state_bit, check_states_exist,
	check_way,	     check_port,      check_av_port,
	check_alt_path,	     check_path,      check_missing,
	check_forbidden,     check_draining,  check_path_mtu,
	check_rd_atomic,     check_timeout,   check_access,
};
// endregion checks

static void see_state(struct explanation *why, const struct modify *m)
{
	if (m->known)
		also_seen(why, "qp-state", "%s\t%s", state(m->now.qp_state),
			  state(m->qp->state));
}

static struct explanation invalid(const struct modify *m)
{
	struct explanation why = no_idea();

	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		struct explanation found = checks[i](m);

		if (!why.id)
			why = found;
		else if (found.id)
			also_cause(&why, &found);
		/* 路都走不通，位对不对就无从谈起。*/
		if (explained_as(&why, "no-way") ||
		    explained_as(&why, "cur-state-lies") ||
		    explained_as(&why, "state-bit-forgotten") ||
		    explained_as(&why, "bits-need-sqd"))
			break;
	}
	if (!why.id)
		why = because("driver-refused", "%s -> %s", state(m->from),
			      state(m->to));
	if (!has_table(m))
		also_seen(&why, "qp-unknown");
	see_state(&why, m);
	return why;
}

static struct explanation unsupported(const struct modify *m)
{
	char bits[BITS_TEXT];

	return because("bits-unsupported", "%s",
		       qp_mask_text(bits, sizeof(bits),
				    m->mask & ~STANDARD_BITS));
}

struct explanation explain_modify_qp(struct ibv_qp *qp,
				     const struct ibv_qp_attr *attr,
				     int attr_mask, int err)
{
	KEEP_ERRNO;
	struct modify m;

	if (!explain_is_on())
		return no_idea();
	m = look_at(qp, attr, attr_mask);
	switch (err) {
	case EINVAL:
		return invalid(&m);
	case EOPNOTSUPP:
		return unsupported(&m);
	case EPERM:
		if (!(attr_mask & IBV_QP_QKEY) || !(attr->qkey & 0x80000000))
			return no_idea();
		return because("qkey-controlled", "0x%x", attr->qkey);
	case ENOMEM:
		return because("kernel-memory");
	}
	/* 剩下的都来自地址解析，它在查状态机之前。*/
	if (attr_mask & IBV_QP_AV)
		return explain_path(qp->context, &attr->ah_attr, err);
	return no_idea();
}

struct explanation explain_create_ah(struct ibv_pd *pd,
				     const struct ibv_ah_attr *ah, int err)
{
	KEEP_ERRNO;
	struct ibv_device_attr device;

	if (!explain_is_on())
		return no_idea();
	if (err == EINVAL && !ibv_query_device(pd->context, &device) &&
	    (ah->port_num < 1 || ah->port_num > device.phys_port_cnt))
		return because("av-port", "%u\t%u", ah->port_num,
			       device.phys_port_cnt);
	return explain_path(pd->context, ah, err);
}

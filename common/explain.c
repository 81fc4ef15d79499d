// SPDX-License-Identifier: MIT
/*
 * explain.c —— 把 errno 和 wc_status 翻译成“原因 + 下一步”
 *
 * 内核对一次错误的 ibv_modify_qp 只回一个 EINVAL；对一次失败的 SEND 只给一个
 * status = 12。这里的每一句解释都来自内核源码，并且在 rxe 上实测复现过；凡是
 * 有两种可能的，两种都说，并说明怎样区分，绝不猜测。
 */
#include "explain.h"

#include "qp_table.h"
#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int verb_failed(int err, struct explanation why, const char *fmt, ...)
{
	const char *name;
	char call[512];
	va_list ap;

	if (err <= 0)
		err = EIO;
	name = strerrorname_np(err);
	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	report_error(why.next[0] ? why.next : NULL, "%s failed: %s (%d): %s",
		     call, name ? name : "unknown error", err,
		     why.cause[0] ? why.cause : strerror(err));
	return -err;
}

struct explanation explain_open_device(int err)
{
	switch (err) {
	case EACCES:
	case EPERM:
		return (struct explanation){
			"this user may not open /dev/infiniband/uverbsN",
			"run as root, or give the node mode 0666 by a udev "
			"rule",
		};
	case ENOENT:
	case ENODEV:
	case ENXIO:
		return (struct explanation){
			"the device is listed in sysfs but has no usable "
			"/dev/infiniband/uverbsN node",
			"load ib_uverbs; in a container pass "
			"--device /dev/infiniband",
		};
	}
	return (struct explanation){ 0 };
}

struct explanation explain_reg_mr(int err)
{
	switch (err) {
	case ENOMEM:
		return (struct explanation){
			"the pages would exceed RLIMIT_MEMLOCK, or memory is "
			"short",
			"compare `ulimit -l` (KiB) with the size asked for; "
			"raise it or ask for less",
		};
	case EFAULT:
		return (struct explanation){
			"the address range is not mapped, or is read-only "
			"while LOCAL_WRITE was asked for",
			"register memory from malloc or mmap with PROT_WRITE",
		};
	case EINVAL:
		return (struct explanation){
			"length 0, or REMOTE_WRITE/REMOTE_ATOMIC without "
			"LOCAL_WRITE",
			"add IBV_ACCESS_LOCAL_WRITE, check the length",
		};
	}
	return (struct explanation){ 0 };
}

struct explanation explain_create_cq(int err)
{
	if (err == EINVAL)
		return (struct explanation){
			"cqe is 0 or above the device's max_cqe, or "
			"comp_vector is out of range",
			"compare with max_cqe of ibv_devinfo -v",
		};
	return (struct explanation){ 0 };
}

struct explanation explain_create_qp(int err)
{
	switch (err) {
	case EINVAL:
		return (struct explanation){
			"a queue size, an SGE count or max_inline_data is "
			"above what the device can do",
			"compare ibv_qp_cap with max_qp_wr and max_sge of "
			"ibv_devinfo -v",
		};
	case ENOMEM:
		return (struct explanation){
			"no memory for the queues, or the device is out of QPs",
			"see `rdma resource` for QPs that somebody left behind",
		};
	case EOPNOTSUPP:
	case EPERM:
		return (struct explanation){
			"the device does not offer this QP type to this user",
			"use RC, UC or UD",
		};
	}
	return (struct explanation){ 0 };
}

struct explanation explain_destroy(int err)
{
	if (err == EBUSY)
		return (struct explanation){
			"another object still uses it",
			"destroy in reverse order: QP, CQ, channel, MR, PD, "
			"device",
		};
	return (struct explanation){ 0 };
}

struct explanation explain_post(int err)
{
	switch (err) {
	case EINVAL:
		return (struct explanation){
			"the QP is in too early a state (receives need INIT, "
			"sends need RTS), or num_sge or an inline length is "
			"too large",
			"query the QP's state with ibv_query_qp; on rxe the "
			"refused send stays in the ring and runs after RTS",
		};
	case ENOMEM:
		return (struct explanation){
			"the work queue is full",
			"poll completions before posting more; unsignaled "
			"sends are freed only by a later signaled one",
		};
	}
	return (struct explanation){ 0 };
}

static struct explanation because(const char *next, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static struct explanation because(const char *next, const char *fmt, ...)
{
	struct explanation why;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why.cause, sizeof(why.cause), fmt, ap);
	va_end(ap);
	snprintf(why.next, sizeof(why.next), "%s", next ? next : "");
	return why;
}

static bool is_ipv4_mapped(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

/* 状态机本身的检查（ib_modify_qp_is_ok）。没有毛病则 cause 为空串。*/
static struct explanation
explain_transition(enum ibv_qp_state from, enum ibv_qp_state to, int attr_mask)
{
	const struct qp_transition *row = qp_rc_transition(from, to);
	int given = attr_mask & ~IBV_QP_STATE;
	char bits[256];

	if (!row)
		return because("go RESET -> INIT -> RTR -> RTS one step at a "
			       "time; ERR leads only to RESET",
			       "the QP is in %s, and there is no way from %s "
			       "to %s",
			       qp_state_name(from), qp_state_name(from),
			       qp_state_name(to));
	if (row->required & ~given)
		return because("add the missing bits to attr_mask and fill "
			       "their fields",
			       "%s -> %s also requires %s", qp_state_name(from),
			       qp_state_name(to),
			       qp_mask_text(bits, sizeof(bits),
					    row->required & ~given));
	given &= ~(row->required | row->optional);
	if (given)
		return because("take these bits out of attr_mask",
			       "%s -> %s does not allow %s",
			       qp_state_name(from), qp_state_name(to),
			       qp_mask_text(bits, sizeof(bits), given));
	return because(NULL, "%s", "");
}

/* 值的检查：按内核检查它们的先后，第一个不对的就是原因。*/
static struct explanation
explain_values(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int attr_mask)
{
	const struct ibv_ah_attr *ah = &attr->ah_attr;
	union ibv_gid mine;

	if ((attr_mask & IBV_QP_PORT) && attr->port_num != 1)
		return because("ports count from 1; rxe has only port 1",
			       "port_num %u is not a port of this device",
			       attr->port_num);
	if ((attr_mask & IBV_QP_AV) && !ah->is_global)
		return because("set ah_attr.is_global = 1 and "
			       "ah_attr.grh.dgid, sgid_index, hop_limit",
			       "the address vector has no GRH (is_global = 0), "
			       "which RoCE always needs");
	if ((attr_mask & IBV_QP_AV) &&
	    !ibv_query_gid(qp->context, ah->port_num, ah->grh.sgid_index,
			   &mine) &&
	    is_ipv4_mapped(&mine) != is_ipv4_mapped(&ah->grh.dgid))
		return because("choose a GID index of the same kind on both "
			       "sides",
			       "my GID (index %u) is %s, the peer's is %s",
			       ah->grh.sgid_index,
			       is_ipv4_mapped(&mine) ? "IPv4-mapped" : "IPv6",
			       is_ipv4_mapped(&mine) ? "IPv6" : "IPv4-mapped");
	if ((attr_mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return because("use IBV_MTU_256 (1) ... IBV_MTU_4096 (5), not "
			       "bytes",
			       "path_mtu %d is not a value of enum ibv_mtu",
			       (int)attr->path_mtu);
	return because(NULL, "%s", "");
}

/*
 * EINVAL 是 modify_qp 里最没有信息量的错误：三层代码（uverbs、ib_core、驱动）
 * 都用它。内核先查值和地址，最后才查状态机；这里照同样的次序逐条排除。
 */
static struct explanation explain_modify_einval(struct ibv_qp *qp,
						const struct ibv_qp_attr *attr,
						int attr_mask)
{
	struct explanation why = explain_values(qp, attr, attr_mask);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr now;

	if (why.cause[0])
		return why;
	if (!(attr_mask & IBV_QP_STATE))
		return because("add IBV_QP_STATE",
			       "the mask lacks IBV_QP_STATE, so no transition "
			       "was asked for");
	if (qp->qp_type == IBV_QPT_RC && !(attr_mask & IBV_QP_CUR_STATE) &&
	    !ibv_query_qp(qp, &now, IBV_QP_STATE, &init))
		why = explain_transition(now.qp_state, attr->qp_state,
					 attr_mask);
	if (why.cause[0])
		return why;
	return because("compare each attribute with ibv_modify_qp(3) and the "
		       "device's limits (ibv_devinfo -v)",
		       "the transition and its mask are legal, so a value is "
		       "out of the device's range");
}

struct explanation explain_modify_qp(struct ibv_qp *qp,
				     const struct ibv_qp_attr *attr,
				     int attr_mask, int err)
{
	switch (err) {
	case EINVAL:
		return explain_modify_einval(qp, attr, attr_mask);
	case ENODATA:
		return because("list the GIDs (lesson 01) and choose a filled "
			       "RoCE v2 slot",
			       "slot %u of the GID table is empty",
			       attr->ah_attr.grh.sgid_index);
	case ENETUNREACH:
		return because("ip link; ip -6 route get ADDRESS",
			       "the network device behind my GID is down, or "
			       "there is no IPv6 route to the peer's GID");
	case ETIMEDOUT:
		return because("ping the peer's GID address through the "
			       "network device of my GID; both GIDs must be on "
			       "one network",
			       "the peer's MAC address could not be resolved "
			       "(ARP or ND got no answer for a second, or "
			       "there is no route)");
	case ENODEV:
		return because("use the address of an RDMA network device for "
			       "both sides",
			       "the peer's GID routes to a network device that "
			       "has no RDMA device, such as loopback");
	case EPERM:
		return because("use a QKEY below 0x80000000",
			       "a QKEY with its top bit set needs CAP_NET_RAW");
	}
	return because(NULL, "%s", "");
}

struct explanation explain_wc_status(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return (struct explanation){
			"the message is longer than the receive buffer",
			"post larger receives, or send less",
		};
	case IBV_WC_LOC_QP_OP_ERR:
		return (struct explanation){
			"this side's work request is wrong: on rxe a bad lkey, "
			"or a receive buffer smaller than the message",
			"compare lkey, address and length with the MR",
		};
	case IBV_WC_LOC_PROT_ERR:
		return (struct explanation){
			"this side's buffer is not covered by the lkey",
			"compare address and length of the SGE with the MR",
		};
	case IBV_WC_WR_FLUSH_ERR:
		return (struct explanation){
			"the QP is in ERR and this request was only flushed",
			"look for the first bad completion before this one; "
			"rxe of Linux 6.12 hides local causes behind a flush",
		};
	case IBV_WC_REM_INV_REQ_ERR:
		return (struct explanation){
			"the peer refused the request: QP access flags, "
			"message too long, or the path MTUs differ",
			"look at the peer's qp_access_flags and path_mtu",
		};
	case IBV_WC_REM_ACCESS_ERR:
		return (struct explanation){
			"the peer's rkey does not allow this access",
			"compare rkey, remote address, length and the access "
			"flags of the peer's MR",
		};
	case IBV_WC_REM_OP_ERR:
		return (struct explanation){
			"the peer could not carry it out: its own receive "
			"request is bad (on rxe also: too small)",
			"look at the peer's completions",
		};
	case IBV_WC_RETRY_EXC_ERR:
		return (struct explanation){
			"no ACK came back: the peer's QP is gone or in another "
			"state, QPN, PSN or GID do not match, UDP port 4791 is "
			"blocked, or (rxe of Linux 6.1) no receive was posted",
			"compare QPN, PSN and GID as both sides printed them; "
			"see the peer's state with `rdma resource show qp`",
		};
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return (struct explanation){
			"the peer had no receive posted",
			"post receives before telling the peer that you are "
			"ready",
		};
	default:
		return because(NULL, "%s", ibv_wc_status_str(status));
	}
}

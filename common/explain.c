// SPDX-License-Identifier: MIT
/*
 * explain.c —— 把 errno 和 wc_status 翻译成“原因 + 下一步”
 *
 * 内核对一次错误的 ibv_modify_qp 只回一个 EINVAL；对一次失败的 SEND 只给一个
 * status = 12。这里的每一句解释都来自内核源码，并且在 rxe 上实测复现过；凡是
 * 有两种可能的，两种都说，并说明怎样区分，绝不猜测。
 */
#include "explain.h"

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
	report_error(why.next, "%s failed: %s (%d): %s", call,
		     name ? name : "unknown error", err,
		     why.cause ? why.cause : strerror(err));
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
			"query the QP's state with ibv_query_qp",
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

static bool is_ipv4_mapped(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

/*
 * EINVAL 是 modify_qp 里最没有信息量的错误：三层代码（uverbs、ib_core、驱动）
 * 都用它。按内核检查的先后顺序逐条排除，剩下的才归给状态机本身。
 */
static struct explanation explain_modify_einval(enum ibv_qp_state to,
						const struct ibv_qp_attr *attr,
						int attr_mask)
{
	if ((attr_mask & IBV_QP_PORT) && attr->port_num != 1)
		return (struct explanation){
			"port_num is not a port of this device",
			"ports count from 1; rxe has only port 1",
		};
	if ((attr_mask & IBV_QP_AV) && !attr->ah_attr.is_global)
		return (struct explanation){
			"the address vector has no GRH (is_global = 0), which "
			"RoCE always needs",
			"set ah_attr.is_global = 1 and ah_attr.grh.dgid, "
			"sgid_index, hop_limit",
		};
	if ((attr_mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return (struct explanation){
			"path_mtu is not a value of enum ibv_mtu",
			"use IBV_MTU_256 (1) ... IBV_MTU_4096 (5), not bytes",
		};
	if (attr_mask & IBV_QP_AV)
		return (struct explanation){
			is_ipv4_mapped(&attr->ah_attr.grh.dgid)
				? "the QP is not in the state before, or my "
				  "GID "
				  "is not IPv4-mapped while the peer's is"
				: "the QP is not in the state before, or my "
				  "GID "
				  "is IPv4-mapped while the peer's is not",
			"query the state with ibv_query_qp; choose a GID "
			"index of the same kind on both sides",
		};
	if (to == IBV_QPS_RESET)
		return (struct explanation){ 0 };
	return (struct explanation){
		"this transition is not legal from the QP's present state, or "
		"the attribute mask lacks a required bit or has a forbidden "
		"one",
		"query the state with ibv_query_qp and compare the mask with "
		"ibv_modify_qp(3)",
	};
}

struct explanation explain_modify_qp(enum ibv_qp_state to,
				     const struct ibv_qp_attr *attr,
				     int attr_mask, int err)
{
	switch (err) {
	case EINVAL:
		return explain_modify_einval(to, attr, attr_mask);
	case ENODATA:
		return (struct explanation){
			"the GID table slot sgid_index is empty",
			"list the GIDs (lesson 01) and choose a filled RoCE v2 "
			"slot",
		};
	case ENETUNREACH:
		return (struct explanation){
			"the network device behind my GID is down, or there is "
			"no IPv6 route to the peer's GID",
			"ip link; ip -6 route get ADDRESS",
		};
	case ETIMEDOUT:
		return (struct explanation){
			"the peer's MAC address could not be resolved (ARP or "
			"ND got no answer for a second, or there is no route)",
			"ping the peer's GID address through the network "
			"device of my GID; both GIDs must be on one network",
		};
	case ENODEV:
		return (struct explanation){
			"the peer's GID routes to a network device that has no "
			"RDMA device, such as loopback",
			"use the address of an RDMA network device for both "
			"sides",
		};
	case EPERM:
		return (struct explanation){
			"a QKEY with its top bit set needs CAP_NET_RAW",
			"use a QKEY below 0x80000000",
		};
	}
	return (struct explanation){ 0 };
}

struct explanation explain_wc_status(enum ibv_wc_status status)
{
	static const struct explanation table[] = {
		[IBV_WC_LOC_LEN_ERR] = { "the message is longer than the "
					 "receive buffer",
					 "post larger receives, or send less" },
		[IBV_WC_LOC_QP_OP_ERR] = { "this side's work request is wrong: "
					   "on rxe a bad lkey, "
					   "or a receive buffer smaller than "
					   "the message",
					   "compare lkey, address and length "
					   "with the MR" },
		[IBV_WC_LOC_PROT_ERR] = { "this side's buffer is not covered "
					  "by the lkey",
					  "compare address and length of the "
					  "SGE with the MR" },
		[IBV_WC_WR_FLUSH_ERR] = { "the QP is in ERR and this request "
					  "was only flushed",
					  "look for the first bad completion "
					  "before this one; "
					  "rxe of Linux 6.12 hides local "
					  "causes behind a flush" },
		[IBV_WC_REM_INV_REQ_ERR] = { "the peer refused the request: QP "
					     "access flags, "
					     "message too long, or the path "
					     "MTUs differ",
					     "look at the peer's "
					     "qp_access_flags and path_mtu" },
		[IBV_WC_REM_ACCESS_ERR] = { "the peer's rkey does not allow "
					    "this access",
					    "compare rkey, remote address, "
					    "length and the MR's "
					    "access flags on the peer" },
		[IBV_WC_REM_OP_ERR] = { "the peer could not carry it out: its "
					"own receive "
					"request is bad (on rxe also: too "
					"small)",
					"look at the peer's completions" },
		[IBV_WC_RETRY_EXC_ERR] = { "no ACK came back: the peer's QP is "
					   "gone, in another "
					   "state, or QPN, PSN or GID do not "
					   "match, or UDP port "
					   "4791 is blocked",
					   "compare QPN, PSN and GID as both "
					   "sides printed them; "
					   "see the peer's state with `rdma "
					   "resource show qp`" },
		[IBV_WC_RNR_RETRY_EXC_ERR] = { "the peer had no receive posted",
					       "post receives before telling "
					       "the peer that you are "
					       "ready" },
	};

	if ((unsigned int)status < sizeof(table) / sizeof(table[0]) &&
	    table[status].cause)
		return table[status];
	return (struct explanation){ ibv_wc_status_str(status), NULL };
}

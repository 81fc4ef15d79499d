// SPDX-License-Identifier: MIT
/*
 * qp_table_checks.c —— ibv_modify_qp 一路上被谁、按什么次序、因为什么拒绝
 *
 * 错误号只有一个，检查却有二十来项，散在三处：uverbs 看参数，ib_core 找到对端的路，驱动
 * 才查状态表和各个值。次序有用：地址错了，就轮不到 mask 的错。出处：uverbs_cmd.c 的
 * modify_qp，verbs.c 的 _ib_modify_qp，addr.c，最后是 rxe_qp.c（Linux 6.1）。
 */
#include "qp_table.h"

#include <errno.h>

#define UVERBS "uverbs"
#define CORE   "ib_core"
#define DRIVER "driver"

// clang-format off
static const struct qp_check checks[] = {
	{ EOPNOTSUPP, UVERBS, "bits-unsupported", 0, 0,
	  { "a bit of the mask is unknown to it", "mask 里有它不认识的位" },
	  { "leave it out", "去掉" } },
	{ EINVAL, UVERBS, "port", IBV_QP_PORT, 0,
	  { "port_num is 0 or larger than the device has",
	    "port_num 为 0，或者超过设备的 port 数" },
	  { "ports count from 1", "port 从 1 数起" } },
	{ EINVAL, UVERBS, "av-port", IBV_QP_AV, 0,
	  { "ah_attr.port_num is 0, or not the QP's port",
	    "ah_attr.port_num 为 0，或者不是 QP 的 port" },
	  { "use the port of INIT: it is a field of its own",
	    "填 INIT 时的 port：它是单独的一个字段" } },
	{ EINVAL, UVERBS, "no-such-state", 0, 0,
	  { "qp_state is above ERR (6)", "qp_state 大于 ERR（6）" },
	  { "use IBV_QPS_RESET ... IBV_QPS_ERR",
	    "用 IBV_QPS_RESET ... IBV_QPS_ERR" } },
	{ EPERM, UVERBS, "qkey-controlled", IBV_QP_QKEY, 0,
	  { "qkey has bit 31 set, without CAP_NET_RAW",
	    "qkey 的第 31 位为 1，而没有 CAP_NET_RAW" },
	  { "choose one below 0x80000000", "选一个小于 0x80000000 的" } },
	{ EINVAL, CORE, "no-grh", IBV_QP_AV, 0,
	  { "is_global is 0 on RoCE", "在 RoCE 上 is_global 为 0" },
	  { "is_global = 1; fill dgid, sgid_index, hop_limit",
	    "is_global = 1；填好 dgid、sgid_index、hop_limit" } },
	{ ENODATA, CORE, "gid-slot-empty", IBV_QP_AV, 0,
	  { "sgid_index names an empty slot", "sgid_index 指向空槽位" },
	  { "list the GIDs; choose by type and address",
	    "列出 GID，按类型和地址来选" } },
	{ EINVAL, CORE, "gid-families-differ", IBV_QP_AV, 0,
	  { "one GID is IPv4, the other IPv6; or the peer's is all zero",
	    "两个 GID 一个是 IPv4，一个是 IPv6；或者对端的全是零" },
	  { "print both GIDs; choose two of one family",
	    "打印两个 GID；选同一地址族的" } },
	{ ENETUNREACH, CORE, "netdev-down", IBV_QP_AV, 0,
	  { "my GID's network device is down, or there is no IPv6 route",
	    "本端 GID 的网络设备是 down，或者没有 IPv6 路由" },
	  { "ip link set DEVICE up; ip -6 route get ADDRESS",
	    "ip link set DEVICE up；ip -6 route get ADDRESS" } },
	{ ETIMEDOUT, CORE, "no-neighbour", IBV_QP_AV, 0,
	  { "no ARP or neighbour answer within 1 s, or no IPv4 route",
	    "1 秒内没有 ARP 或邻居应答，或者没有 IPv4 路由" },
	  { "ping -I DEVICE ADDRESS; ip neigh; GIDs of one network",
	    "ping -I DEVICE ADDRESS；ip neigh；双方用同一个网络的 GID" } },
	{ ENODEV, CORE, "peer-on-loopback", IBV_QP_AV, 0,
	  { "the route leads to loopback or to no RDMA device",
	    "路由通向 loopback，或者没有 RDMA 设备" },
	  { "use addresses of RDMA network devices",
	    "用 RDMA 网络设备的地址" } },
	{ EINVAL, CORE, "alt-path", IBV_QP_ALT_PATH, 0,
	  { "an alternate path on RoCE", "在 RoCE 上给了备用路径" },
	  { "leave ALT_PATH out", "去掉 ALT_PATH" } },
	{ EINVAL, DRIVER, "cur-state-not-allowed", IBV_QP_CUR_STATE, 0,
	  { "cur_qp_state is RESET, INIT or ERR",
	    "cur_qp_state 是 RESET、INIT 或 ERR" },
	  { "leave CUR_STATE out", "不要用 CUR_STATE" } },
	{ EINVAL, DRIVER, "no-way", 0, 0,
	  { "the QP is not in the state that you expect",
	    "QP 不在你以为的状态" },
	  { "ask with ibv_query_qp; did the step before fail?",
	    "用 ibv_query_qp 查；是不是前一步失败了？" } },
	{ EINVAL, DRIVER, "bits-missing", 0, 0,
	  { "a required bit is not in the mask (also STATE)",
	    "mask 里少了必需的位（也包括 STATE）" },
	  { "compare with the bits that are required",
	    "与必需的位对照" } },
	{ EINVAL, DRIVER, "bits-forbidden", 0, 0,
	  { "the mask has a bit that this step does not allow",
	    "mask 里有这一步不允许的位" },
	  { "leave it out", "去掉" } },
	{ EINVAL, DRIVER, "sq-draining", 0, 1 << IBV_QPS_SQD,
	  { "the send queue is still draining", "发送队列还在排空" },
	  { "wait until sq_draining is 0", "等 sq_draining 变成 0" } },
	{ EINVAL, DRIVER, "path-mtu-not-enum", IBV_QP_PATH_MTU, 0,
	  { "path_mtu is no enum value, or above the port's max_mtu",
	    "path_mtu 不是枚举值，或者超过 port 的 max_mtu" },
	  { "IBV_MTU_256 (1) ... IBV_MTU_4096 (5), not bytes",
	    "IBV_MTU_256（1）... IBV_MTU_4096（5），不是字节数" } },
	{ EINVAL, DRIVER, "rd-atomic-too-large", IBV_QP_MAX_QP_RD_ATOMIC, 0,
	  { "max_rd_atomic exceeds the device's max_qp_init_rd_atom",
	    "max_rd_atomic 超过设备的 max_qp_init_rd_atom" },
	  { "use what ibv_query_device returns",
	    "用 ibv_query_device 给的值" } },
	{ EINVAL, DRIVER, "timeout-too-large", IBV_QP_TIMEOUT, 0,
	  { "timeout exceeds 31", "timeout 大于 31" },
	  { "it is an exponent: 14 is 67 ms", "它是指数：14 是 67 ms" } },
	{ EINVAL, DRIVER, "access-unknown", IBV_QP_ACCESS_FLAGS, 0,
	  { "qp_access_flags has unknown bits (rxe: since Linux 6.12)",
	    "qp_access_flags 里有未定义的位（rxe：Linux 6.12 起）" },
	  { "use IBV_ACCESS_REMOTE_READ, _WRITE, _ATOMIC",
	    "用 IBV_ACCESS_REMOTE_READ、_WRITE、_ATOMIC" } },
	{ ENOMEM, DRIVER, "kernel-memory", IBV_QP_MAX_DEST_RD_ATOMIC, 0,
	  { "no memory for max_dest_rd_atomic slots",
	    "没有内存放 max_dest_rd_atomic 个槽位" },
	  { "a smaller max_dest_rd_atomic; dmesg",
	    "减小 max_dest_rd_atomic；看 dmesg" } },
};
// clang-format on

const struct qp_check *qp_check_after(const struct qp_check *last,
				      enum ibv_qp_type type,
				      enum ibv_qp_state from,
				      enum ibv_qp_state to, int error)
{
	const struct qp_transition *row = qp_transition(type, from, to);
	const struct qp_check *c = last ? last + 1 : checks;
	int bits = row ? row->required | row->optional : 0;

	for (; c < checks + sizeof(checks) / sizeof(checks[0]); c++)
		if ((!error || c->error == error) &&
		    (!c->bits || (c->bits & bits)) &&
		    (!c->from || (c->from & 1 << from)))
			return c;
	return NULL;
}

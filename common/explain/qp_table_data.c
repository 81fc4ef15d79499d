// SPDX-License-Identifier: MIT
/*
 * qp_table_data.c —— 状态机的数据：五种 QP 的每条合法的路，和每个属性位的含义
 *
 * 读这些表时抓住一条线索：一个 QP 需要哪些属性，取决于它要不要“连接”、要不要
 * “可靠”——
 *   - UD 没有对端：不要 AV、DEST_QPN、RQ_PSN（地址随每个 WR 的 AH 给出），改用
 *     QKEY 挡住陌生人的包；
 *   - UC 有对端、不可靠：没有 ACK，于是没有超时、重传、RNR，也没有 READ/ATOMIC；
 *   - RC 两样都要，所以属性最多；
 *   - XRC 把 RC 的两半拆开：INI 只发（只有发送方的超时与重试），TGT 只收（只有
 *     接收方的 RNR 定时器与 READ 资源）。
 */
#include "qp_table.h"

// clang-format off
#define ROW(f, t, required, optional) \
	{ IBV_QPS_##f, IBV_QPS_##t, (required), (optional) }
// clang-format on

/* 很多行的“可选”部分相同，先起个名字。*/
#define OPT_INIT  (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define OPT_RTR	  (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)
#define OPT_MOVE  (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)
#define OPT_PATH  (OPT_MOVE | IBV_QP_MIN_RNR_TIMER)
#define CONNECT	  (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RESPONDER (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define DATAGRAM  (IBV_QP_PKEY_INDEX | IBV_QP_QKEY)
#define RETRIES                                                 \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
	 IBV_QP_MAX_QP_RD_ATOMIC)

// region rc-table
/*
 * 不在表里的路一律 EINVAL：没有 RESET→ERR，没有 INIT→RTS，没有任何一条通往
 * SQE 的路（那个状态只能由出错进入）。
 */
static const struct qp_transition rc_table[QP_TRANSITIONS] = {
	ROW(RESET, RESET, 0, 0),
	ROW(RESET, INIT, OPT_INIT, 0),
	ROW(INIT, RESET, 0, 0),
	ROW(INIT, INIT, 0, OPT_INIT),
	ROW(INIT, RTR, CONNECT | RESPONDER, OPT_RTR),
	ROW(INIT, ERR, 0, 0),
	ROW(RTR, RESET, 0, 0),
	ROW(RTR, RTS, RETRIES | IBV_QP_SQ_PSN, OPT_PATH | IBV_QP_CUR_STATE),
	ROW(RTR, ERR, 0, 0),
	ROW(RTS, RESET, 0, 0),
	ROW(RTS, RTS, 0, OPT_PATH | IBV_QP_CUR_STATE),
	ROW(RTS, SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
	ROW(RTS, ERR, 0, 0),
	ROW(SQD, RESET, 0, 0),
	ROW(SQD, RTS, 0, OPT_PATH | IBV_QP_CUR_STATE),
	/* 发送队列排空之后，几乎什么都可以换：这正是 SQD 存在的理由。*/
	ROW(SQD, SQD, 0,
	    OPT_PATH | RETRIES | RESPONDER | IBV_QP_PORT | IBV_QP_AV |
		    IBV_QP_PKEY_INDEX),
	ROW(SQD, ERR, 0, 0),
	ROW(SQE, RESET, 0, 0),
	ROW(SQE, RTS, 0, 0),
	ROW(SQE, ERR, 0, 0),
	ROW(ERR, RESET, 0, 0),
	ROW(ERR, ERR, 0, 0),
};
// endregion rc-table

/*
 * 其余四种的路与 RC 的完全相同，不同的只是位。这里只列与 RC 不一样的行：一种 QP 是
 * 什么，看它和 RC 差在哪里就知道。
 */
static const struct {
	enum ibv_qp_type type;
	struct qp_transition row;
} unlike_rc[] = {
	/* UC：与 RC 相比，去 RTR 少了接收方的两项，去 RTS 只剩下 SQ_PSN。*/
	{ IBV_QPT_UC, ROW(INIT, RTR, CONNECT, OPT_RTR) },
	{ IBV_QPT_UC,
	  ROW(RTR, RTS, IBV_QP_SQ_PSN, OPT_MOVE | IBV_QP_CUR_STATE) },
	{ IBV_QPT_UC, ROW(RTS, RTS, 0, OPT_MOVE | IBV_QP_CUR_STATE) },
	{ IBV_QPT_UC, ROW(SQD, RTS, 0, OPT_MOVE | IBV_QP_CUR_STATE) },
	{ IBV_QPT_UC,
	  ROW(SQD, SQD, 0, OPT_MOVE | IBV_QP_AV | IBV_QP_PKEY_INDEX) },
	/* 发送出错只坏了发送队列，不必从 RESET 重来；UD 也是如此。*/
	{ IBV_QPT_UC,
	  ROW(SQE, RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS) },

	/* UD：没有连接，INIT→RTR 什么都不必给；QKEY 代替了 ACCESS_FLAGS。*/
	{ IBV_QPT_UD, ROW(RESET, INIT, DATAGRAM | IBV_QP_PORT, 0) },
	{ IBV_QPT_UD, ROW(INIT, INIT, 0, DATAGRAM | IBV_QP_PORT) },
	{ IBV_QPT_UD, ROW(INIT, RTR, 0, DATAGRAM) },
	{ IBV_QPT_UD,
	  ROW(RTR, RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY) },
	{ IBV_QPT_UD, ROW(RTS, RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY) },
	{ IBV_QPT_UD, ROW(SQD, RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY) },
	{ IBV_QPT_UD, ROW(SQD, SQD, 0, DATAGRAM) },
	{ IBV_QPT_UD, ROW(SQE, RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY) },

	/* XRC_INI：只会发的半个 RC，没有接收方的 RESPONDER 两项。*/
	{ IBV_QPT_XRC_SEND, ROW(INIT, RTR, CONNECT, OPT_RTR) },
	{ IBV_QPT_XRC_SEND,
	  ROW(RTR, RTS, RETRIES | IBV_QP_SQ_PSN, OPT_MOVE | IBV_QP_CUR_STATE) },
	{ IBV_QPT_XRC_SEND, ROW(RTS, RTS, 0, OPT_MOVE | IBV_QP_CUR_STATE) },
	{ IBV_QPT_XRC_SEND, ROW(SQD, RTS, 0, OPT_MOVE | IBV_QP_CUR_STATE) },
	{ IBV_QPT_XRC_SEND, ROW(SQD, SQD, 0,
				OPT_MOVE | RETRIES | IBV_QP_PORT | IBV_QP_AV |
					IBV_QP_PKEY_INDEX) },

	/* XRC_TGT：只会收的半个 RC，没有重试次数；TIMEOUT 与 SQ_PSN 规范仍要求给。*/
	{ IBV_QPT_XRC_RECV, ROW(RTR, RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
				OPT_PATH | IBV_QP_CUR_STATE) },
	{ IBV_QPT_XRC_RECV, ROW(SQD, SQD, 0,
				OPT_PATH | RESPONDER | IBV_QP_PORT | IBV_QP_AV |
					IBV_QP_TIMEOUT | IBV_QP_PKEY_INDEX) },
};

static bool has_table(enum ibv_qp_type type)
{
	size_t count;
	const enum ibv_qp_type *types = qp_types(&count);

	while (count && types[count - 1] != type)
		count--;
	return count;
}

const struct qp_transition *qp_transition_at(enum ibv_qp_type type, size_t i)
{
	const struct qp_transition *rc = &rc_table[i];

	for (size_t n = 0; n < sizeof(unlike_rc) / sizeof(*unlike_rc); n++)
		if (unlike_rc[n].type == type &&
		    unlike_rc[n].row.from == rc->from &&
		    unlike_rc[n].row.to == rc->to)
			return &unlike_rc[n].row;
	return has_table(type) ? rc : NULL;
}

const enum ibv_qp_type *qp_types(size_t *count)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC,	  IBV_QPT_UC,	    IBV_QPT_UD,
		IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
	};

	*count = sizeof(types) / sizeof(types[0]);
	return types;
}

/*
 * 每一位管 struct ibv_qp_attr 的哪些成员。位在而成员没填，内核就照零来做；成员填
 * 了而位不在，内核看都不看。
 */
static const struct qp_attr_info attr_infos[] = {
	{ IBV_QP_STATE,
	  "STATE",
	  "qp_state",
	  QP_ATTR_CHOSEN,
	  { "the state to go to", "要去的状态" },
	  { "RESET, INIT, RTR, RTS, SQD, ERR; without it the state does not "
	    "change",
	    "RESET、INIT、RTR、RTS、SQD、ERR；没有这一位，状态不变" } },
	{ IBV_QP_CUR_STATE,
	  "CUR_STATE",
	  "cur_qp_state",
	  QP_ATTR_MINE,
	  { "the state that I take the QP to be in",
	    "程序认为 QP 现在所处的状态" },
	  { "RTR, RTS, SQD, SQE; the kernel believes it, even if untrue",
	    "RTR、RTS、SQD、SQE；内核不核对，直接采信" } },
	{ IBV_QP_EN_SQD_ASYNC_NOTIFY,
	  "EN_SQD_ASYNC_NOTIFY",
	  "en_sqd_async_notify",
	  QP_ATTR_CHOSEN,
	  { "raise IBV_EVENT_SQ_DRAINED once the send queue has drained",
	    "发送队列排空时，产生 IBV_EVENT_SQ_DRAINED" },
	  { "0, 1", "0、1" } },
	{ IBV_QP_ACCESS_FLAGS,
	  "ACCESS_FLAGS",
	  "qp_access_flags",
	  QP_ATTR_CHOSEN,
	  { "what the peer may do through this QP, whatever the MRs allow",
	    "允许对端经这个 QP 做什么，MR 另有自己的权限" },
	  { "IBV_ACCESS_REMOTE_READ, _WRITE, _ATOMIC; 0: SEND only",
	    "IBV_ACCESS_REMOTE_READ、_WRITE、_ATOMIC；0：只能 SEND" } },
	{ IBV_QP_PKEY_INDEX,
	  "PKEY_INDEX",
	  "pkey_index",
	  QP_ATTR_MINE,
	  { "slot of my P_Key table: the partition of each packet",
	    "P_Key 表的槽位：每个包属于哪个分区" },
	  { "0 ... pkey_tbl_len - 1; on RoCE 0",
	    "0 ... pkey_tbl_len - 1；RoCE 上为 0" } },
	{ IBV_QP_PORT,
	  "PORT",
	  "port_num",
	  QP_ATTR_MINE,
	  { "the port of my device that the QP uses",
	    "QP 用本设备的哪个 port" },
	  { "1 ... phys_port_cnt; rxe has only 1",
	    "1 ... phys_port_cnt；rxe 只有 1" } },
	{ IBV_QP_QKEY,
	  "QKEY",
	  "qkey",
	  QP_ATTR_CHOSEN,
	  { "the key that a datagram must carry to be accepted",
	    "datagram 必须带这个 key 才会被接收" },
	  { "32 bits, the same on both sides; from 0x80000000: CAP_NET_RAW",
	    "32 位，两端相同；不小于 0x80000000 要 CAP_NET_RAW" } },
	{ IBV_QP_AV,
	  "AV",
	  "ah_attr",
	  QP_ATTR_PEER,
	  { "the path to the peer: its GID, and which GID of mine to use",
	    "到对端的路径：对端的 GID，用本端哪个 GID" },
	  { "on RoCE is_global = 1; grh.dgid, grh.sgid_index, port_num",
	    "RoCE 上 is_global = 1；grh.dgid、grh.sgid_index、port_num" } },
	{ IBV_QP_PATH_MTU,
	  "PATH_MTU",
	  "path_mtu",
	  QP_ATTR_CHOSEN,
	  { "maximum payload of one packet, the same on both sides",
	    "一个包最多带多少字节，两端相同" },
	  { "IBV_MTU_256 (1) ... _4096 (5), not bytes; <= both active_mtu",
	    "IBV_MTU_256 (1) ... _4096 (5)，不是字节数；不超过两端的 "
	    "active_mtu" } },
	{ IBV_QP_TIMEOUT,
	  "TIMEOUT",
	  "timeout",
	  QP_ATTR_CHOSEN,
	  { "how long to wait for an ACK before sending again",
	    "等待 ACK 的时间，超时就重传" },
	  { "1 ... 31: 4.096 us * 2^n (14: 67 ms); 0: for ever",
	    "1 ... 31：4.096 us * 2^n（14：67 ms）；0：永远等" } },
	{ IBV_QP_RETRY_CNT,
	  "RETRY_CNT",
	  "retry_cnt",
	  QP_ATTR_CHOSEN,
	  { "how many times to retry when no ACK comes", "ACK 不来时重传几次" },
	  { "0 ... 7; then IBV_WC_RETRY_EXC_ERR; on rxe 7 is for ever",
	    "0 ... 7；之后是 IBV_WC_RETRY_EXC_ERR；rxe 上 7 不限次数" } },
	{ IBV_QP_RNR_RETRY,
	  "RNR_RETRY",
	  "rnr_retry",
	  QP_ATTR_CHOSEN,
	  { "how many times to retry when the peer has no receive posted",
	    "对端没有 post receive 时重试几次" },
	  { "0 ... 6, 7: for ever; then IBV_WC_RNR_RETRY_EXC_ERR",
	    "0 ... 6，7：不限次数；之后是 IBV_WC_RNR_RETRY_EXC_ERR" } },
	{ IBV_QP_RQ_PSN,
	  "RQ_PSN",
	  "rq_psn",
	  QP_ATTR_PEER,
	  { "PSN of the first packet that I expect: the peer's sq_psn",
	    "本端要收的第一个包的 PSN：对端的 sq_psn" },
	  { "24 bits", "24 位" } },
	{ IBV_QP_MAX_QP_RD_ATOMIC,
	  "MAX_QP_RD_ATOMIC",
	  "max_rd_atomic",
	  QP_ATTR_CHOSEN,
	  { "how many of my READs and atomics may be outstanding",
	    "本端最多同时有几个未完成的 READ 和 atomic" },
	  { "1 ... max_qp_init_rd_atom; 0: my READs hang for ever (rxe)",
	    "1 ... max_qp_init_rd_atom；0：本端的 READ 永远卡住（rxe）" } },
	{ IBV_QP_ALT_PATH,
	  "ALT_PATH",
	  "alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout",
	  QP_ATTR_PEER,
	  { "a second path to the peer, to migrate to",
	    "到对端的第二条路径，供迁移用" },
	  { "InfiniBand only: on RoCE always EINVAL",
	    "只用于 InfiniBand：RoCE 上总是 EINVAL" } },
	{ IBV_QP_MIN_RNR_TIMER,
	  "MIN_RNR_TIMER",
	  "min_rnr_timer",
	  QP_ATTR_CHOSEN,
	  { "how long the peer must wait when I have no receive posted",
	    "本端没有 post receive 时，对端要等多久" },
	  { "1 (0.01 ms) ... 12 (0.64 ms) ... 31 (491.52 ms); 0: 655.36 ms",
	    "1 (0.01 ms) ... 12 (0.64 ms) ... 31 (491.52 ms)；0：655.36 ms" } },
	{ IBV_QP_SQ_PSN,
	  "SQ_PSN",
	  "sq_psn",
	  QP_ATTR_MINE,
	  { "PSN of the first packet that I send; the peer's rq_psn",
	    "本端发的第一个包的 PSN；对端的 rq_psn" },
	  { "24 bits, random, new for each connection",
	    "24 位，随机，每次连接换新的" } },
	{ IBV_QP_MAX_DEST_RD_ATOMIC,
	  "MAX_DEST_RD_ATOMIC",
	  "max_dest_rd_atomic",
	  QP_ATTR_CHOSEN,
	  { "how many READs and atomics of the peer I serve at once",
	    "同时为对端服务几个 READ 和 atomic" },
	  { "1 ... max_qp_rd_atom; 0: the peer's READs fail",
	    "1 ... max_qp_rd_atom；0：对端的 READ 失败" } },
	{ IBV_QP_PATH_MIG_STATE,
	  "PATH_MIG_STATE",
	  "path_mig_state",
	  QP_ATTR_CHOSEN,
	  { "the state of the migration to the alternate path",
	    "向备用路径迁移到了哪一步" },
	  { "IBV_MIG_MIGRATED, IBV_MIG_REARM, IBV_MIG_ARMED",
	    "IBV_MIG_MIGRATED、IBV_MIG_REARM、IBV_MIG_ARMED" } },
	{ IBV_QP_CAP,
	  "CAP",
	  "cap",
	  QP_ATTR_CHOSEN,
	  { "new sizes of the queues", "队列的新大小" },
	  { "in no transition: ibv_create_qp decides the sizes",
	    "不在任何转换里：大小由 ibv_create_qp 决定" } },
	{ IBV_QP_DEST_QPN,
	  "DEST_QPN",
	  "dest_qp_num",
	  QP_ATTR_PEER,
	  { "number of the peer's QP", "对端 QP 的编号" },
	  { "24 bits; 0 and 1 are not for programs",
	    "24 位；0 和 1 不供程序使用" } },
	{ IBV_QP_RATE_LIMIT,
	  "RATE_LIMIT",
	  "rate_limit",
	  QP_ATTR_CHOSEN,
	  { "rate at which a RAW_PACKET QP sends", "RAW_PACKET QP 的发送速率" },
	  { "kbit/s; for other types EOPNOTSUPP",
	    "kbit/s；其他类型：EOPNOTSUPP" } },
};

const struct qp_attr_info *qp_attr_infos(size_t *count)
{
	*count = sizeof(attr_infos) / sizeof(attr_infos[0]);
	return attr_infos;
}

const char *const *qp_transition_note(enum ibv_qp_type type,
				      enum ibv_qp_state from,
				      enum ibv_qp_state to)
{
	static const char *const adds_port[] = {
		"AV from a program is refused all the same: uverbs adds PORT "
		"to "
		"it, which this row does not allow",
		"程序给的 AV 仍会被拒绝：uverbs 给它加上 PORT，而这一行不允许 "
		"PORT",
	};
	static const char *const never[] = {
		"rxe never enters SQE: a failed send ends in ERR",
		"rxe 从不进 SQE：send 失败就到 ERR",
	};

	if (!has_table(type))
		return NULL;
	if (type == IBV_QPT_UC && from == IBV_QPS_SQD && to == IBV_QPS_SQD)
		return adds_port;
	return from == IBV_QPS_SQE && to == IBV_QPS_RTS ? never : NULL;
}

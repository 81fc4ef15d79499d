// SPDX-License-Identifier: MIT
/*
 * qp_state.c —— 第 3 阶段：QP 的状态机 RESET → INIT → RTR → RTS
 *
 * 刚建好的 QP 什么都不会做。它要分三步“上台阶”，每一步只接受规定的属性：
 *
 *	RESET ──port, pkey, access──> INIT ──对端是谁、从哪个 PSN 收起──> RTR
 *	RTR ──从哪个 PSN 发起、超时与重试──> RTS
 *
 * 为什么分这么细？因为 INIT→RTR 需要对端的 QPN/GID/PSN，只有交换过（第 4 阶段）
 * 才知道；而“能收”（RTR）必须先于“能发”（RTS）：若一端先到 RTS 就发，另一端还没
 * 到 RTR，包会被丢掉，只能靠重传补救。
 *
 * 少一个 mask 位、多一个 mask 位、状态不对，内核一律回 EINVAL，不再多说。
 */
#include "rdma_common.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* 时间类参数用的是“指数编码”，写成名字免得误读（IBTA 9.7.6.1.3、9.7.5.2.8）。*/
enum {
	TIMEOUT_67_MS = 14,   /* 4.096 µs × 2^14：等 ACK 的时间 */
	RETRY_6 = 6,	      /* 重传次数；7 在 rxe 上是永不放弃 */
	RNR_RETRY_EVER = 7,   /* 对端还没 post receive 时：一直等 */
	RNR_TIMER_064 = 12,   /* 告诉对端：RNR 之后 0.64 ms 再试 */
	RD_ATOMIC_DEPTH = 16, /* 同时在途的 READ/ATOMIC 数 */
	HOP_LIMIT = 64,	      /* IP TTL；1 过不了路由器 */
};

int modify_qp(struct rdma_resources *res, struct ibv_qp_attr *attr, int mask)
{
	/* ibv_modify_qp 返回错误码本身；此时 errno 可能是陈旧的，不要看它。*/
	int err = ibv_modify_qp(res->qp, attr, mask);

	return err ? modify_qp_failed(res->qp, attr, mask, err) : 0;
}

/*
 * 返回 0 不等于值都对：rxe 对很多坏值照收不误，几秒后才表现为“没有 completion”。
 * 趁现在还知道是谁给的，先警告。
 */
static int step(struct rdma_resources *res, struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = res->qp->state;
	int rc = modify_qp(res, attr, mask);

	if (!rc)
		warn_of_accepted(res->qp, attr, mask, from);
	return rc;
}

/*
 * 第一个包的 PSN 取 24 位随机数。固定值（例如 0）会让“上一条连接里迟到的包”
 * 恰好落进新连接的窗口，被当成合法数据收下。
 */
static int choose_psn(struct rdma_resources *res)
{
	if (getrandom(&res->psn, sizeof(res->psn), 0) != sizeof(res->psn))
		return call_failed(errno, "getrandom(4 bytes)");
	res->psn &= 0xffffff; /* BTH 里只有 24 位 */
	return 0;
}

/* 一端能发起多少个 READ，由另一端能应付多少个决定；两端都不能超过网卡的上限。*/
static uint8_t reads_at_once(const struct rdma_resources *res, int device_limit)
{
	int wanted = res->max_reads ? res->max_reads : RD_ATOMIC_DEPTH;

	return (uint8_t)(wanted < device_limit ? wanted : device_limit);
}

// region to-init
int modify_qp_to_init(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0, /* 默认分区；RoCE 上不起作用，但必须给 */
		.port_num = res->ib_port,
		/* 这是 QP 一级的“总闸”：MR 允许、QP 不允许，对端仍会被拒。*/
		.qp_access_flags =
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	};
	int rc = choose_psn(res);

	if (rc)
		return rc;
	return step(res, &attr,
		    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS);
}
// endregion to-init

enum ibv_mtu path_mtu(const struct rdma_resources *res)
{
	enum ibv_mtu mine = res->port_attr.active_mtu;
	enum ibv_mtu peers = (enum ibv_mtu)res->remote.active_mtu;

	/*
	 * 两端的 path_mtu 必须相同，且不能超过各自网卡的 MTU。写死 1024 会在
	 * MTU 较小的链路上丢包，在较大的链路上白白浪费带宽；取两者中较小的。
	 */
	return mine < peers ? mine : peers;
}

// region to-rtr
struct ibv_qp_attr rtr_attributes(const struct rdma_resources *res)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = path_mtu(res),
		.dest_qp_num = res->remote.qp_num,
		/* 我期待的第一个包的 PSN = 对端的 sq_psn。不一致则收不到。*/
		.rq_psn = res->remote.psn,
		.max_dest_rd_atomic = reads_at_once(
			res, res->device_attr.max_qp_rd_atom),
		.min_rnr_timer = RNR_TIMER_064,
		.ah_attr = {
			/*
			 * RoCE 没有 LID，寻址全靠 GRH 里的 GID（即 IP 地址），
			 * 所以 is_global 恒为 1。不能用“GID 前几个字节非零”来
			 * 判断：::ffff:a.b.c.d 的前 10 个字节都是零。
			 */
			.is_global = 1,
			/* 对端的 LID：RoCE 上是 0，没有人看；InfiniBand 子网里靠它找路。*/
			.dlid = res->remote.lid,
			.port_num = res->ib_port,
			.grh = {
				.sgid_index = res->gid_index,
				.hop_limit = HOP_LIMIT,
			},
		},
	};

	memcpy(attr.ah_attr.grh.dgid.raw, res->remote.gid, 16);
	return attr;
}

int modify_qp_to_rtr(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = rtr_attributes(res);

	/*
	 * 内核在这里把对端 IP 解析成 MAC（查路由、发 ARP）。所以这一步可能要
	 * 1 秒，也可能以 ETIMEDOUT / ENETUNREACH 失败：那是网络问题，不是 QP 的。
	 */
	return step(res, &attr,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}
// endregion to-rtr

// region to-rts
struct ibv_qp_attr rts_attributes(const struct rdma_resources *res)
{
	return (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = res->psn,
		.timeout = TIMEOUT_67_MS,
		.retry_cnt = RETRY_6,
		.rnr_retry = RNR_RETRY_EVER,
		/* 0 会让之后的 RDMA READ 永远卡住（rxe 上没有任何报错）。*/
		.max_rd_atomic = reads_at_once(
			res, res->device_attr.max_qp_init_rd_atom),
	};
}

int modify_qp_to_rts(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = rts_attributes(res);

	return step(res, &attr,
		    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_MAX_QP_RD_ATOMIC);
}
// endregion to-rts

int modify_qp_to_error(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	/*
	 * 从 INIT 起的任何状态都能去 ERR；唯独 RESET→ERR 不行（EINVAL）。进入 ERR
	 * 后，未完成的 WR 都以 WR_FLUSH_ERR 的 completion 交还（Linux 6.1 的 rxe 有
	 * 一个例外：进了 ERR 之后才 post 的 receive 不会被 flush）。
	 */
	return step(res, &attr, IBV_QP_STATE);
}

int modify_qp_to_reset(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	/* ERR 的唯一出口。队列被清空且不产生 completion；之后要重走整个台阶。*/
	return step(res, &attr, IBV_QP_STATE);
}

int query_qp(struct rdma_resources *res, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;
	int err;

	/*
	 * res->qp->state 只是 libibverbs 的缓存：出现异步错误后它仍显示 RTS。
	 * ibv_query_qp 才会去问内核。
	 */
	memset(attr, 0, sizeof(*attr));
	err = ibv_query_qp(res->qp, attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
			   &init);
	return err ? call_failed(err, "ibv_query_qp(QP %u)", res->qp->qp_num)
		   : 0;
}

// SPDX-License-Identifier: MIT
/*
 * datagram.c —— 第 10 阶段：UD，不用连接，一个 QP 对所有人
 *
 * RC 是一个 QP 对一个对端；UD（Unreliable Datagram）的每次 SEND 自己带地址：AH 说走哪条
 * 路、到哪个 GID，QPN 说是那里的哪个 QP，Q_Key 是暗号，不对就丢。没有 ACK，没有重传，
 * 没有次序：status 0 只说“发出去了”。所以收不到的时候，两边往往都一声不吭。
 */
#include "base/report.h"
#include "rdma_common.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define HOP_LIMIT 64

// region datagram-qp
int create_datagram_qp(struct rdma_resources *res, uint32_t qkey)
{
	struct ibv_qp_init_attr init = {
		.send_cq = res->cq,
		.recv_cq = res->cq,
		.cap = { .max_send_wr = res->send_slots,
			 .max_recv_wr = res->recv_slots,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};
	/* INIT 要 Q_Key，没有 ACCESS_FLAGS：UD 没有 READ、WRITE。*/
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = res->ib_port,
				    .qkey = qkey };
	int rc;

	res->posted =
		calloc(res->recv_slots + res->send_slots, sizeof(*res->posted));
	if (!res->posted)
		return call_failed(ENOMEM, "calloc(requests)");
	res->qp = ibv_create_qp(res->pd, &init);
	if (!res->qp)
		return create_qp_failed(res->pd, &init, errno);
	rc = modify_qp(res, &attr,
		       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			       IBV_QP_QKEY);
	/* 没有对端，RTR、RTS 也就没有地址、PSN、超时可填：两步都只改 state。*/
	attr.qp_state = IBV_QPS_RTR;
	if (!rc)
		rc = modify_qp(res, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	if (!rc)
		rc = modify_qp(res, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return rc;
}
// endregion datagram-qp

// region address-handle
int create_ah(struct rdma_resources *res, const uint8_t gid[16],
	      struct ibv_ah **ah)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, /* RoCE 上恒为 1，否则 EINVAL */
		.port_num = res->ib_port,
		.grh = { .sgid_index = res->gid_index, .hop_limit = HOP_LIMIT },
	};
	char text[GID_TEXT_SIZE];

	memcpy(attr.grh.dgid.raw, gid, 16);
	/* RC 在 INIT→RTR 里做的那件事：GID 解析成 MAC，没人应就是一秒后 ETIMEDOUT。*/
	*ah = ibv_create_ah(res->pd, &attr);
	return *ah ? 0
		   : call_failed(errno, "ibv_create_ah(%s)",
				 gid_text(text, gid));
}

char *datagram_of(const struct rdma_resources *res, const struct ibv_wc *wc,
		  uint32_t *length)
{
	char *head = recv_slot(res, WR_ID_SLOT(wc->wr_id));

	if (wc->byte_len < GRH_BYTES)
		return NULL;
	*length = wc->byte_len - GRH_BYTES;
	return head + GRH_BYTES;
}

/*
 * 0x45 也可能是 IPv6 源地址的第 13 个字节，所以再看是不是 UDP。校验和靠不住：rxe 与自己说
 * 话时不填。
 */
static bool is_ipv4_header(const uint8_t *ip)
{
	return ip[0] == 0x45 && ip[9] == IPPROTO_UDP;
}

int answer_datagram(struct rdma_resources *res, const struct ibv_wc *wc,
		    struct ibv_ah **ah)
{
	const char *head = recv_slot(res, WR_ID_SLOT(wc->wr_id));
	uint8_t from[16] = { [10] = 0xff, [11] = 0xff };

	/*
	 * 来的包里就有回去的路：那 40 个字节，加上 wc->src_qp。RoCE v2 的 IPv4 包，IP 头在
	 * 后 20 个字节；IPv6 头占满 40 个。ibv_create_ah_from_wc() 也这样认，但它还要在 GID
	 * 表里找“发给谁”，多播来的就找不到（EINVAL）。
	 */
	if (is_ipv4_header((const uint8_t *)head + 20))
		memcpy(from + 12, head + 32, 4);
	else
		memcpy(from, head + 8, 16);
	return create_ah(res, from, ah);
}

int post_datagram(struct rdma_resources *res, uint32_t slot, uint32_t length,
		  struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)send_slot(res, slot),
			       .length = length,
			       .lkey = res->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = WR_ID_SEND(slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = qkey },
	};
	uint32_t most = mtu_bytes(res->port_attr.active_mtu);

	/* 一个 datagram 就是一个包，没有人替它分段。rxe 对太长的照样回 status 0，却不发。*/
	return length <= most
		       ? post_request(res, &wr)
		       : fail(-EMSGSIZE, "send less, or use RC",
			      "a datagram of %u bytes is longer than the "
			      "active MTU, %u",
			      length, most);
}
// endregion address-handle

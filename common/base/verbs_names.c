// SPDX-License-Identifier: MIT
/*
 * verbs_names.c —— 把 verbs 里的数字变成人读的样子
 */
#include "verbs_names.h"

#include <arpa/inet.h>
#include <stdio.h>

unsigned int mtu_bytes(enum ibv_mtu mtu)
{
	/* enum ibv_mtu 不是字节数：IBV_MTU_256 = 1 … IBV_MTU_4096 = 5。*/
	if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096)
		return 0;
	return 128u << mtu;
}

const char *gid_text(char *out, const uint8_t gid[16])
{
	/* GID 与 IPv6 地址同为 16 字节、同样是网络字节序，所以可以直接借用。*/
	return inet_ntop(AF_INET6, gid, out, GID_TEXT_SIZE);
}

const char *wr_opcode_name(unsigned int opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "RDMA_WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA_WRITE_WITH_IMM",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM",
		[IBV_WR_RDMA_READ] = "RDMA_READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
		[IBV_WR_LOCAL_INV] = "LOCAL_INV",
		[IBV_WR_BIND_MW] = "BIND_MW",
		[IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
		[IBV_WR_TSO] = "TSO",
		[IBV_WR_DRIVER1] = "DRIVER1",
	};

	/* 枚举中间有空洞，所以表里也可能是 NULL。*/
	if (opcode >= sizeof(names) / sizeof(names[0]) || !names[opcode])
		return "UNKNOWN";
	return names[opcode];
}

const char *wc_status_name(unsigned int status)
{
#define STATUS(name) [IBV_WC_##name] = #name
	static const char *const names[] = {
		STATUS(SUCCESS),
		STATUS(LOC_LEN_ERR),
		STATUS(LOC_QP_OP_ERR),
		STATUS(LOC_EEC_OP_ERR),
		STATUS(LOC_PROT_ERR),
		STATUS(WR_FLUSH_ERR),
		STATUS(MW_BIND_ERR),
		STATUS(BAD_RESP_ERR),
		STATUS(LOC_ACCESS_ERR),
		STATUS(REM_INV_REQ_ERR),
		STATUS(REM_ACCESS_ERR),
		STATUS(REM_OP_ERR),
		STATUS(RETRY_EXC_ERR),
		STATUS(RNR_RETRY_EXC_ERR),
		STATUS(LOC_RDD_VIOL_ERR),
		STATUS(REM_INV_RD_REQ_ERR),
		STATUS(REM_ABORT_ERR),
		STATUS(INV_EECN_ERR),
		STATUS(INV_EEC_STATE_ERR),
		STATUS(FATAL_ERR),
		STATUS(RESP_TIMEOUT_ERR),
		STATUS(GENERAL_ERR),
		STATUS(TM_ERR),
		STATUS(TM_RNDV_INCOMPLETE),
	};

	return status < sizeof(names) / sizeof(names[0]) ? names[status]
							 : "UNKNOWN";
}

const char *gid_type_name(uint32_t gid_type)
{
	static const char *const names[] = {
		[IBV_GID_TYPE_IB] = "IB",
		[IBV_GID_TYPE_ROCE_V1] = "RoCE v1",
		[IBV_GID_TYPE_ROCE_V2] = "RoCE v2",
	};

	return gid_type < sizeof(names) / sizeof(names[0]) ? names[gid_type]
							   : "unknown";
}

// clang-format off
#define FLAG(name) { IBV_ACCESS_##name, #name }
// clang-format on
const char *access_text(char *out, size_t size, unsigned int flags)
{
	static const struct {
		unsigned int bit;
		const char *name;
	} names[] = {
		FLAG(LOCAL_WRITE),   FLAG(REMOTE_WRITE), FLAG(REMOTE_READ),
		FLAG(REMOTE_ATOMIC), FLAG(MW_BIND),	 FLAG(ZERO_BASED),
		FLAG(ON_DEMAND),     FLAG(HUGETLB),	 FLAG(RELAXED_ORDERING),
	};
	size_t used = 0;

	snprintf(out, size, "0");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if ((flags & names[i].bit) && used < size)
			used += (size_t)snprintf(out + used, size - used,
						 "%s%s", used ? "|" : "",
						 names[i].name);
	return out;
}

// SPDX-License-Identifier: MIT
/*
 * tcp_sync.c —— 第 4 阶段：用 TCP 把“连上彼此所需的一切”告诉对方
 *
 * RDMA 的 RC QP 自己不会“握手”：INIT→RTR 之前就必须知道对端的 QPN、GID、PSN。
 * 这些信息总得从别处来——这里用一条普通的 TCP 连接（out-of-band）。它只走控制面，
 * 数据一个字节也不经过它。
 *
 * 线上依次是（全部 big-endian、无填充）：
 *
 *	hello          magic(4) version(2) length(2)
 *	cm_con_data_t  qp_num(4) lid(2) gid(16) psn(4) active_mtu(1)
 *	               addr(8) rkey(4) size(4)                    共 43 字节
 *	sync           magic(4) step(4) status(4)      在每个同步点各发一次
 *
 * 对端不可信：它可能说的是 HTTP，可能只发半个结构体，可能什么都不发，也可能在
 * 任何一步消失。所以读写都精确计数、都有期限，收到的每个字段都要检查。
 */
#include "rdma_common.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int sock_sync_data(int sock, size_t size, const void *local, void *remote,
		   int64_t deadline, const char *what)
{
	/* 两端都“先写后读”：数据小于 socket buffer 就不会互相等死，这里只有几十字节。*/
	int rc = sock_write_exact(sock, local, size, deadline, what);

	return rc ? rc : sock_read_exact(sock, remote, size, deadline, what);
}

// region sync-step
int sock_sync_step(int sock, enum sync_step step, int status, int64_t deadline)
{
	struct sync_msg mine = {
		.magic = htobe32(SYNC_MAGIC),
		.step = htobe32(step),
		.status = htobe32((uint32_t)-status),
	};
	struct sync_msg peers;
	int rc;

	/* 自己失败了也要告诉对端，否则对端只会看到“等了很久，什么都没有”。*/
	if (status) {
		(void)send(sock, &mine, sizeof(mine),
			   MSG_DONTWAIT | MSG_NOSIGNAL);
		return status;
	}
	rc = sock_sync_data(sock, sizeof(mine), &mine, &peers, deadline,
			    "sync message");
	return rc ? rc : check_sync(&peers, step);
}
// endregion sync-step

struct cm_con_data_t cm_con_data_of(const struct rdma_resources *res)
{
	struct cm_con_data_t data = {
		.qp_num = res->qp->qp_num,
		.lid = res->port_attr.lid,
		.psn = res->psn,
		.active_mtu = (uint8_t)res->port_attr.active_mtu,
		.addr = (uintptr_t)res->buf,
		.rkey = res->mr ? res->mr->rkey : 0,
		.size = res->msg_size,
	};

	memcpy(data.gid, res->gid.raw, sizeof(data.gid));
	return data;
}

// region wire
struct cm_con_data_t cm_con_data_to_wire(struct cm_con_data_t data)
{
	/*
	 * 每个整数都转成网络字节序。两台同为 x86 的机器不转也“碰巧能用”，一旦
	 * 对端是 big-endian，QPN 0x11 就成了 0x11000000，表现为 RETRY_EXC。
	 * gid 是 16 个字节的串，本来就是网络字节序，不动它。
	 */
	data.qp_num = htobe32(data.qp_num);
	data.lid = htobe16(data.lid);
	data.psn = htobe32(data.psn);
	data.addr = htobe64(data.addr);
	data.rkey = htobe32(data.rkey);
	data.size = htobe32(data.size);
	return data;
}
// endregion wire

// region exchange
int exchange_cm_con_data(struct rdma_resources *res, int sock, int64_t deadline)
{
	struct hello mine = {
		.magic = htobe32(HELLO_MAGIC),
		.version = htobe16(HELLO_VERSION),
		.length = htobe16(sizeof(struct cm_con_data_t)),
	};
	struct cm_con_data_t local = cm_con_data_to_wire(cm_con_data_of(res));
	struct hello peers;
	struct cm_con_data_t remote;
	int rc;

	/*
	 * 先用定长的 hello 确认“对面是我们的程序、同一个版本”，再读后面的数据。
	 * 否则一个走错门的 HTTP client 也会被解析成 QPN 和 GID。
	 */
	rc = sock_sync_data(sock, sizeof(mine), &mine, &peers, deadline,
			    "hello");
	if (!rc)
		rc = check_hello(&peers);
	if (!rc)
		rc = sock_sync_data(sock, sizeof(local), &local, &remote,
				    deadline, "cm_con_data_t");
	if (rc)
		return rc;
	remote = cm_con_data_to_wire(remote); /* 字节交换是自己的逆运算 */
	rc = check_cm_con_data(&remote);
	if (!rc)
		res->remote = remote;
	return rc;
}
// endregion exchange

// region connect-qp
int connect_qp(struct rdma_resources *res, int sock, int64_t deadline)
{
	int rc = exchange_cm_con_data(res, sock, deadline);

	if (rc)
		return rc;
	rc = modify_qp_to_rtr(res);
	if (!rc)
		rc = modify_qp_to_rts(res);
	/*
	 * 同步点：对端也到了 RTS、也 post 过 receive，才可以发第一个包。少了这一步，
	 * 先到的一方会发给一个还没准备好的 QP：轻则 RNR 重试，重则 RETRY_EXC。
	 */
	return sock_sync_step(sock, SYNC_READY, rc, deadline);
}
// endregion connect-qp

// SPDX-License-Identifier: MIT
/*
 * contract.c —— 直接调用某一阶段的函数，照着契约问：rdma_server 与 rdma_client 问不到的
 *
 *	contract objects [SIZE]  第 2 阶段：建、拆两遍，打印 buf 是怎样分的
 *	contract psns            第 3 阶段：24 次 INIT，各次的 PSN 合起来是什么
 *	contract reads N         第 3 阶段：max_reads 为 N 时走到 RTS
 *	contract query           第 3 阶段：query_qp() 说 QP 在什么状态
 *	contract remote PORT     第 4 阶段：对端的数据被拒之后，res->remote 还是原来的吗
 */
#include "base/deadline.h"
#include "rdma_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show_buffer(const struct rdma_resources *r)
{
	const char *mr = r->mr->addr, *end = mr + r->mr->length;
	const char *last = send_slot(r, r->send_slots - 1);

	printf("slots %u %u apart %d covered %d state %d\n", r->recv_slots,
	       r->send_slots, send_slot(r, 0) - recv_slot(r, 0) >= r->msg_size,
	       mr <= r->buf && last + r->msg_size <= end, r->qp->state);
}

static int objects(const struct rdma_config *config)
{
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		struct rdma_resources res = { 0 };

		rc = init_rdma_resources(&res, config);
		if (rc)
			break;
		if (!i)
			show_buffer(&res);
		rc = destroy_rdma_resources(&res);
		printf("taken down %d\n", !rc);
	}
	return rc;
}

static int psns(struct rdma_resources *res)
{
	uint32_t seen[24], any = 0, all = ~0u;
	int rc = 0, same = 0;

	for (int i = 0; i < 24 && !rc; i++) {
		rc = modify_qp_to_init(res);
		seen[i] = res->psn;
		any |= res->psn;
		all &= res->psn;
		for (int j = 0; j < i; j++)
			same += seen[j] == seen[i];
		if (!rc)
			rc = modify_qp_to_reset(res);
	}
	printf("bits that were ever 1: 0x%06x, always 1: 0x%06x, the same: "
	       "%d\n",
	       any, all, same);
	return rc;
}

static int reads(struct rdma_resources *res, int most)
{
	int rc;

	res->max_reads = (uint8_t)most;
	rc = modify_qp_to_init(res);
	res->remote = (struct cm_con_data_t){
		.qp_num = res->qp->qp_num,
		.psn = 5,
		.active_mtu = (uint8_t)res->port_attr.active_mtu,
	};
	memcpy(res->remote.gid, res->gid.raw, sizeof(res->remote.gid));
	if (!rc)
		rc = modify_qp_to_rtr(res);
	return rc ? rc : modify_qp_to_rts(res);
}

static int query(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_UNKNOWN };
	int rc = modify_qp_to_init(res);

	if (!rc)
		rc = query_qp(res, &attr);
	if (!rc)
		printf("state %s\n", attr.qp_state == IBV_QPS_ERR    ? "ERR"
				     : attr.qp_state == IBV_QPS_INIT ? "INIT"
								     : "?");
	return rc;
}

static int remote(struct rdma_resources *res, int port)
{
	const int64_t deadline = deadline_in_ms(2000);
	struct cm_con_data_t before;
	int rc = modify_qp_to_init(res);
	int sock = tcp_connect("127.0.0.1", (uint16_t)port, deadline);

	memset(&res->remote, 0x11, sizeof(res->remote));
	before = res->remote;
	if (!rc && sock >= 0)
		rc = exchange_cm_con_data(res, sock, deadline);
	printf("refused %d, remote %s\n", rc < 0,
	       memcmp(&before, &res->remote, sizeof(before)) ? "changed"
							     : "as before");
	sock_close(&sock);
	return rc;
}

int main(int argc, char *argv[])
{
	const char *what = argc > 1 ? argv[1] : "";
	const int n = argc > 2 ? atoi(argv[2]) : 5000;
	struct rdma_config config = {
		.device_name = "rxe0",
		.gid_index = GID_INDEX_AUTO,
		.msg_size = (uint32_t)n,
		.recv_slots = 3,
		.send_slots = 2,
		.events = true,
	};
	struct rdma_resources res = { 0 };
	int rc, undo;

	if (!strcmp(what, "objects"))
		return objects(&config) ? 1 : 0;
	config.msg_size = 64;
	rc = init_rdma_resources(&res, &config);
	if (!rc)
		rc = !strcmp(what, "psns")    ? psns(&res)
		     : !strcmp(what, "reads") ? reads(&res, n)
		     : !strcmp(what, "query") ? query(&res)
					      : remote(&res, n);
	undo = destroy_rdma_resources(&res);
	return rc || undo ? 1 : 0;
}

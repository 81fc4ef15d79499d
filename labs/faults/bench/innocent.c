// SPDX-License-Identifier: MIT
/*
 * innocent.c —— 没有错的程序，看上去却像有错：一个进程里两个 QP，
 *
 *	reset	发过消息之后回到 RESET，再连一次
 *	flush	挂着 receive 转到 ERR，把 flush 都收走：正常的收尾
 *	idle	连好了，5 秒之内没有话要说
 *	probe	先要太多，被拒绝了再少要些：问设备的上限
 */
#include "rdma_common.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECEIVES 4

static int climb(struct rdma_resources *a, struct rdma_resources *b)
{
	int rc = modify_qp_to_init(a) || modify_qp_to_init(b);

	a->remote = cm_con_data_of(b);
	b->remote = cm_con_data_of(a);
	for (uint32_t i = 0; !rc && i < RECEIVES; i++)
		rc = post_receive(b, i);
	return rc || modify_qp_to_rtr(a) || modify_qp_to_rtr(b) ||
	       modify_qp_to_rts(a) || modify_qp_to_rts(b);
}

static int say(struct rdma_resources *a, struct rdma_resources *b)
{
	struct ibv_wc wc;

	return post_send(a, 0, 64, true) ||
	       await_completion(a, WR_ID_SEND(0), &wc, POLL_TIMEOUT_MS) ||
	       await_completion(b, WR_ID_RECV(0), &wc, POLL_TIMEOUT_MS);
}

static int reset(struct rdma_resources *a, struct rdma_resources *b)
{
	return say(a, b) || modify_qp_to_reset(a) || modify_qp_to_reset(b) ||
	       climb(a, b) || say(a, b);
}

static int flush(struct rdma_resources *a, struct rdma_resources *b)
{
	struct ibv_wc wc;
	int rc = say(a, b) || modify_qp_to_error(b);

	for (int i = 0; !rc && i < 100; i++) {
		ibv_poll_cq(b->cq, 1, &wc);
		usleep(1000);
	}
	return rc;
}

static int idle(struct rdma_resources *a, struct rdma_resources *b)
{
	sleep(5);
	return say(a, b);
}

static int probe(struct rdma_resources *a, struct rdma_resources *b)
{
	const int access = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = a->cq,
		.recv_cq = a->cq,
		.cap = { .max_send_wr = 1 << 20, .max_send_sge = 1 },
	};
	struct ibv_mr *mr = ibv_reg_mr(a->pd, a->buf, a->buf_size,
				       access | IBV_ACCESS_ON_DEMAND);
	struct ibv_cq *cq = ibv_create_cq(a->context, 1 << 30, NULL, NULL, 0);
	struct ibv_qp *qp;

	while (!(qp = ibv_create_qp(a->pd, &init)) && init.cap.max_send_wr)
		init.cap.max_send_wr /= 2;
	if (mr)
		ibv_dereg_mr(mr);
	if (cq)
		ibv_destroy_cq(cq);
	return qp && !ibv_destroy_qp(qp) ? say(a, b) : -1;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct rdma_resources *a, struct rdma_resources *b);
	} ways[] = { { "reset", reset },
		     { "flush", flush },
		     { "idle", idle },
		     { "probe", probe } };
	const struct rdma_config config = { .gid_index = GID_INDEX_AUTO,
					    .msg_size = DEFAULT_MSG_SIZE,
					    .recv_slots = RECEIVES };
	struct rdma_resources a = { 0 }, b = { 0 };
	int rc = 1;

	for (size_t i = 0; argc == 2 && i < sizeof(ways) / sizeof(*ways); i++)
		if (!strcmp(argv[1], ways[i].name))
			rc = init_rdma_resources(&a, &config) ||
			     init_rdma_resources(&b, &config) ||
			     climb(&a, &b) || ways[i].run(&a, &b);
	if (rc)
		fprintf(stderr, "innocent: reset, flush, idle or probe\n");
	destroy_rdma_resources(&b);
	destroy_rdma_resources(&a);
	return rc;
}

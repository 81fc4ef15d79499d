// SPDX-License-Identifier: MIT
/* 第 0 课：第一条消息。同一个进程里，QP A 发，QP B 收。cc first.c -libverbs */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// region device
/* verbs 失败时，有的返回错误码（OK），有的返回 NULL 并设 errno（MADE）。*/
#define OK(call)   check(call, #call)
#define MADE(call) ((call) ?: check(errno, #call))

static void *check(int err, const char *call) /* 失败就退出，内核来收尾 */
{
	if (!err)
		return NULL;
	fprintf(stderr, "error: %s: %s\n", call, strerror(err));
	fputs(" next: labs/lab run labs/qptrace CMD explains it\n", stderr);
	exit(err == ENODEV || err == ENOSYS ? 77 : 1 + (err == E2BIG));
}

/* 没点名就取第一个设备。条目归列表所有，所以先 open，后释放列表。*/
static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = MADE(ibv_get_device_list(NULL)), **it = list;

	check(*list ? 0 : ENODEV, "ibv_get_device_list()");
	while (*it && name && strcmp(ibv_get_device_name(*it), name))
		it++;
	check(*it ? 0 : ENXIO, name);
	struct ibv_context *context = MADE(ibv_open_device(*it));
	ibv_free_device_list(list);
	return context;
}

/* GID 是 port 的地址，在 RoCE v2 里就是 IP。它在表里的位置因机器而异：问类型。*/
static struct ibv_gid_entry find_gid(struct ibv_context *context)
{
	struct ibv_gid_entry e, found = { 0 };

	for (uint32_t i = 0; i < 256; i++)
		if (!ibv_query_gid_ex(context, 1, i, &e, 0) &&
		    e.gid_type == IBV_GID_TYPE_ROCE_V2)
			found = e;
	check(found.gid_type ? 0 : EADDRNOTAVAIL, "no RoCE v2 GID on port 1");
	return found;
}
// endregion device

// region connect
enum { /* 每一步的 mask：哪些字段算数。少给一个必需的就是 EINVAL。*/
	INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       IBV_QP_ACCESS_FLAGS,
	RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RTS = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
};

static void connect_qp(struct ibv_qp *qp, uint32_t psn, uint32_t peers_qpn,
		       uint32_t peers_psn, const struct ibv_gid_entry *gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	OK(ibv_modify_qp(qp, &attr, INIT)); /* RESET → INIT：用哪个端口 */
	/* RTR（能收）：对端是谁、在哪里，它的第一个包是几号。*/
	attr.qp_state = IBV_QPS_RTR;
	attr.dest_qp_num = peers_qpn;
	attr.rq_psn = peers_psn & 0xffffff; /* 24 位 */
	attr.path_mtu = IBV_MTU_1024;	    /* 一个包至多装多少字节 */
	attr.ah_attr.port_num = attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.dgid = gid->gid;
	attr.ah_attr.grh.sgid_index = (uint8_t)gid->gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
	OK(ibv_modify_qp(qp, &attr, RTR));
	/* RTS（能发）：自己的第一个包是几号，等 ACK 多久（67 ms），重发几次。*/
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn & 0xffffff;
	attr.timeout = 14;
	attr.retry_cnt = 6;
	OK(ibv_modify_qp(qp, &attr, RTS));
}
// endregion connect

// region transfer
/* post 只是登记，立即返回；设备做完了，CQ 里才有 completion。至多空转 5 秒。*/
static void transfer(struct ibv_qp *a, struct ibv_qp *b, struct ibv_mr *mr)
{
	struct ibv_sge from = { (uintptr_t)mr->addr, 17, mr->lkey };
	struct ibv_sge into = { from.addr + 64, 64, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &into, .num_sge = 1 }, *badr;
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1 }, *bads;
	clock_t end = clock() + 5 * CLOCKS_PER_SEC;
	struct ibv_wc wc = { 0 };

	OK(ibv_post_recv(b, &recv, &badr)); /* 先有地方放，才可以发 */
	send.opcode = IBV_WR_SEND;
	send.send_flags = IBV_SEND_SIGNALED; /* 做完了也要告诉我 */
	OK(ibv_post_send(a, &send, &bads));
	for (int n, done = 0; done < 2; done += n) {
		n = ibv_poll_cq(a->send_cq, 1, &wc);
		check(n < 0 ? EIO : clock() > end ? ETIME : 0, "ibv_poll_cq()");
		check(wc.status ? EIO : 0, ibv_wc_status_str(wc.status));
	}
}
// endregion transfer

int main(int argc, char *argv[])
{
	check(argc > 2 ? E2BIG : 0, argv[2]);
	setlinebuf(stdout);
	struct ibv_context *context = open_device(argv[1]);
	struct ibv_gid_entry gid = find_gid(context);
	printf("[Step 1] open %s\n", ibv_get_device_name(context->device));
	// region objects
	char half[2][64] = { "Hello from QP A!" }; /* 一半给 A，一半给 B */
	/* PD 是边界；MR 是登记过、设备才可以碰的内存；CQ 里来的是“做完了”。*/
	struct ibv_pd *pd = MADE(ibv_alloc_pd(context));
	int access = IBV_ACCESS_LOCAL_WRITE; /* 设备可以往里写 */
	struct ibv_mr *mr = MADE(ibv_reg_mr(pd, half, sizeof(half), access));
	struct ibv_cq *cq = MADE(ibv_create_cq(context, 2, NULL, NULL, 0));
	/* QP 是一对队列：SQ 与 RQ。RC：可靠、有序、一对一。各放得下一个请求。*/
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq };
	init.qp_type = IBV_QPT_RC;
	init.cap = (struct ibv_qp_cap){ 1, 1, 1, 1, 0 };
	struct ibv_qp *a = MADE(ibv_create_qp(pd, &init));
	struct ibv_qp *b = MADE(ibv_create_qp(pd, &init));
	// endregion objects
	printf("[Step 2] make a PD, an MR, a CQ and two QPs, A and B\n");
	// region cross
	uint32_t psn[2]; /* 随机：上一次迟到的包才不会混进来 */
	OK(getentropy(psn, sizeof(psn)) ? errno : 0);
	connect_qp(a, psn[0], b->qp_num, psn[1], &gid); /* 交叉着填 */
	connect_qp(b, psn[1], a->qp_num, psn[0], &gid);
	// endregion cross
	printf("[Step 3] tell A about B, and B about A: INIT, RTR, RTS\n");
	transfer(a, b, mr);
	printf("[Step 4] A's SEND is in B's RECV: \"%s\"\n", half[1]);
	/* 倒着拆：还有 QP 在用，CQ、PD 就拆不掉（EBUSY）。*/
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
	OK(ibv_destroy_cq(cq));
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context) ? errno : 0);
}

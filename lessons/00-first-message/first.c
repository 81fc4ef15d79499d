// SPDX-License-Identifier: MIT
/* 第 0 课：第一条消息。同一个进程里，QP A 发，QP B 收。cc first.c -libverbs */
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// region device
/* 失败就退出。建好的对象不必逐个销毁：进程结束时，内核会收回。*/
static void fail(const char *call, int err)
{
	fprintf(stderr, "error: %s: %s\n", call, strerror(err));
	fputs(" next: labs/lab run labs/qptrace CMD explains it\n", stderr);
	if (err == ENODEV)
		exit(77); /* 程序没错，只是这里没有设备，跑不了 */
	exit(1);
}

/* 有的 verb 返回错误码，由 check() 检查；有的返回 NULL 并设 errno，要立即检查。*/
static void check(const char *call, int err)
{
	if (err)
		fail(call, err);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i = 0;

	if (!list || !list[0])
		fail("ibv_get_device_list()", ENODEV);
	/* 列表以 NULL 结束。没有指定名字，就取第一个。*/
	while (name && list[i] && strcmp(ibv_get_device_name(list[i]), name))
		i++;
	if (!list[i])
		fail(name, ENXIO);
	struct ibv_context *context = ibv_open_device(list[i]);
	if (!context)
		fail("ibv_open_device()", errno);
	ibv_free_device_list(list); /* 设备归列表所有：先 open，后释放 */
	return context;
}

/*
 * GID 是端口的地址，在 RoCE v2 里就是 IP 地址。它在表里的位置因机器而异，所以按类型找。
 * 取 IPv4 的那一个（::ffff:a.b.c.d）：它能过路由器，关掉了 IPv6 也能用。没有才取别的。
 */
static struct ibv_gid_entry find_gid(struct ibv_context *context)
{
	struct ibv_gid_entry entry, found = { 0 };

	for (uint32_t i = 0; i < 256; i++) {
		if (ibv_query_gid_ex(context, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue; /* 这个位置是空的，或者是别的类型 */
		found = entry;
		if (IN6_IS_ADDR_V4MAPPED(entry.gid.raw))
			break;
	}
	if (found.gid_type != IBV_GID_TYPE_ROCE_V2)
		fail("no RoCE v2 GID on port 1", EADDRNOTAVAIL);
	return found;
}
// endregion device

// region connect
/* 新建的 QP 要走三步。mask 指明哪些字段有效：缺了必需的字段，就返回 EINVAL。*/
static void connect_qp(struct ibv_qp *qp, uint32_t psn, uint32_t peers_qpn,
		       uint32_t peers_psn, const struct ibv_gid_entry *gid)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   IBV_QP_ACCESS_FLAGS;

	/* RESET → INIT：用哪个端口（从 1 数起）。*/
	check("ibv_modify_qp(INIT)", ibv_modify_qp(qp, &attr, mask));
	/* INIT → RTR（能收）：对端是谁、在哪里，它的第一个包的序号。*/
	mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	attr.qp_state = IBV_QPS_RTR;
	attr.dest_qp_num = peers_qpn;
	attr.rq_psn = peers_psn & 0xffffff; /* 24 位 */
	attr.path_mtu = IBV_MTU_1024;	    /* 一个包至多装多少字节 */
	attr.max_dest_rd_atomic = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = 1; /* 地址是 GID：RoCE 上总是如此 */
	attr.ah_attr.grh.dgid = gid->gid; /* 两个 QP 在同一个端口：同一个 GID */
	attr.ah_attr.grh.sgid_index = (uint8_t)gid->gid_index;
	attr.ah_attr.grh.hop_limit = 64;
	check("ibv_modify_qp(RTR)", ibv_modify_qp(qp, &attr, mask));
	/* RTR → RTS（能发）：自己的第一个包的序号，等 ACK 的时间，重传的次数。*/
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
	       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn & 0xffffff;
	attr.timeout = 14; /* 4.096 µs × 2^14，约 67 ms */
	attr.retry_cnt = 6;
	attr.max_rd_atomic = 1;
	check("ibv_modify_qp(RTS)", ibv_modify_qp(qp, &attr, mask));
}
// endregion connect

// region transfer
/* post 只是把请求放进队列，立即返回。先 post receive：有地方放数据，才可以发送。*/
static void transfer(struct ibv_qp *a, struct ibv_qp *b, struct ibv_mr *mr)
{
	struct ibv_sge from = { .addr = (uintptr_t)mr->addr, .length = 17 };
	struct ibv_sge into = { .addr = from.addr + 64, .length = 64 };
	struct ibv_recv_wr recv = { .sg_list = &into, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1 }, *bad_send;

	from.lkey = into.lkey = mr->lkey;
	check("ibv_post_recv(B)", ibv_post_recv(b, &recv, &bad_recv));
	send.opcode = IBV_WR_SEND;
	send.send_flags = IBV_SEND_SIGNALED; /* 完成时要产生 completion */
	check("ibv_post_send(A)", ibv_post_send(a, &send, &bad_send));
}

/* 请求完成后，CQ 里才有 completion。反复轮询，直到取到 @count 个，而且都成功。*/
static void wait_for(struct ibv_cq *cq, int count)
{
	time_t end = time(NULL) + 5;
	struct ibv_wc wc;

	while (count > 0) {
		int n = ibv_poll_cq(cq, 1, &wc);

		if (n < 0)
			fail("ibv_poll_cq()", EIO);
		if (n == 0 && time(NULL) > end)
			fail("ibv_poll_cq()", ETIME);
		if (n == 1 && wc.status != IBV_WC_SUCCESS)
			fail(ibv_wc_status_str(wc.status), EIO);
		count -= n;
	}
}
// endregion transfer

int main(int argc, char *argv[])
{
	if (argc > 2) {
		fprintf(stderr, "usage: %s [device]\n", argv[0]);
		return 2;
	}
	setlinebuf(stdout);
	struct ibv_context *context = open_device(argv[1]);
	struct ibv_gid_entry gid = find_gid(context);
	printf("[Step 1] open %s, take GID %u of port 1\n",
	       ibv_get_device_name(context->device), gid.gid_index);
	// region objects
	char half[2][64] = { "Hello from QP A!" }; /* 一半给 A，一半给 B */
	/* PD 是边界：里面的 QP 只能用里面的 MR。*/
	struct ibv_pd *pd = ibv_alloc_pd(context);
	if (!pd)
		fail("ibv_alloc_pd()", errno);
	/* MR 是注册过的内存，设备只能访问这些内存。LOCAL_WRITE：设备可以往里写。*/
	unsigned int access = IBV_ACCESS_LOCAL_WRITE;
	struct ibv_mr *mr = ibv_reg_mr(pd, half, sizeof(half), access);
	if (!mr)
		fail("ibv_reg_mr()", errno);
	/* CQ 接收 completion：SEND 和 RECV 各一个，共两个位置。*/
	struct ibv_cq *cq = ibv_create_cq(context, 2, NULL, NULL, 0);
	if (!cq)
		fail("ibv_create_cq()", errno);
	/* QP 是一对队列，SQ 与 RQ，各放一个请求。RC：可靠、有序、一对一。*/
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq };
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = init.cap.max_recv_wr = 1;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	struct ibv_qp *a = ibv_create_qp(pd, &init);
	struct ibv_qp *b = ibv_create_qp(pd, &init);
	if (!a || !b)
		fail("ibv_create_qp()", errno);
	// endregion objects
	printf("[Step 2] make a PD, an MR, a CQ and two QPs, A and B\n");
	// region cross
	uint32_t psn[2]; /* 随机：上一次迟到的包才不会混进来 */
	if (getentropy(psn, sizeof(psn)))
		fail("getentropy()", errno);
	connect_qp(a, psn[0], b->qp_num, psn[1], &gid); /* 交叉着填 */
	connect_qp(b, psn[1], a->qp_num, psn[0], &gid);
	// endregion cross
	printf("[Step 3] tell A about B, and B about A: INIT, RTR, RTS\n");
	transfer(a, b, mr);
	wait_for(cq, 2);
	printf("[Step 4] A's SEND is in B's RECV: \"%s\"\n", half[1]);
	/* 按相反的次序销毁：还有 QP 在用，CQ、PD 就不能销毁（EBUSY）。*/
	check("ibv_destroy_qp(A)", ibv_destroy_qp(a));
	check("ibv_destroy_qp(B)", ibv_destroy_qp(b));
	check("ibv_destroy_cq()", ibv_destroy_cq(cq));
	check("ibv_dereg_mr()", ibv_dereg_mr(mr));
	check("ibv_dealloc_pd()", ibv_dealloc_pd(pd));
	if (ibv_close_device(context))
		fail("ibv_close_device()", errno);
}

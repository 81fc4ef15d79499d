// SPDX-License-Identifier: MIT
/*
 * verbs_probe.c —— 别的程序很少做的调用，给 labs/qptrace 的测试：有没有记录器在，印出来的
 * 都该一样
 *
 *	opcodes    扩展接口（ibv_wr_*）里 perftest 不用的 opcode，各一次；最后一个 rkey 是错的
 *	extended   扩展接口收发 20 个消息：数据有两种给法，用 start_poll 与 next_poll 取；再
 *	           在一对 ibv_wr_start 与 ibv_wr_complete 之间发 40 个
 *	refused    设备上没有的调用，和最大、最小的数；还有像 UCX 那样用 fd -1 打听 DMA-BUF
 *	no_ah      一个没有 AH 的 datagram：librxe 在里面崩溃
 *	no_cq      一个没有 CQ 的 QP：libibverbs 在里面崩溃
 *	dl         走错一步状态机，用 dlvsym 自己取来的 ibv_modify_qp，像 NCCL 那样；再问一
 *	           个没有的函数；退出码 4
 *	flat       每种对象一个、又一个，数内存与 fd
 */
#include "ends.h"

#include "../open_files.h"

#include <dlfcn.h>
#include <endian.h>
#include <limits.h>
#include <stdint.h>
#include <unistd.h>

static struct end e;
static struct ibv_cq_ex *cq_ex;

static void must(const void *made, const char *what)
{
	if (!made)
		die(what, errno);
}

static void make_extended(void)
{
	struct ibv_cq_init_attr_ex cq_init = {
		.cqe = 200,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM,
	};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = { 64, 64, 2, 1, 64 },
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_LOCAL_INV |
				  IBV_QP_EX_WITH_BIND_MW |
				  IBV_QP_EX_WITH_SEND_WITH_INV,
	};

	make_all_but_qp(&e, false);
	cq_ex = ibv_create_cq_ex(e.context, &cq_init);
	must(cq_ex, "ibv_create_cq_ex");
	ibv_destroy_cq(e.cq);
	e.cq = ibv_cq_ex_to_cq(cq_ex);
	init.pd = e.pd;
	init.send_cq = init.recv_cq = e.cq;
	e.qp = ibv_create_qp_ex(e.context, &init);
	must(e.qp, "ibv_create_qp_ex");
	e.access |= IBV_ACCESS_MW_BIND;
	to_init(&e);
	connect_to(&e, e.qp->qp_num);
}

static struct ibv_qp_ex *begin_send(uint64_t wr_id)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(e.qp);

	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = IBV_SEND_SIGNALED;
	return ex;
}

/* ---- 每个 opcode ---------------------------------------------------------- */

/* 下一个 completion：它的 opcode、status、长度。*/
static void show(const char *what)
{
	time_t end = time(NULL) + DEADLINE_S;
	struct ibv_wc wc;

	while (!ibv_poll_cq(e.cq, 1, &wc))
		if (time(NULL) > end)
			die(what, ETIMEDOUT);
	printf("%s: opcode %d, status %d, %u bytes\n", what, wc.opcode,
	       wc.status, wc.byte_len);
}

enum opcode {
	BIND,
	IMM,
	WRITE_IMM,
	INV
};
#define OPCODES 4

static void one_opcode(struct ibv_qp_ex *ex, int opcode, struct ibv_mw *mw)
{
	uint64_t there = (uintptr_t)e.buf;
	uint32_t rkey = e.mr->rkey;
	struct ibv_mw_bind_info info = { e.mr, there, SIZE,
					 IBV_ACCESS_REMOTE_WRITE };

	if (opcode == BIND)
		ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(mw->rkey), &info);
	else if (opcode == IMM)
		ibv_wr_send_imm(ex, htobe32(7));
	else if (opcode == WRITE_IMM)
		ibv_wr_rdma_write_imm(ex, rkey, there, htobe32(8));
	else
		ibv_wr_send_inv(ex, mw->rkey);
	if (opcode != BIND)
		ibv_wr_set_sge(ex, e.mr->lkey, there + SIZE, 16);
}

static int opcodes(void)
{
	static const char *const names[] = { "bind", "imm", "write imm",
					     "inv" };
	struct ibv_qp_ex *ex;
	struct ibv_mw *mw;

	make_extended();
	mw = ibv_alloc_mw(e.pd, IBV_MW_TYPE_2);
	must(mw, "ibv_alloc_mw");
	for (int i = 0; i < OPCODES; i++) {
		if (i > BIND)
			post_recv(&e);
		ex = begin_send(100 + (uint64_t)i);
		one_opcode(ex, i, mw);
		if (ibv_wr_complete(ex))
			die(names[i], EINVAL);
		if (i == BIND)
			mw->rkey = ibv_inc_rkey(mw->rkey);
		show(names[i]);
		if (i > BIND)
			show("received");
	}
	ex = begin_send(200);
	ibv_wr_local_inv(ex, 0x7700);
	printf("local inv: %d\n", ibv_wr_complete(ex));
	show("no such rkey");
	return 0;
}

/* ---- start_poll、next_poll ------------------------------------------------ */

/*
 * librxe 的 end_poll 在 next_poll 说“没有了”之后会把位置再推进一格，于是读到旧的。所以
 * 一个一个地取；只有 @together 时，先等到两个想必都在 CQ 里了，才用 next_poll。
 */
static int reap_two(bool together)
{
	time_t end = time(NULL) + DEADLINE_S;
	struct ibv_poll_cq_attr attr = { 0 };
	int seen = 0;

	if (together)
		sleep(1);
	for (int i = 0; i < 2; i++) {
		while (ibv_start_poll(cq_ex, &attr))
			if (time(NULL) > end)
				die("ibv_start_poll", ETIMEDOUT);
		seen += cq_ex->status == IBV_WC_SUCCESS;
		if (together && !ibv_next_poll(cq_ex)) {
			seen += cq_ex->status == IBV_WC_SUCCESS;
			i++;
		}
		ibv_end_poll(cq_ex);
	}
	return seen;
}

static void give_data(struct ibv_qp_ex *ex, bool is_inline)
{
	if (is_inline)
		ibv_wr_set_inline_data(ex, e.buf, 32);
	else
		ibv_wr_set_sge(ex, e.mr->lkey, (uintptr_t)e.buf + SIZE, SIZE);
}

static int extended(void)
{
	struct ibv_qp_ex *ex;

	make_extended();
	for (int i = 0; i < MESSAGES; i++) {
		post_recv(&e);
		ex = begin_send(2);
		if (i % 2) /* librxe 要听到 INLINE，才去看 inline 的数据 */
			ex->wr_flags |= IBV_SEND_INLINE;
		ibv_wr_send(ex);
		give_data(ex, i % 2);
		if (ibv_wr_complete(ex))
			die("ibv_wr_complete", EIO);
		if (reap_two(i == MESSAGES - 1) != 2)
			die("ibv_next_poll", EIO);
	}
	ex = begin_send(0);
	for (int i = 0; i < 40; i++) {
		post_recv(&e);
		ex->wr_id++;
		ibv_wr_send(ex);
		give_data(ex, false);
	}
	if (ibv_wr_complete(ex))
		die("ibv_wr_complete", EIO);
	for (int i = 0; i < 40; i++)
		if (reap_two(false) != 2)
			die("ibv_start_poll", EIO);
	unmake(&e);
	printf("%d messages\n", MESSAGES + 40);
	return 0;
}

/* ---- 出错的 --------------------------------------------------------------- */

/* 一个也不该成功；成功了的算在返回值里。*/
static int refused(void)
{
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 123 };
	struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr;
	int taken = 0, fd;

	make(&e, IBV_QPT_RC, false);
	fd = dup(e.context->cmd_fd);
	taken += ibv_import_device(fd) != NULL;
	taken += ibv_modify_qp_rate_limit(e.qp, &rate) == 0;
	taken += ibv_reg_dmabuf_mr(e.pd, 0, SIZE, 0, -1, 0) != NULL;
	taken += ibv_reg_mr(e.pd, e.buf, SIZE_MAX, 0) != NULL;
	taken += ibv_create_cq(e.context, -1, NULL, NULL, -1) != NULL;
	taken += ibv_resize_cq(e.cq, INT_MIN) == 0;
	qp.send_cq = qp.recv_cq = e.cq;
	memset(&qp.cap, 0xff, sizeof(qp.cap));
	taken += ibv_create_qp(e.pd, &qp) != NULL;
	memset(&attr, 0xff, sizeof(attr));
	taken += ibv_modify_qp(e.qp, &attr, INT_MAX) == 0;
	printf("taken: %d\n", taken);
	return taken;
}

static int no_ah(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	make(&e, IBV_QPT_UD, false);
	post_send(&e, wr);
	return 0;
}

static int no_cq(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 4, 4, 1, 1, 0 } };

	make(&e, IBV_QPT_RC, false);
	init.send_cq = e.cq;
	ibv_create_qp(e.pd, &init);
	return 0;
}

static int dl(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	__typeof__(&ibv_modify_qp) my_modify_qp;
	void *symbol;

	must(library, "dlopen");
	symbol = dlvsym(library, "ibv_modify_qp", "IBVERBS_1.1");
	must(symbol, "dlvsym");
	memcpy(&my_modify_qp, &symbol, sizeof(symbol));
	symbol = dlsym(library, "ibv_no_such");
	printf("%s\n", symbol ? "found" : strrchr(dlerror(), ':'));
	make(&e, IBV_QPT_RC, false);
	printf("modify: %d\n", my_modify_qp(e.qp, &attr, IBV_QP_STATE));
	return 4;
}

static struct ibv_srq *make_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { 16, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(e.pd, &init);

	must(srq, "ibv_create_srq");
	return srq;
}

/* ---- 借了要还 ------------------------------------------------------------- */

/* 每种对象一个，然后拆掉；有的找不到对端，记录器就到处去找：打开的、映射的都要还。*/
static void come_and_go(bool to_nobody)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_READ,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_srq *srq;
	struct ibv_ah_attr to;
	struct ibv_ah *ah;

	make(&e, IBV_QPT_RC, true);
	e.timeout = 8;
	e.retry_cnt = 1;
	to_init(&e);
	post_recv(&e);
	if (to_nobody) {
		connect_to(&e, 0x123456);
		post_send(&e, wr);
		reap(&e, 1);
	}
	to = way(&e);
	ah = ibv_create_ah(e.pd, &to);
	must(ah, "ibv_create_ah");
	srq = make_srq();
	if (ibv_destroy_srq(srq) || ibv_destroy_ah(ah))
		die("ibv_destroy_srq, ibv_destroy_ah", errno);
	unmake(&e);
}

static int flat(void)
{
	long pages = 0;
	int fds = 0;

	for (int i = 0; i < 200; i++) {
		if (i == 100) {
			fds = open_files();
			pages = mapped_pages();
		}
		come_and_go(i % 10 == 0);
	}
	printf("%d more descriptors, %ld more pages\n", open_files() - fds,
	       mapped_pages() - pages);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} parts[] = {
		{ "opcodes", opcodes }, { "extended", extended },
		{ "refused", refused }, { "no_ah", no_ah },
		{ "no_cq", no_cq },	{ "dl", dl },
		{ "flat", flat },
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (argc > 1 && !strcmp(argv[1], parts[i].name))
			return parts[i].run();
	fprintf(stderr, "verbs_probe: which part?\n");
	return 2;
}

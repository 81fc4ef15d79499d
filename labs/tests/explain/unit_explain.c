// SPDX-License-Identifier: MIT
/*
 * unit_explain.c —— 解释器的判断，不需要设备
 *
 * rxe 上造不出来的情形（两个 port、RoCE v1 的 GID、InfiniBand、别的厂商、Linux 6.12
 * 的返回值）在这里用替身来问：下面的 ibv_query_* 取代 libibverbs 的，回答什么由每个
 * 测试写在 world 里。测的只是“已知这些事实时，说出的原因对不对”；事实本身是不是这
 * 样，由 labs/faults 在真的 rxe 上证明。
 */
#include "../open_files.h"
#include "explain/rxe_facts.h"
#include "world.h"

#include <sys/utsname.h>

/* ---- ibv_reg_dmabuf_mr ----------------------------------------------------- */

static void test_dmabuf(void)
{
	static const struct {
		const char *what;
		int fd, err;
		const char *id, *word;
	} rows[] = {
		{ "fd -1, no such operation", -1, EOPNOTSUPP, EXPLAIN_PROBE,
		  "no" },
		{ "fd -1, an old kernel", -1, EPROTONOSUPPORT, EXPLAIN_PROBE,
		  "no" },
		{ "fd -1, looked at", -1, EBADF, EXPLAIN_PROBE, "yes" },
		{ "fd -1, no memory", -1, ENOMEM, NULL, "" },
		{ "a real fd, no such operation", 7, EOPNOTSUPP,
		  "dmabuf-unsupported", "cannot" },
		{ "a closed fd", 7, EBADF, "dmabuf-fd", "not open" },
		{ "fd 0, closed", 0, EBADF, "dmabuf-fd", "not open" },
		{ "a real fd, EINVAL", 7, EINVAL, NULL, "" },
	};
	struct explanation why;

	for (size_t i = 0; i < LENGTH(rows); i++) {
		why = explain_reg_dmabuf_mr(&pd, rows[i].fd, rows[i].err);
		expect(rows[i].what, &why, rows[i].id);
		expect_true("the answer",
			    strstr(why.cause, rows[i].word) != NULL);
	}
}

/* ---- ibv_modify_qp --------------------------------------------------------- */

static void expect_modify(const char *what, const struct ibv_qp_attr *attr,
			  int mask, const char *id)
{
	struct explanation why = explain_modify_qp(&qp, attr, mask, EINVAL);

	expect(what, &why, id);
}

static void test_types(void)
{
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTR);
	expect_modify("RC to RTR, all right", &attr, rtr_bits,
		      "driver-refused");
	qp.qp_type = IBV_QPT_UD;
	expect_modify("UD to RTR with RC's bits", &attr, rtr_bits,
		      "bits-forbidden");
	world.qp.qp_state = IBV_QPS_RTR;
	attr = good_attr(IBV_QPS_RTS);
	expect_modify("UD to RTS without SQ_PSN", &attr, IBV_QP_STATE,
		      "bits-missing");
	qp.qp_type = IBV_QPT_UC;
	expect_modify("UC to RTS with RC's bits", &attr, rts_bits,
		      "bits-forbidden");
	qp.qp_type = IBV_QPT_RAW_PACKET;
	expect_modify("a type without a table", &attr, rts_bits,
		      "driver-refused");
}

static void test_order_of_checks(void)
{
	struct ibv_qp_attr attr;
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTR);
	attr.ah_attr.is_global = 0;
	attr.path_mtu = (enum ibv_mtu)9000;
	why = explain_modify_qp(&qp, &attr, rtr_bits & ~IBV_QP_RQ_PSN, EINVAL);
	expect("three mistakes: the kernel's first", &why, "no-grh");
	expect_true("the second is told as well",
		    strstr(why.seen, "also requires RQ_PSN"));
	expect_true("and the third", strstr(why.seen, "looks like bytes"));
	world.qp.qp_state = IBV_QPS_RESET;
	why = explain_modify_qp(&qp, &attr, rtr_bits, EINVAL);
	expect("no way comes before all values", &why, "no-way");
	expect_true("the library's memory is contradicted",
		    strstr(why.seen, "but the library remembers INIT"));
}

/* 在 Linux 6.1 的 rxe 上量过：只读的 MAP_SHARED 注册不了，MAP_PRIVATE 可以。*/
static void test_read_only_mappings(void)
{
	const int read = IBV_ACCESS_REMOTE_READ;
	struct explanation why;
	void *page;

	page = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	why = explain_reg_mr_call(NULL, page, 4096, read, EFAULT);
	expect("read-only, shared", &why, "mr-shared-read-only");
	why = explain_reg_mr_call(NULL, page, 4096, IBV_ACCESS_LOCAL_WRITE,
				  EFAULT);
	expect("read-only, LOCAL_WRITE", &why, "mr-read-only");
	munmap(page, 4096);
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	why = explain_reg_mr_call(NULL, page, 4096, read, EFAULT);
	expect("read-only, private: no claim", &why, NULL);
	munmap(page, 4096);
}

/* LOCAL_WRITE 给了，就不再说缺它；不需要它的，也不说。*/
static void test_rights(void)
{
	static const struct {
		int access;
		const char *id;
	} rows[] = {
		{ IBV_ACCESS_REMOTE_WRITE, "mr-needs-local-write" },
		{ IBV_ACCESS_REMOTE_ATOMIC, "mr-needs-local-write" },
		{ IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE,
		  "driver-refused" },
		{ IBV_ACCESS_REMOTE_READ, "driver-refused" },
	};
	static char here[64];
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	world.device.max_mr_size = 1 << 20;
	for (size_t i = 0; i < LENGTH(rows); i++) {
		why = explain_reg_mr_call(&pd, here, sizeof(here),
					  rows[i].access, EINVAL);
		expect("rights of an MR", &why, rows[i].id);
	}
}

static void test_devices(void)
{
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTR);
	world.device.phys_port_cnt = 2;
	attr.ah_attr.port_num = 2;
	expect_modify("two ports, mixed up", &attr, rtr_bits,
		      "av-port-differs");
	attr.ah_attr.port_num = 3;
	expect_modify("a third of two ports", &attr, rtr_bits, "av-port");
	attr.ah_attr.port_num = 1;
	attr.max_dest_rd_atomic = 17;
	expect_modify("max_dest_rd_atomic, not on rxe", &attr, rtr_bits,
		      "dest-rd-atomic-too-large");
	attr = good_attr(IBV_QPS_RTR);
	world.port.max_mtu = IBV_MTU_2048;
	attr.path_mtu = IBV_MTU_4096;
	expect_modify("path_mtu above max_mtu", &attr, rtr_bits,
		      "path-mtu-too-large");
	attr = good_attr(IBV_QPS_RTR);
	attr.ah_attr.is_global = 0;
	world.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
	expect_modify("InfiniBand needs no GRH", &attr, rtr_bits,
		      "driver-refused");
	world.qp_unknown = true;
	expect_modify("the QP cannot be queried", &attr, rtr_bits,
		      "driver-refused");
}

static void test_states(void)
{
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_SQD);
	world.qp.sq_draining = 1;
	attr = good_attr(IBV_QPS_RTS);
	expect_modify("SQD is draining", &attr, IBV_QP_STATE, "sq-draining");
	attr.qp_state = (enum ibv_qp_state)7;
	expect_modify("state 7", &attr, IBV_QP_STATE, "no-such-state");
	ordinary_world(IBV_QPS_RTS);
	attr = good_attr(IBV_QPS_SQE);
	expect_modify("to SQE", &attr, IBV_QP_STATE, "no-way");
	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_SQD);
	attr.cur_qp_state = IBV_QPS_RTR;
	expect_modify("a lie that does not help", &attr,
		      IBV_QP_STATE | IBV_QP_CUR_STATE, "cur-state-lies");
	attr = good_attr(IBV_QPS_INIT);
	attr.qp_access_flags = ~0u;
	expect_modify("access flags without a meaning (6.12)", &attr,
		      IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, "access-unknown");
}

/* 不在 mask 里的成员是没有初始化的：不看，也不怪。*/
static void test_what_is_not_in_the_mask(void)
{
	struct ibv_qp_attr attr;
	struct explanation why;

	ordinary_world(IBV_QPS_RTR);
	attr = good_attr(IBV_QPS_RTS);
	attr.port_num = 9;
	attr.ah_attr = (struct ibv_ah_attr){ .port_num = 9 };
	attr.path_mtu = (enum ibv_mtu)9000;
	attr.qp_access_flags = ~0u;
	attr.max_dest_rd_atomic = 99;
	why = explain_modify_qp(&qp, &attr, rts_bits, EINVAL);
	expect("none of them is asked for", &why, "driver-refused");
	expect_true("nor is one wrong, too", !strstr(why.seen, "also wrong"));
	attr.timeout = 99;
	attr.max_rd_atomic = 99;
	world.qp.qp_state = IBV_QPS_RTS;
	expect_modify("a step to itself needs no STATE", &attr,
		      IBV_QP_MIN_RNR_TIMER, "driver-refused");
	expect_modify("unless there is more in it", &attr,
		      IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MTU,
		      "state-bit-forgotten");
	ordinary_world(IBV_QPS_RTR);
	world.device = (struct ibv_device_attr){ 0 };
	world.no_device = true;
	attr = good_attr(IBV_QPS_RTS);
	expect_modify("the device's limits are not known", &attr, rts_bits,
		      "driver-refused");
}

/* ---- 收下了的 --------------------------------------------------------------- */

static void expect_accepted(const char *what, const struct ibv_qp_attr *attr,
			    int mask, enum ibv_qp_state before, const char *id)
{
	struct explanation all[EXPLAIN_MOST] = { 0 };

	explain_accepted(&qp, attr, mask, before, all, EXPLAIN_MOST);
	expect(what, &all[0], id);
}

static void test_accepted(void)
{
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_RTR);
	attr = good_attr(IBV_QPS_RTR);
	attr.rq_psn = 0xffffff;
	expect_accepted("nothing to say of RTR", &attr, rtr_bits, IBV_QPS_INIT,
			NULL);
	attr.rq_psn = 0x1000000;
	expect_accepted("a PSN of 25 bits", &attr, rtr_bits, IBV_QPS_INIT,
			"psn-too-long");
	attr = good_attr(IBV_QPS_RTR);
	expect_accepted("6.12 without IBV_QP_STATE", &attr,
			rtr_bits & ~IBV_QP_STATE, IBV_QPS_INIT,
			"state-bit-forgotten");
	attr.path_mtu = IBV_MTU_4096;
	expect_accepted("path_mtu above active_mtu", &attr, rtr_bits,
			IBV_QPS_INIT, "path-mtu-above-active");
	attr = good_attr(IBV_QPS_RTR);
	world.gid.gid_type = IBV_GID_TYPE_ROCE_V1;
	expect_accepted("RoCE v1", &attr, rtr_bits, IBV_QPS_INIT, "gid-not-v2");
	attr = good_attr(IBV_QPS_RTS);
	attr.retry_cnt = 7;
	expect_accepted("retry_cnt 7 is no fault elsewhere", &attr, rts_bits,
			IBV_QPS_RTR, NULL);
	world.device.vendor_id = 0xffffff;
	expect_accepted("retry_cnt 7 on rxe", &attr, rts_bits, IBV_QPS_RTR,
			"retry-forever");
	attr.retry_cnt = 6;
	attr.max_rd_atomic = 0;
	expect_accepted("max_rd_atomic 0", &attr, rts_bits, IBV_QPS_RTR,
			"rd-atomic-zero");
	attr = good_attr(IBV_QPS_RTS);
	attr.min_rnr_timer = 12;
	expect_accepted("an RTS -> RTS without a state is legal", &attr,
			IBV_QP_MIN_RNR_TIMER, IBV_QPS_RTS, NULL);
}

/* ---- 两端 ------------------------------------------------------------------- */

static struct explain_side side(const char *name, uint32_t mine, uint32_t its)
{
	return (struct explain_side){
		.name = name,
		.qp_num = mine,
		.attr = { .dest_qp_num = its,
			  .sq_psn = mine * 16,
			  .rq_psn = its * 16,
			  .path_mtu = IBV_MTU_1024 },
		.attr_mask = IBV_QP_DEST_QPN | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN |
			     IBV_QP_PATH_MTU,
	};
}

static void expect_pair(const char *what, const struct explain_side *a,
			const struct explain_side *b, size_t count,
			const char *id)
{
	struct explanation all[EXPLAIN_MOST] = { 0 };
	size_t n = explain_pair(a, b, all, EXPLAIN_MOST);

	expect(what, &all[0], id);
	if (n != count) {
		failures++;
		printf("not ok %s: %zu findings, expected %zu\n", what, n,
		       count);
	}
}

static void test_pair(void)
{
	struct explain_side a = side("A", 0x11, 0x12);
	struct explain_side b = side("B", 0x12, 0x11);
	struct explanation all[EXPLAIN_MOST];

	expect_pair("two that match", &a, &b, 0, NULL);
	b.attr.rq_psn += 1;
	expect_pair("PSN", &a, &b, 1, "psn-differs");
	explain_pair(&a, &b, all, 1);
	expect_true("B expects a later one", strstr(all[0].cause, "old ones"));
	/* 24 位的圆环：0xffffff 之后是 0。*/
	a.attr.sq_psn = 2;
	b.attr.rq_psn = 0xfffffe;
	explain_pair(&a, &b, all, 1);
	expect_true("the ring of PSNs", strstr(all[0].cause, "after a gap"));
	b.attr.rq_psn = 0x5a000002;
	expect_pair("only 24 bits count", &a, &b, 0, NULL);
	b.attr.dest_qp_num = 0x11000000;
	expect_pair("QPN, swapped", &a, &b, 1, "qpn-byte-order");
	b.attr.dest_qp_num = 0x13;
	b.attr.path_mtu = IBV_MTU_2048;
	expect_pair("the worst comes first", &a, &b, 2, "qpn-differs");
}

/* ---- completion ------------------------------------------------------------- */

static void test_statuses(void)
{
	struct explanation why;

	for (int i = IBV_WC_SUCCESS; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++) {
		const struct explain_status *row =
			explain_status_row((enum ibv_wc_status)i);
		char what[64];

		snprintf(what, sizeof(what), "status %d has a whole row", i);
		expect_true(what, row && row->name && row->meaning &&
					  row->rxe && row->causes &&
					  row->next && row->side);
	}
	expect_true("and no other",
		    !explain_status_row((enum ibv_wc_status)99));
	why = explain_wc_status((enum ibv_wc_status)99);
	expect_true("it has only libibverbs' word",
		    !why.id && !why.next[0] && !why.seen[0] &&
			    !strcmp(why.cause, ibv_wc_status_str(99)));
	why = explain_wc_status(IBV_WC_WR_FLUSH_ERR);
	expect_true("and what rxe does", strstr(why.seen, "\nrxe: "));
}

/*
 * 看错了边，就在好的那一端找半天。rxe 会报的每一个 status：按规范该先看谁的，说出的
 * 原因里少不了哪个词。
 */
static void test_status_sides(void)
{
	static const struct {
		enum ibv_wc_status status;
		const char *side, *word;
	} known[] = {
		{ IBV_WC_LOC_LEN_ERR, "this", "longer than the receive" },
		{ IBV_WC_LOC_QP_OP_ERR, "this", "lkey" },
		{ IBV_WC_LOC_PROT_ERR, "this", "lkey" },
		{ IBV_WC_WR_FLUSH_ERR, "this", "flushed" },
		{ IBV_WC_MW_BIND_ERR, "this", "MW_BIND" },
		{ IBV_WC_REM_INV_REQ_ERR, "the peer's", "access flags" },
		{ IBV_WC_REM_ACCESS_ERR, "either", "rkey" },
		{ IBV_WC_REM_OP_ERR, "the peer's", "receive" },
		{ IBV_WC_RETRY_EXC_ERR, "either", "no ACK" },
		{ IBV_WC_RNR_RETRY_EXC_ERR, "the peer's", "no receive" },
	};

	for (size_t i = 0; i < LENGTH(known); i++) {
		struct explanation why = explain_wc_status(known[i].status);
		char what[64], side[32];

		snprintf(what, sizeof(what), "status %d: cause and side",
			 (int)known[i].status);
		snprintf(side, sizeof(side), "look at %s side", known[i].side);
		expect_true(what, strstr(why.cause, known[i].word) &&
					  strstr(why.seen, side));
	}
}

static void test_completion(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR },
			    rnr = { .status = IBV_WC_RNR_RETRY_EXC_ERR };
	struct explain_request request = { .peer_state = IBV_QPS_ERR,
					   .peer_state_known = true };
	struct explanation why;

	ordinary_world(IBV_QPS_ERR);
	why = explain_completion(&qp, &wc, NULL);
	expect("status 12, nothing known", &why, "RETRY_EXC_ERR");
	expect_true("several causes, and how to tell them apart",
		    strstr(why.cause, ", or ") && strstr(why.next, "compare"));
	why = explain_completion(&qp, &wc, &request);
	expect("the peer says it is in ERR", &why, "peer-in-error");
	request.peer_state = IBV_QPS_INIT;
	why = explain_completion(&qp, &wc, &request);
	expect("the peer says it is in INIT", &why, "peer-not-ready");
	why = explain_completion(&qp, &rnr, NULL);
	expect("no receive", &why, "no-receive-posted");
	world.qp.dest_qp_num = 0x12000000;
	why = explain_completion(&qp, &wc, NULL);
	expect("a QPN that is none", &why, "qpn-byte-order");
}

/* 长度错了，而那个 receive 是什么样没有人记得：不猜，更不去读它。*/
static void test_a_receive_nobody_remembers(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_LOC_LEN_ERR,
				   .opcode = IBV_WC_RECV };
	struct ibv_sge sge = { .lkey = 7, .length = 8 };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 };
	struct explain_request request = { .recv = &recv };
	struct explanation why;

	ordinary_world(IBV_QPS_ERR);
	why = explain_completion(&qp, &wc, NULL);
	expect("a length, nothing known", &why, "LOC_LEN_ERR");
	why = explain_completion(&qp, &wc, &request);
	expect("a length, the MRs not known", &why, "LOC_LEN_ERR");
}

/* 加起来绕过 2^64 的，也要看得对：恰好到头的在里面，绕过去的不在。*/
static void test_the_end_of_the_address_space(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_LOC_PROT_ERR };
	struct explain_mr mr = { .length = 4096, .lkey = 7, .access = -1 };
	struct ibv_sge sge = { .lkey = 7 };
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1 };
	const struct explain_request request = { .send = &send,
						 .local = &mr,
						 .n_local = 1 };
	const struct {
		uint64_t mr, addr;
		uint32_t length;
		bool outside;
	} cases[] = {
		{ -4096ULL, -64ULL, 64, false },
		{ -4096ULL, -64ULL, 65, true },
		{ -4096ULL, -4096ULL, 4096, false },
		{ -4096ULL, -4097ULL, 4096, true },
		{ 4096, -64ULL, 4096 + 128, true },
		{ 4096, 8191, UINT32_MAX, true },
	};

	ordinary_world(IBV_QPS_ERR);
	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct explanation why;

		mr.addr = cases[i].mr;
		sge.addr = cases[i].addr;
		sge.length = cases[i].length;
		why = explain_completion(&qp, &wc, &request);
		expect_true("an SGE near 2^64",
			    cases[i].outside == !strcmp(why.id ? why.id : "",
							"sge-outside-mr"));
	}
}

/* ---- 开关与边界 -------------------------------------------------------------- */

static void test_releases(void)
{
	static const struct {
		const char *release;
		bool holds;
	} cases[] = {
		{ "6.12.0-rc1", true }, { "6.13", true },  { "7.0", true },
		{ "6.11.9", false },	{ "5.15", false }, { "Linux", false },
	};
	struct utsname kernel;

	uname(&kernel);
	for (int i = 0; i < RXE_FACTS; i++)
		expect_true(kernel.release,
			    rxe_fact_holds(i) ==
				    rxe_fact_in(i, kernel.release));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_true(cases[i].release,
			    rxe_fact_in(RXE_MAPS_READ_ONLY_FILES,
					cases[i].release) == cases[i].holds);
}

static void test_switch(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	struct explanation all[EXPLAIN_MOST], why;
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_RESET);
	attr = good_attr(IBV_QPS_ERR);
	setenv("RDMA_EXPLAIN", "0", 1);
	why = explain_modify_qp(&qp, &attr, IBV_QP_STATE, EINVAL);
	expect("off: ibv_modify_qp", &why, NULL);
	why = explain_completion(&qp, &wc, NULL);
	expect("off: a completion", &why, NULL);
	expect_true("off: there is no evidence", !why.seen[0]);
	expect_true("off: the status is still named",
		    !strcmp(why.cause, ibv_wc_status_str(wc.status)));
	why = explain_destroy(EBUSY);
	expect("off: ibv_dealloc_pd", &why, NULL);
	expect_true("off: nothing is warned of",
		    !explain_accepted(&qp, &attr, 0, IBV_QPS_RESET, all, 8));
	setenv("RDMA_EXPLAIN", "1", 1);
	why = explain_destroy(EBUSY);
	expect("RDMA_EXPLAIN=1 is on", &why, "still-used");
	unsetenv("RDMA_EXPLAIN");
}

/* verb_failed(errno, explain_…(errno), …) 的求值次序是不定的。*/
static void test_nothing_is_changed(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_WR_FLUSH_ERR };
	struct explanation all[EXPLAIN_MOST];
	const struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_send_wr wr = { .num_sge = 0 };
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTR);
	errno = EBADF;
	explain_modify_qp(&qp, &attr, rtr_bits, EINVAL);
	explain_create_qp_call(&pd, &init, EINVAL);
	explain_create_cq_call(&context, 1 << 30, 0, EINVAL);
	explain_reg_mr_call(&pd, &wr, sizeof(wr), 0, ENOMEM);
	explain_post_send(&qp, &wr, EINVAL);
	explain_stall(&qp, NULL, 1);
	explain_device_list(0);
	explain_open_device(ENOENT);
	expect_true("errno is as it was", errno == EBADF);
	/* 内核已经把 QP 打进 ERR，程序还以为是 RTS：看一眼不能改变它的想法。*/
	world.qp.qp_state = IBV_QPS_ERR;
	qp.state = IBV_QPS_RTS;
	explain_modify_qp(&qp, &attr, rtr_bits, EINVAL);
	explain_accepted(&qp, &attr, rtr_bits, IBV_QPS_INIT, all, EXPLAIN_MOST);
	explain_post_send(&qp, &wr, EINVAL);
	explain_completion(&qp, &wc, NULL);
	explain_stall(&qp, NULL, 1);
	expect_true("qp->state is as it was", qp.state == IBV_QPS_RTS);
}

/* 它问内核：procfs、sysfs、两种 netlink。问一百次，一个 fd 也不留下。*/
static void test_descriptors(const char *own_gid)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	struct explanation why = { 0 };
	struct ibv_qp_attr attr;
	int before = open_files();

	for (int i = 0; i < 100; i++) {
		ordinary_world(IBV_QPS_INIT);
		world.gid.ndev_ifindex = 1;
		attr = good_attr(IBV_QPS_RTR);
		inet_pton(AF_INET6, own_gid, &attr.ah_attr.grh.dgid);
		world.qp.ah_attr = attr.ah_attr;
		explain_modify_qp(&qp, &attr, rtr_bits, ETIMEDOUT);
		explain_reg_mr_call(&pd, &attr, sizeof(attr), 0, ENOMEM);
		explain_reg_mr_call(&pd, &attr, sizeof(attr), 0, EFAULT);
		why = explain_completion(&qp, &wc, NULL);
		explain_device_list(0);
		explain_open_device(ENOENT);
	}
	expect_true("100 calls leave no descriptor", open_files() == before);
	printf("# the last one saw: %s\n", why.seen);
}

static void test_text(void)
{
	struct explanation none = { .cause = "" }, two = { .next = "do it" };
	const struct explanation seen = { .seen = "one" };
	char out[EXPLAIN_NEXT_SIZE];

	expect_true("no next, no evidence: NULL", !explain_next(out, &none));
	expect_true("no evidence", !strcmp(explain_next(out, &two), "do it"));
	expect_true("no next", !strcmp(explain_next(out, &seen),
				       "see what was found:\n seen: one"));
	snprintf(two.seen, sizeof(two.seen), "one\ntwo");
	expect_true("evidence is one line each",
		    !strcmp(explain_next(out, &two),
			    "do it\n seen: one\n seen: two"));
	memset(two.seen, '\n', sizeof(two.seen) - 1);
	two.seen[sizeof(two.seen) - 1] = '\0';
	expect_true("a lot of it stays within bounds",
		    strlen(explain_next(out, &two)) < EXPLAIN_NEXT_SIZE);
	expect_true("an errno is passed up negative",
		    verb_failed(EINVAL, none, "call()") == -EINVAL);
	expect_true("0 becomes EIO", verb_failed(0, none, "call()") == -EIO);
}

/* 更新的 librdmacm 也许有更多种事件。*/
static void test_cm_events(void)
{
	expect_true("the last event of today",
		    !strcmp(cm_event_name(15), "TIMEWAIT_EXIT"));
	expect_true("the first of tomorrow",
		    !strcmp(cm_event_name(16), "UNKNOWN"));
}

/* DEVICE GID：本机的一个设备和它的 GID，问得到对端。*/
int main(int argc, char **argv)
{
	if (argc > 2) {
		device_name = argv[1];
		test_descriptors(argv[2]);
		return failures ? 1 : 0;
	}
	test_dmabuf();
	test_types();
	test_order_of_checks();
	test_read_only_mappings();
	test_rights();
	test_devices();
	test_states();
	test_what_is_not_in_the_mask();
	test_accepted();
	test_pair();
	test_statuses();
	test_status_sides();
	test_completion();
	test_a_receive_nobody_remembers();
	test_the_end_of_the_address_space();
	test_releases();
	test_switch();
	test_nothing_is_changed();
	test_text();
	test_cm_events();
	test_descriptors("::ffff:192.0.2.1");
	return failures ? 1 : 0;
}

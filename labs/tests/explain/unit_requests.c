// SPDX-License-Identifier: MIT
/*
 * unit_requests.c —— post 被拒、completion 失败或一直不来：请求自己能证明什么，差一个字节也要看得出
 *
 * 替身与 unit_limits.c 的相同。每个测试从一次没有毛病的请求开始，一次只动一处。
 */
#include "world.h"

static struct ibv_cq cq, other_cq;

static struct ibv_srq_attr srq_now;

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	(void)srq;
	world.asked++;
	*attr = srq_now;
	return 0;
}

/* ---- post ----------------------------------------------------------------- */

static void expect_send(const char *what, const struct ibv_send_wr *wr,
			const char *id, const char *word)
{
	struct explanation why = explain_post_send(&qp, wr, EINVAL);

	expect_word(what, &why, id, word);
}

static void expect_recv(const char *what, const struct ibv_recv_wr *wr, int err,
			const char *id, const char *word)
{
	struct explanation why = explain_post_recv(&qp, wr, err);

	expect_word(what, &why, id, word);
}

static void expect_srq_recv(const char *what, const struct ibv_recv_wr *wr,
			    int err, const char *id, const char *word)
{
	struct ibv_srq srq = { 0 };
	struct explanation why = explain_post_srq_recv(&srq, wr, err);

	expect_word(what, &why, id, word);
}

static void qp_with_caps(enum ibv_qp_state state)
{
	ordinary_world(state);
	world.qp.cap = (struct ibv_qp_cap){ .max_send_wr = 4,
					    .max_recv_wr = 5,
					    .max_send_sge = 2,
					    .max_recv_sge = 3,
					    .max_inline_data = 16 };
}

static void test_sends(void)
{
	struct ibv_sge sges[3] = { { .length = 8 }, { .length = 8 } };
	struct ibv_send_wr wr = { .sg_list = sges,
				  .num_sge = 2,
				  .opcode = IBV_WR_SEND };
	struct explanation why;

	qp_with_caps(IBV_QPS_RTS);
	expect_send("two SGEs", &wr, "driver-refused", "take SEND");
	wr.num_sge = 3;
	expect_send("three", &wr, "too-many-sges", "3 is above the QP's");
	wr.num_sge = 0;
	expect_send("none", &wr, "driver-refused", "");
	wr.num_sge = -1;
	expect_send("fewer than none", &wr, "too-many-sges", "-1");
	wr.num_sge = 2;
	wr.send_flags = IBV_SEND_INLINE;
	expect_send("16 bytes inline", &wr, "driver-refused", "");
	sges[1].length = 9;
	expect_send("17", &wr, "inline-too-long", "17 bytes");
	wr.opcode = IBV_WR_RDMA_READ;
	expect_send("a READ inline", &wr, "inline-read", "");
	wr.send_flags = 0;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.num_sge = 1;
	wr.wr.atomic.remote_addr = 4096;
	expect_send("an atomic", &wr, "driver-refused", "");
	wr.wr.atomic.remote_addr = 4100;
	expect_send("on half a word", &wr, "atomic-misaligned", "0x1004");
	wr.wr.atomic.remote_addr = 4096;
	sges[0].length = 7;
	expect_send("into 7 bytes", &wr, "atomic-short", "room for 7");
	wr.opcode = IBV_WR_SEND;
	world.qp.qp_state = IBV_QPS_RTR;
	expect_send("in RTR", &wr, "send-too-early", "RTR");
	world.qp.qp_state = IBV_QPS_SQD;
	expect_send("in SQD", &wr, "driver-refused", "");
	why = explain_post_send(&qp, &wr, ENOMEM);
	expect_word("a full queue", &why, "queue-full",
		    "send queue is full: 4");
	expect_true("where it works off nothing", strstr(why.seen, "SQD"));
	world.qp.qp_state = IBV_QPS_RTS;
	why = explain_post_send(&qp, &wr, ENOMEM);
	expect_true("or works", !why.seen[0]);
	why = explain_post_send(&qp, NULL, EINVAL);
	expect("a request that nobody shows", &why, "post-arguments");
	why = explain_post_send(&qp, &wr, EIO);
	expect("another error", &why, NULL);
}

/* 有的 provider 只在 init_attr 里填 cap。*/
static void test_where_the_caps_are(void)
{
	struct ibv_sge sges[3] = { { .length = 8 } };
	struct ibv_send_wr wr = { .sg_list = sges,
				  .num_sge = 2,
				  .opcode = IBV_WR_SEND };
	struct ibv_recv_wr recv = { .num_sge = 3 };

	qp_with_caps(IBV_QPS_RTS);
	world.init.cap = world.qp.cap;
	world.qp.cap = (struct ibv_qp_cap){ 0 };
	expect_send("two SGEs", &wr, "driver-refused", "");
	wr.num_sge = 3;
	expect_send("three", &wr, "too-many-sges", "max_send_sge 2");
	world.qp.cap.max_recv_sge = 3;
	wr.num_sge = 1;
	expect_send("a QP that only receives", &wr, "too-many-sges",
		    "max_send_sge 0");
	expect_recv("as many as it takes", &recv, EINVAL, "post-arguments", "");
	world.qp.cap = (struct ibv_qp_cap){ .max_send_sge = 2 };
	expect_send("a QP that only sends", &wr, "driver-refused", "");
	expect_recv("and receives nothing", &recv, EINVAL, "too-many-sges",
		    "max_recv_sge 0");
}

static void test_receives(void)
{
	struct ibv_recv_wr wr = { .num_sge = 3 };
	struct ibv_srq srq = { 0 };

	qp_with_caps(IBV_QPS_INIT);
	expect_recv("three SGEs", &wr, EINVAL, "post-arguments", "");
	wr.num_sge = 4;
	expect_recv("four", &wr, EINVAL, "too-many-sges", "max_recv_sge 3");
	expect_recv("another error", &wr, EIO, NULL, "");
	expect_recv("a request that nobody shows", NULL, EINVAL,
		    "post-arguments", "");
	expect_recv("a full queue", &wr, ENOMEM, "queue-full",
		    "receive queue is full: 5");
	qp.srq = &srq;
	expect_recv("an SRQ's QP", &wr, EINVAL, "qp-has-srq", "");
	qp.srq = NULL;
	world.qp.qp_state = IBV_QPS_RESET;
	expect_recv("in RESET", &wr, EINVAL, "recv-too-early", "");
	srq_now.max_sge = 4;
	expect_srq_recv("as many as the SRQ takes", &wr, EINVAL,
			"post-arguments", "");
	srq_now.max_sge = 3;
	expect_srq_recv("one more", &wr, EINVAL, "too-many-sges",
			"SRQ's max_sge 3");
	expect_srq_recv("a full SRQ", &wr, ENOMEM, "queue-full", "");
}

/* ---- completion ------------------------------------------------------------ */

static struct explain_mr near_mr, far_mr;
static struct ibv_sge sge;
static struct ibv_send_wr send_wr;
static struct explain_side far_side;
static struct explain_request request;
static struct ibv_pd other_pd;

/* 一次没有毛病的 WRITE：8 字节，从近处的 MR 到远处的 MR 的末尾。*/
static void good_request(enum ibv_wr_opcode opcode)
{
	ordinary_world(IBV_QPS_ERR);
	near_mr = (struct explain_mr){ .pd = &pd,
				       .addr = 4096,
				       .length = 64,
				       .lkey = 1,
				       .rkey = 2,
				       .access = 15 };
	far_mr = (struct explain_mr){ .addr = 8192,
				      .length = 64,
				      .lkey = 3,
				      .rkey = 0x400,
				      .access = 15 };
	sge = (struct ibv_sge){ .addr = 4096 + 56, .length = 8, .lkey = 1 };
	send_wr = (struct ibv_send_wr){ .sg_list = &sge,
					.num_sge = 1,
					.opcode = opcode };
	send_wr.wr.rdma.remote_addr = 8192 + 56;
	send_wr.wr.rdma.rkey = 0x400;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		send_wr.wr.atomic.remote_addr = 8192 + 56;
		send_wr.wr.atomic.rkey = 0x400;
	}
	far_side = (struct explain_side){
		.name = "B",
		.attr = { .qp_access_flags = 14, .max_dest_rd_atomic = 1 },
		.attr_mask = IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_DEST_RD_ATOMIC,
	};
	request = (struct explain_request){ .send = &send_wr,
					    .local = &near_mr,
					    .n_local = 1,
					    .remote = &far_mr,
					    .n_remote = 1,
					    .peer = &far_side };
}

static void expect_recorded(const char *what, enum ibv_wc_status status,
			    const char *id, const char *word)
{
	struct explanation why = explain_recorded(&qp, status, &request);

	expect_word(what, &why, id, word);
}

static void test_local_memory(void)
{
	const enum ibv_wc_status bad = IBV_WC_LOC_PROT_ERR;
	struct ibv_sge many[65];

	good_request(IBV_WR_RDMA_WRITE);
	expect_recorded("within its MR", bad, NULL, "");
	sge.length = 9;
	expect_recorded("a byte beyond", bad, "sge-outside-mr", "9 bytes");
	sge.length = 8;
	sge.addr = 4095;
	expect_recorded("a byte before", bad, "sge-outside-mr", "0xfff");
	for (int i = 0; i < 65; i++) {
		many[i] = (struct ibv_sge){ .addr = 4096, .lkey = 1 };
		many[i].lkey = i >= 63 ? 5 : 1;
	}
	send_wr.sg_list = many;
	send_wr.num_sge = 64;
	expect_recorded("the 64th", bad, "lkey-unknown", "0x5");
	many[63].lkey = 1;
	send_wr.num_sge = 65;
	expect_recorded("which is the last that is looked at", bad, NULL, "");
	send_wr.sg_list = &sge;
	send_wr.num_sge = 1;
	sge.lkey = 5;
	expect_recorded("another lkey", bad, "lkey-unknown", "0x5");
	good_request(IBV_WR_RDMA_WRITE);
	near_mr.pd = &other_pd;
	expect_recorded("another PD", bad, "lkey-other-pd", "0x1");
	near_mr.pd = NULL;
	expect_recorded("a PD not known", bad, NULL, "");
	near_mr.access = 0;
	expect_recorded("a WRITE reads it", bad, NULL, "");
	send_wr.opcode = IBV_WR_RDMA_READ;
	expect_recorded("a READ writes it", bad, "mr-not-writable", "");
	near_mr.access = -1;
	expect_recorded("rights not known", bad, NULL, "");
	near_mr.access = 14;
	expect_recorded("the peer's rights only", bad, "mr-not-writable", "");
	send_wr.send_flags = IBV_SEND_INLINE;
	expect_recorded("a READ inline", bad, "inline-read", "");
	send_wr.opcode = IBV_WR_SEND;
	sge.lkey = 5;
	expect_recorded("inline needs no lkey", bad, NULL, "");
	request.send = NULL;
	expect_recorded("nothing known", bad, NULL, "");
}

static void test_opcodes(void)
{
	const enum ibv_wc_status bad = IBV_WC_LOC_QP_OP_ERR;
	const struct {
		enum ibv_qp_type type;
		enum ibv_wr_opcode opcode;
		const char *id;
	} rows[] = {
		{ IBV_QPT_RC, IBV_WR_RDMA_READ, NULL },
		{ IBV_QPT_UC, IBV_WR_RDMA_WRITE, NULL },
		{ IBV_QPT_UC, IBV_WR_RDMA_READ, "opcode-not-for-type" },
		{ IBV_QPT_UC, IBV_WR_ATOMIC_CMP_AND_SWP,
		  "opcode-not-for-type" },
		{ IBV_QPT_UD, IBV_WR_SEND, NULL },
		{ IBV_QPT_UD, IBV_WR_SEND_WITH_IMM, NULL },
		{ IBV_QPT_UD, IBV_WR_RDMA_WRITE, "opcode-not-for-type" },
		{ IBV_QPT_RC, (enum ibv_wr_opcode)99, "opcode-unknown" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		good_request(rows[i].opcode);
		qp.qp_type = rows[i].type;
		expect_recorded("an opcode", bad, rows[i].id, "");
	}
}

static void test_remote_memory(void)
{
	const enum ibv_wc_status bad = IBV_WC_REM_ACCESS_ERR;

	good_request(IBV_WR_RDMA_WRITE);
	expect_recorded("within the peer's MR", bad, NULL, "");
	send_wr.wr.rdma.remote_addr++;
	expect_recorded("a byte beyond", bad, "remote-outside-mr",
			"0x2039 + 8");
	send_wr.wr.rdma.remote_addr = 0x3820000000000000;
	expect_recorded("the address turned round", bad, "addr-byte-order", "");
	send_wr.wr.rdma.rkey = 0x40000;
	expect_recorded("the rkey turned round", bad, "rkey-byte-order",
			"0x400 with");
	send_wr.wr.rdma.rkey = 3;
	expect_recorded("its lkey", bad, "lkey-for-rkey", "is 0x400");
	send_wr.wr.rdma.rkey = 2;
	expect_recorded("my own", bad, "own-rkey", "0x2");
	send_wr.wr.rdma.rkey = 7;
	expect_recorded("anybody's", bad, "rkey-unknown", "0x7");
	near_mr.rkey = 0;
	send_wr.wr.rdma.rkey = 0;
	expect_recorded("none", bad, "rkey-unknown", "0x0");
	good_request(IBV_WR_RDMA_WRITE);
	far_mr.pd = &pd;
	request.peer_pd = &other_pd;
	expect_recorded("in another PD", bad, "rkey-other-pd", "");
	request.peer_pd = &pd;
	expect_recorded("in the very PD", bad, NULL, "");
	good_request(IBV_WR_ATOMIC_FETCH_AND_ADD);
	sge.length = 64; /* an atomic touches 8 */
	expect_recorded("an atomic at the end", bad, NULL, "");
	send_wr.wr.atomic.remote_addr += 8;
	expect_recorded("an atomic beyond it", bad, "remote-outside-mr", "+ 8");
	request.send = NULL;
	expect_recorded("nothing known", bad, NULL, "");
}

static void test_remote_rights(void)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		int right;
		const char *name;
	} rows[] = {
		{ IBV_WR_RDMA_WRITE, IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE" },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, IBV_ACCESS_REMOTE_WRITE,
		  "REMOTE_WRITE" },
		{ IBV_WR_RDMA_READ, IBV_ACCESS_REMOTE_READ, "REMOTE_READ" },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_ACCESS_REMOTE_ATOMIC,
		  "REMOTE_ATOMIC" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		good_request(rows[i].opcode);
		far_mr.access = rows[i].right;
		far_side.attr.qp_access_flags = (unsigned int)rows[i].right;
		expect_recorded("just the right", IBV_WC_REM_ACCESS_ERR, NULL,
				"");
		far_side.attr.qp_access_flags ^= 14;
		expect_recorded("all others", IBV_WC_REM_ACCESS_ERR,
				"qp-lacks-right", rows[i].name);
		far_side.attr_mask = 0;
		expect_recorded("not known", IBV_WC_REM_ACCESS_ERR, NULL, "");
		far_mr.access ^= 14;
		expect_recorded("all others, of the MR", IBV_WC_REM_ACCESS_ERR,
				"mr-lacks-right", rows[i].name);
		far_mr.access = 0;
		expect_recorded("none at all", IBV_WC_REM_ACCESS_ERR,
				"mr-lacks-right", rows[i].name);
		far_mr.access = -1;
		expect_recorded("not known", IBV_WC_REM_ACCESS_ERR, NULL, "");
	}
	good_request(IBV_WR_RDMA_READ);
	far_side.attr.max_dest_rd_atomic = 0;
	expect_recorded("no READ is taken", IBV_WC_REM_INV_REQ_ERR,
			"dest-rd-atomic-zero", "");
	send_wr.opcode = IBV_WR_RDMA_WRITE;
	expect_recorded("a WRITE is", IBV_WC_REM_INV_REQ_ERR, NULL, "");
}

static void test_received(void)
{
	struct ibv_sge into = { .addr = 4096, .length = 40, .lkey = 1 };
	struct ibv_recv_wr recv = { .sg_list = &into, .num_sge = 1 };

	good_request(IBV_WR_SEND);
	request.send = NULL;
	request.recv = &recv;
	expect_recorded("a receive of 40 bytes", IBV_WC_LOC_LEN_ERR,
			"recv-too-small", "of 40 bytes");
	qp.qp_type = IBV_QPT_UD;
	expect_recorded("of UD", IBV_WC_LOC_LEN_ERR, "recv-too-small", "");
	into.length = 39;
	expect_recorded("a byte less", IBV_WC_LOC_LEN_ERR, "ud-no-grh-room",
			"39 bytes");
	into.length = 65;
	expect_recorded("more than the MR", IBV_WC_LOC_LEN_ERR,
			"sge-outside-mr", "65 bytes");
	into.length = 64;
	near_mr.access = 0;
	expect_recorded("into an MR that is only read", IBV_WC_LOC_PROT_ERR,
			"mr-not-writable", "this receive's buffer");
	good_request(IBV_WR_SEND);
	into = (struct ibv_sge){ .addr = 8192, .length = 8, .lkey = 3 };
	request.peer_recv = &recv;
	expect_recorded("as long as the message", IBV_WC_REM_INV_REQ_ERR, NULL,
			"");
	into.length = 7;
	expect_recorded("a byte less", IBV_WC_REM_INV_REQ_ERR, "recv-too-small",
			"of 8 bytes");
	into.length = 8;
	into.lkey = 1;
	expect_recorded("with the sender's lkey", IBV_WC_REM_OP_ERR,
			"lkey-unknown", "the peer's receive");
	into.lkey = 3;
	far_mr.access = 0;
	expect_recorded("an MR that is only read", IBV_WC_REM_OP_ERR,
			"mr-not-writable", "the peer's receive");
}

static void test_windows(void)
{
	const enum ibv_wc_status bad = IBV_WC_MW_BIND_ERR;
	struct ibv_mr mr = { .lkey = 1 };

	good_request(IBV_WR_BIND_MW);
	near_mr.access = IBV_ACCESS_MW_BIND;
	send_wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ .mr = &mr,
							       .addr = 4096,
							       .length = 64 };
	expect_recorded("all of the MR", bad, NULL, "");
	send_wr.bind_mw.bind_info.length = 65;
	expect_recorded("a byte more", bad, "window-outside-mr", "65 bytes");
	near_mr.access = 15;
	expect_recorded("without MW_BIND", bad, "mr-lacks-bind", "0x1");
	near_mr.access = 0;
	expect_recorded("without any right", bad, "mr-lacks-bind", "0x1");
	near_mr.access = -1;
	send_wr.bind_mw.bind_info.length = 64;
	expect_recorded("rights not known", bad, NULL, "");
	mr.lkey = 9;
	send_wr.bind_mw.bind_info.length = 65;
	expect_recorded("of an MR not known", bad, NULL, "");
}

/* ---- 等 -------------------------------------------------------------------- */

static void expect_stall(const char *what, int64_t ms, const char *id,
			 const char *word)
{
	struct explanation why = explain_stall(&qp, &request, ms);

	expect_word(what, &why, id, word);
}

static void waiting(enum ibv_qp_state state)
{
	good_request(IBV_WR_SEND);
	request.peer = NULL;
	send_wr.send_flags = IBV_SEND_SIGNALED;
	world.qp.qp_state = state;
	world.qp.path_mtu = IBV_MTU_1024;
	world.qp.timeout = 10; /* 4 ms */
	world.qp.retry_cnt = 6;
	qp.state = state;
	qp.send_cq = &cq;
	qp.recv_cq = &other_cq;
}

static void test_waits(void)
{
	struct explanation why;
	struct ibv_recv_wr recv = { .num_sge = 0 };

	waiting(IBV_QPS_RTS);
	expect_stall("29 ms of 29", 29, "still-retrying", "after 29 ms");
	expect_stall("30", 30, "no-completion", "");
	world.qp.path_mtu = IBV_MTU_2048;
	expect_stall("the MTU was made smaller", 30, "path-mtu-above-active",
		     "only 1024");
	waiting(IBV_QPS_RTS);
	request.polled = &cq;
	expect_stall("the right CQ", 30, "no-completion", "");
	request.polled = &other_cq;
	expect_stall("the other CQ", 30, "wrong-cq", "the send completes");
	request.send = NULL;
	expect_stall("for whatever comes", 30, "no-completion", "");
	request.recv = &recv;
	expect_stall("for a receive, the right CQ", 30, "nothing-came", "");
	world.qp.path_mtu = IBV_MTU_2048;
	expect_stall("with a smaller MTU", 30, "path-mtu-above-active", "");
	qp.qp_type = IBV_QPT_UD;
	expect_stall("which UD never had", 30, "nothing-came", "");
	qp.qp_type = IBV_QPT_RC;
	world.qp.path_mtu = IBV_MTU_1024;
	request.polled = &cq;
	expect_stall("for a receive, the other CQ", 30, "wrong-cq",
		     "the receive completes");
	waiting(IBV_QPS_RTS);
	send_wr.send_flags = 0;
	expect_stall("without SIGNALED", 1, "unsignaled", "");
	waiting(IBV_QPS_RTS);
	send_wr.opcode = IBV_WR_RDMA_READ;
	expect_stall("a READ", 30, "rd-atomic-zero", "");
	world.qp.max_rd_atomic = 1;
	expect_stall("a READ that may be", 30, "no-completion", "");
	world.qp.timeout = 0;
	expect_stall("without a timeout", 30, "timeout-zero", "");
	world.qp.timeout = 10;
	world.qp.retry_cnt = 7;
	expect_stall("seven retries", 33, "still-retrying", "after 33 ms");
	world.device.vendor_id = 0xffffff;
	expect_stall("seven retries, on rxe", 33, "retry-forever", "");
	request.peer_state_known = true;
	request.peer_state = IBV_QPS_ERR;
	why = explain_stall(&qp, &request, 33);
	expect("and why there is no ACK", &why, "peer-in-error");
	expect_true("that, too",
		    strstr(why.seen, "no ACK comes, and retry_cnt 7"));
	request.peer_state_known = false;
	qp.qp_type = IBV_QPT_UC;
	expect_stall("nobody retries", 1, "no-completion", "");
	waiting(IBV_QPS_RTS);
	send_wr.send_flags = 0;
	world.init.sq_sig_all = 1;
	expect_stall("all are SIGNALED", 30, "no-completion", "");
}

static void test_waits_in_states(void)
{
	struct ibv_recv_wr recv = { .num_sge = 0 };

	waiting(IBV_QPS_RTR);
	expect_stall("a send in RTR", 30, "qp-too-early", "RTR");
	request.send = NULL;
	request.recv = &recv;
	expect_stall("a receive in RTR", 30, "nothing-came", "");
	waiting(IBV_QPS_INIT);
	request.send = NULL;
	request.recv = &recv;
	expect_stall("a receive in INIT", 30, "qp-too-early", "INIT");
	waiting(IBV_QPS_SQD);
	expect_stall("a send in SQD", 30, "sqd-holds", "");
	request.send = NULL;
	request.recv = &recv;
	expect_stall("a receive in SQD", 30, "nothing-came", "");
	waiting(IBV_QPS_ERR);
	expect_stall("in ERR", 30, "qp-in-error", "ERR");
	qp.state = IBV_QPS_RTS;
	expect_stall("in ERR, unnoticed", 30, "qp-in-error", "though");
}

static void test_datagrams(void)
{
	struct ibv_sge into = { .length = 1064 };
	struct ibv_recv_wr recv = { .sg_list = &into, .num_sge = 1 };

	waiting(IBV_QPS_RTR);
	qp.qp_type = IBV_QPT_UD;
	world.qp.qkey = 5;
	request.peer_send = &send_wr;
	request.recv = &recv;
	request.send = NULL;
	sge.length = 1024;
	send_wr.wr.ud.remote_qpn = 0x11;
	send_wr.wr.ud.remote_qkey = 5;
	expect_stall("a datagram of one MTU", 30, "nothing-came", "");
	into.length--;
	expect_stall("no room for it and the GRH", 30, "ud-no-grh-room",
		     "1024");
	into.length += 2;
	sge.length = 1025;
	expect_stall("more than one MTU", 30, "ud-too-long", "1025 bytes");
	send_wr.wr.ud.remote_qkey = 6;
	expect_stall("another Q_Key", 30, "qkey-differs", "0x6");
	send_wr.wr.ud.remote_qkey = 0x80000000;
	sge.length = 1024;
	expect_stall("the QP's own is sent", 30, "nothing-came", "");
	send_wr.wr.ud.remote_qpn = 0x12;
	expect_stall("another QPN", 30, "qpn-differs", "QP 18");
	request.peer_send = NULL;
	expect_stall("what the peer sends is not known", 30, "nothing-came",
		     "");
}

/* 两端的属性都知道：先说发的那一端。只差 READ 的深度，ACK 不会因此不来。*/
static void test_both_ends(void)
{
	struct explain_side mine = { .name = "A", .qp_num = 0x11 };
	struct explain_side peer = { .name = "B", .qp_num = 0x12 };
	struct ibv_recv_wr recv = { .num_sge = 0 };
	const enum ibv_wc_status bad = IBV_WC_RETRY_EXC_ERR;
	struct explanation why;

	good_request(IBV_WR_SEND);
	request.mine = &mine;
	request.peer = &peer;
	mine.attr_mask = IBV_QP_MAX_QP_RD_ATOMIC;
	peer.attr_mask = IBV_QP_MAX_DEST_RD_ATOMIC;
	mine.attr.max_rd_atomic = 1;
	expect_recorded("only READs are too many", bad, NULL, "");
	mine.attr_mask |= IBV_QP_DEST_QPN;
	mine.attr.dest_qp_num = 0x13;
	expect_recorded("the QPN differs", bad, "qpn-differs", "A sends");
	why = explain_recorded(&qp, bad, &request);
	expect_true("and nothing else", !strstr(why.seen, "also"));
	expect_recorded("which is no wrong request", IBV_WC_REM_INV_REQ_ERR,
			NULL, "");
	request.mine = NULL;
	expect_recorded("of this end nothing is known", bad, NULL, "");
	waiting(IBV_QPS_RTS);
	request.mine = &mine;
	request.peer = &peer;
	request.send = NULL;
	request.recv = &recv;
	peer.attr_mask = IBV_QP_DEST_QPN;
	peer.attr.dest_qp_num = 0x14;
	expect_stall("both QPNs differ", 30, "qpn-differs", "B sends");
	request.peer = NULL;
	expect_stall("of the peer nothing is known", 30, "nothing-came", "");
}

/* 两端都对得上：那就是路上的事。UC 没有 ACK，就说不出来。*/
static void test_the_way_between(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	struct explain_side mine = { .name = "A" }, peer = { .name = "B" };
	struct explanation why;

	good_request(IBV_WR_SEND);
	request.mine = &mine;
	request.peer = &peer;
	why = explain_completion(&qp, &wc, &request);
	expect("both ends match", &why, "lost-on-the-way");
	request.mine = request.peer = NULL;
	why = explain_completion(&qp, &wc, &request);
	expect("nobody knows whether", &why, "RETRY_EXC_ERR");
	qp.qp_type = IBV_QPT_UC;
	request.mine = &mine;
	request.peer = &peer;
	why = explain_completion(&qp, &wc, &request);
	expect("without ACKs", &why, "RETRY_EXC_ERR");
}

/* 关掉了，就什么也不说。*/
static void test_switched_off(void)
{
	struct ibv_recv_wr recv = { .num_sge = 99 };
	struct explanation why;

	qp_with_caps(IBV_QPS_RTS);
	setenv("RDMA_EXPLAIN", "0", 1);
	expect_recv("ibv_post_recv, off", &recv, ENOMEM, NULL, "");
	expect_srq_recv("ibv_post_srq_recv, off", &recv, EINVAL, NULL, "");
	expect_true("and nobody is asked", !world.asked);
	why = explain_post_send(&qp, NULL, ENOMEM);
	expect("ibv_post_send, off", &why, NULL);
	waiting(IBV_QPS_ERR);
	expect_stall("no completion, off", 30, NULL, "");
	unsetenv("RDMA_EXPLAIN");
}

int main(void)
{
	test_sends();
	test_where_the_caps_are();
	test_receives();
	test_local_memory();
	test_opcodes();
	test_remote_memory();
	test_remote_rights();
	test_received();
	test_windows();
	test_waits();
	test_waits_in_states();
	test_datagrams();
	test_both_ends();
	test_the_way_between();
	test_switched_off();
	return failures ? 1 : 0;
}

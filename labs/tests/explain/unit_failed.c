// SPDX-License-Identifier: MIT
/*
 * unit_failed.c —— failed.c 的每个报告：返回什么，头一行怎么说，下一步是什么
 *
 * 替身与 unit_explain.c 的相同；原因本身对不对，在那里问。
 */
#include "explain/failed.h"
#include "world.h"

#include <fcntl.h>
#include <unistd.h>

static struct ibv_device device = { .name = "none0" };

/* stderr 上说了的，上次问过之后的。*/
static const char *said(void)
{
	static char text[8192];
	static FILE *file;
	static long from;
	size_t n;

	if (!file) {
		file = tmpfile();
		fflush(stderr);
		dup2(fileno(file), STDERR_FILENO);
	}
	fflush(stderr);
	fseek(file, from, SEEK_SET);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	from += (long)n;
	return text;
}

/* @rc 是 @wanted，而且说的以 @begin 开头，里面有 @word。*/
static void expect_report(const char *what, int rc, int wanted,
			  const char *begin, const char *word)
{
	const char *text = said();
	const bool good = rc == wanted &&
			  !strncmp(text, begin, strlen(begin)) &&
			  strstr(text, word);

	expect_true(what, good);
	if (!good)
		printf("# %d, not %d; \"%s\", \"%s\", not: %s\n", rc, wanted,
		       begin, word, text);
}

static void test_devices(void)
{
	expect_report(
		"no module", device_list_failed(ENOSYS), -ENODEV,
		"error: there is no RDMA device on this machine: ", " next: ");
	expect_report("no memory", device_list_failed(ENOMEM), -ENOMEM,
		      "error: ibv_get_device_list() failed: ENOMEM (12): ",
		      "list of devices");
	expect_report("no such name", no_such_device("rxe7", 2, 0), -ENODEV,
		      "error: no RDMA device is named \"rxe7\"\n",
		      " next: list the devices");
	expect_report("a name, and no device", no_such_device("rxe7", 0, 0),
		      -ENODEV, "error: there is no RDMA device", " next: ");
	expect_report("any, and no device", no_such_device(NULL, 0, 0), -ENODEV,
		      "error: there is no RDMA device", " next: ");
	expect_report("any, and none will do", no_such_device(NULL, 2, 0),
		      -ENODEV, "error: there is no RDMA device", " next: ");
	setenv("RDMA_EXPLAIN", "0", 1);
	expect_report("any, off", no_such_device(NULL, 0, 0), -ENODEV,
		      "error: there is no RDMA device on this machine\n", "");
	unsetenv("RDMA_EXPLAIN");
	expect_report("not opened", open_device_failed(&device, EACCES),
		      -EACCES, "error: ibv_open_device(none0) failed: EACCES",
		      "may not open");
	expect_report("no port", no_active_port(&device, IBV_PORT_DOWN),
		      -ENETDOWN,
		      "error: none0 has no active port (port 1 is down)\n",
		      " next: set the network device behind it up");
}

static void test_gids(void)
{
	expect_report("any GID", gid_refused("rxe0", 1, -1, false),
		      -EADDRNOTAVAIL,
		      "error: GID index -1 of rxe0 port 1 (automatic): no RoCE "
		      "v2 GID there\n",
		      " next: list the GIDs");
	expect_report("GID 0", gid_refused("rxe0", 1, 0, true), -EADDRNOTAVAIL,
		      "error: GID index 0 of rxe0 port 1 is not RoCE v2\n", "");
	expect_report("GID 9", gid_refused("rxe0", 2, 9, false), -EADDRNOTAVAIL,
		      "error: GID index 9 of rxe0 port 2 is empty\n", "");
	warn_of_link_local("rxe0", 1);
	expect_report("link-local", 0, 0,
		      "warning: rxe0 port 1 has only a link-local GID\n",
		      " next: give the network device an IPv4 address");
}

static void test_memory_and_queues(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 3,
						  .max_recv_wr = 4 } };

	ordinary_world(IBV_QPS_INIT);
	expect_report("a size", size_refused("rxe0", 1, 9, 8), -EMSGSIZE,
		      "error: message size 9 is not in 1 ... 8 (max_msg_sz of "
		      "rxe0 port 1)\n",
		      " next: choose a --size");
	expect_report("a buffer", no_memory_for_buffer(77), -ENOMEM,
		      "error: no memory for a buffer of 77 bytes\n",
		      " next: choose a smaller --size");
	expect_report("an MR", reg_mr_failed(&pd, &init, 0, 1, EINVAL), -EINVAL,
		      "error: ibv_reg_mr(none0, 0 bytes) failed: EINVAL (22): "
		      "length is 0\n",
		      " next: ");
	expect_report("a CQ", create_cq_failed(&context, 0, EINVAL), -EINVAL,
		      "error: ibv_create_cq(none0, cqe 0) failed: EINVAL (22): "
		      "cqe is 0\n",
		      " next: ");
	expect_report("a QP", create_qp_failed(&pd, &init, EINVAL), -EINVAL,
		      "error: ibv_create_qp(none0, RC, 3 send, 4 recv) failed: "
		      "EINVAL (22): the QP was given no send_cq\n",
		      " next: ");
	expect_report("all gone", check_destroyed("ibv_destroy_qp", 0), 0, "",
		      "");
	expect_report(
		"not gone", check_destroyed("ibv_destroy_qp", EBUSY), -EBUSY,
		"error: ibv_destroy_qp() failed: EBUSY (16): ", " next: ");
	expect_report("no windows", no_support("rxe0", "windows"), -EOPNOTSUPP,
		      "error: rxe0 has no windows\n",
		      " next: see device_cap_flags");
}

static void test_states(void)
{
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTR);
	expect_report(
		"a step",
		modify_qp_failed(&qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN,
				 EINVAL),
		-EINVAL,
		"error: ibv_modify_qp(QP 17, INIT -> RTR, mask STATE|"
		"DEST_QPN) failed: EINVAL (22): INIT -> RTR also requires",
		" next: ");
	world.qp.qp_state = IBV_QPS_RTR;
	warn_of_accepted(&qp, &attr, rtr_bits, IBV_QPS_INIT);
	expect_report("nothing to warn of", 0, 0, "", "");
	attr.rq_psn = 1 << 24;
	attr.path_mtu = IBV_MTU_4096;
	warn_of_accepted(&qp, &attr, rtr_bits, IBV_QPS_INIT);
	expect_report("two things to warn of", 0, 0,
		      "warning: ibv_modify_qp(QP 17, RTR): ",
		      "\nwarning: ibv_modify_qp(QP 17, RTR): ");
}

static struct ibv_sge sge = { .addr = 4096, .length = 8, .lkey = 1 };

static struct ibv_send_wr send_of(enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = {
		.wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = opcode
	};

	if (opcode >= IBV_WR_ATOMIC_CMP_AND_SWP &&
	    opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.remote_addr = 0x3000;
	else
		wr.wr.rdma.remote_addr = 0x2000;
	return wr;
}

/* 怎样称呼一个请求。*/
static void test_posts(void)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		const char *text;
	} rows[] = {
		{ IBV_WR_SEND, "slot 5, 8 bytes" },
		{ IBV_WR_SEND_WITH_IMM, "send of slot 5" },
		{ IBV_WR_RDMA_WRITE, "WRITE of 8 bytes at 0x2000" },
		{ IBV_WR_RDMA_READ, "READ of 8 bytes at 0x2000" },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, "CMP_AND_SWP of 8 bytes at "
					     "0x3000" },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, "FETCH_AND_ADD of 8 bytes at "
					       "0x3000" },
	};
	struct ibv_recv_wr recv = { .wr_id = 6, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr wr;
	char begin[128];

	ordinary_world(IBV_QPS_RTS);
	for (size_t i = 0; i < LENGTH(rows); i++) {
		wr = send_of(rows[i].opcode);
		snprintf(begin, sizeof(begin),
			 "error: ibv_post_send(QP 17, %s) failed: ENOMEM (12)",
			 rows[i].text);
		expect_report(rows[i].text, post_send_failed(&qp, &wr, ENOMEM),
			      -ENOMEM, begin, "queue is full");
	}
	wr = send_of(IBV_WR_BIND_MW);
	wr.num_sge = 0;
	wr.sg_list = NULL;
	wr.bind_mw.rkey = 0x77;
	expect_report("a window", post_send_failed(&qp, &wr, ENOMEM), -ENOMEM,
		      "error: ibv_post_send(QP 17, BIND_MW as rkey 0x77)", "");
	wr.opcode = IBV_WR_LOCAL_INV;
	wr.invalidate_rkey = 0x78;
	expect_report("no window", post_send_failed(&qp, &wr, ENOMEM), -ENOMEM,
		      "error: ibv_post_send(QP 17, LOCAL_INV of rkey 0x78)",
		      "");
	expect_report("a receive", post_recv_failed(&qp, &recv, ENOMEM),
		      -ENOMEM,
		      "error: ibv_post_recv(QP 17, slot 6, 8 bytes) failed: "
		      "ENOMEM (12)",
		      "queue is full");
}

/* 记下的请求按 wr_id 找回来；MR 与对端说的，都用来找原因。*/
static void test_completions(void)
{
	struct ibv_wc wc = { .status = IBV_WC_LOC_PROT_ERR, .qp_num = 17 };
	struct ibv_mr mr = { .pd = &pd,
			     .addr = (void *)4096,
			     .length = 64,
			     .lkey = 1,
			     .rkey = 2 };
	const struct cm_con_data_t told = { .addr = 0x2000,
					    .size = 64,
					    .rkey = 3 };
	struct ibv_recv_wr recv = { .wr_id = 6, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr wr = send_of(IBV_WR_RDMA_WRITE);
	struct posted posted[3] = { 0 };

	ordinary_world(IBV_QPS_ERR);
	remember_receive(&posted[0], &recv);
	sge.length = 65;
	remember_send(&posted[1], &wr);
	sge.length = 8;
	expect_report(
		"beyond the MR",
		completion_failed(&qp, &wc, 5, 0, posted, 3, &mr, NULL), -EIO,
		"error: the WRITE of 65 bytes at 0x2000 on QP 17 completed "
		"with local protection error (4): this send's buffer",
		"(0x1000, 65 bytes) is not within its MR (0x1000, 64");
	expect_report("of another MR",
		      completion_failed(&qp, &wc, 5, 0, posted, 3, NULL, NULL),
		      -EIO, "error: the WRITE of 65 bytes at 0x2000 on QP 17",
		      "by the specification");
	mr.lkey = 9;
	expect_report("of an MR not told",
		      completion_failed(&qp, &wc, 5, 0, posted, 3, &mr, NULL),
		      -EIO, "error: the WRITE of 65 bytes at 0x2000 on QP 17",
		      "by the specification");
	mr.lkey = 1;
	wc.status = IBV_WC_REM_ACCESS_ERR;
	expect_report("an rkey",
		      completion_failed(&qp, &wc, 5, 0, posted, 3, &mr, &told),
		      -EIO, "error: the WRITE of 65 bytes at 0x2000 on QP 17",
		      "rkey 0x0 is of none of the peer's MRs");
	expect_report("an rkey, the peer's not known",
		      completion_failed(&qp, &wc, 5, 0, posted, 3, &mr, NULL),
		      -EIO, "error: the WRITE of 65 bytes at 0x2000 on QP 17",
		      "by the specification");
	posted[1].send.wr.rdma.rkey = 3;
	expect_report("a byte beyond the peer's",
		      completion_failed(&qp, &wc, 5, 0, posted, 3, &mr, &told),
		      -EIO, "error: the WRITE of 65 bytes",
		      "0x2000 + 65 bytes is not within the peer's MR (0x2000, "
		      "64 bytes)");
	wc.status = IBV_WC_LOC_LEN_ERR;
	expect_report("a receive",
		      completion_failed(&qp, &wc, 6, 0, posted, 3, &mr, &told),
		      -EIO, "error: the receive of slot 6 on QP 17 completed",
		      "longer than this receive of 8 bytes");
	expect_report("nobody's",
		      completion_failed(&qp, &wc, 7, 0, posted, 3, &mr, &told),
		      -EIO, "error: the request on QP 17 completed", "");
	expect_report("any",
		      completion_failed(&qp, &wc, 0, 0, posted, 3, &mr, &told),
		      -EIO, "error: the request on QP 17 completed", "");
	wc.opcode = IBV_WC_RECV;
	wc.wr_id = 0x12;
	expect_report("a good one", unexpected_completion(&wc), -EIO,
		      "error: unexpected completion: wr_id 0x12 opcode 128 on "
		      "QP 17\n",
		      "");
}

static void test_waits(void)
{
	struct ibv_send_wr wr = send_of(IBV_WR_RDMA_WRITE);
	struct posted posted[1] = { 0 };

	ordinary_world(IBV_QPS_RTS);
	remember_send(&posted[0], &wr);
	expect_report(
		"a send without SIGNALED",
		completion_failed(&qp, NULL, 5, 70, posted, 1, NULL, NULL),
		-ETIMEDOUT,
		"error: no completion on QP 17 within 70 ms: ", "SIGNALED");
	setenv("RDMA_EXPLAIN", "0", 1);
	expect_report(
		"off",
		completion_failed(&qp, NULL, 5, 70, posted, 1, NULL, NULL),
		-ETIMEDOUT, "error: no completion on QP 17 within 70 ms\n", "");
	unsetenv("RDMA_EXPLAIN");
	memset(posted, 0xff, sizeof(posted));
	wr.num_sge = 0;
	wr.sg_list = NULL;
	remember_send(&posted[0], &wr);
	expect_true("what carries no data", !posted[0].is_receive &&
						    !posted[0].sge.length &&
						    !posted[0].sge.addr);
}

int main(void)
{
	said();
	context.device = &device;
	test_devices();
	test_gids();
	test_memory_and_queues();
	test_states();
	test_posts();
	test_completions();
	test_waits();
	return failures ? 1 : 0;
}

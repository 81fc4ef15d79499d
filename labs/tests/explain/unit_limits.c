// SPDX-License-Identifier: MIT
/*
 * unit_limits.c —— 解释器的每个界限：恰好到界限的不说，多一步的才说
 *
 * 替身与 unit_explain.c 的相同。那里问的是“哪一种情形叫什么名字”，这里问的是“从哪个值
 * 起”：差一，就会冤枉一个对的值，或者放过一个错的。
 */
#include "world.h"

#include "explain/qp_table.h"

static struct ibv_cq cq;

static void expect_advice(const char *what, const struct explanation *why,
			  const char *end)
{
	size_t all = strlen(why->next), some = strlen(end);

	if (all < some || strcmp(why->next + all - some, end)) {
		failures++;
		printf("not ok %s: \"%s\" is not the end of: %s\n", what, end,
		       why->next);
	}
}

/* ---- 建与拆 --------------------------------------------------------------- */

static void test_cqs(void)
{
	static const struct {
		int cqe, vector, err;
		const char *id, *word;
	} rows[] = {
		{ 0, 0, EINVAL, "cq-empty", "cqe is 0" },
		{ -1, 0, EINVAL, "cq-empty", "cqe is -1" },
		{ 1, 0, EINVAL, "cq-arguments", "" },
		{ 100, 1, EINVAL, "cq-arguments", "" },
		{ 101, 0, EINVAL, "cq-too-large", "101 is above" },
		{ 1, 2, EINVAL, "cq-vector", "has 2 (0 ... 1)" },
		{ 1, -1, EINVAL, "cq-vector", "comp_vector -1" },
		{ 0, 0, ENOMEM, NULL, "" },
	};

	ordinary_world(IBV_QPS_INIT);
	world.device.max_cqe = 100;
	context.num_comp_vectors = 2;
	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct explanation why = explain_create_cq_call(
			&context, rows[i].cqe, rows[i].vector, rows[i].err);

		expect_word("a CQ", &why, rows[i].id, rows[i].word);
	}
}

static void test_srqs(void)
{
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	world.device.max_srq_wr = 10;
	world.device.max_srq_sge = 2;
	why = explain_create_srq(&context, 10, 2, EINVAL);
	expect("an SRQ as large as it may be", &why, "srq-empty");
	why = explain_create_srq(&context, 11, 2, EINVAL);
	expect("one more request", &why, "srq-too-large");
	why = explain_create_srq(&context, 10, 3, EINVAL);
	expect("one more SGE", &why, "srq-too-large");
	why = explain_create_srq(&context, 11, 3, ENOMEM);
	expect("no memory for it", &why, NULL);
}

static void test_caps(void)
{
	static const struct {
		struct ibv_qp_cap cap;
		const char *id, *word;
	} rows[] = {
		{ { .max_send_wr = 10 }, "qp-caps", "a queue size" },
		{ { .max_send_wr = 11 }, "qp-caps", "max_send_wr 11" },
		{ { .max_recv_wr = 10 }, "qp-caps", "a queue size" },
		{ { .max_recv_wr = 11 }, "qp-caps", "max_recv_wr 11" },
		{ { .max_send_sge = 3 }, "qp-caps", "a queue size" },
		{ { .max_send_sge = 4 }, "qp-caps", "max_send_sge 4" },
		{ { .max_recv_sge = 3 }, "qp-caps", "a queue size" },
		{ { .max_recv_sge = 4 }, "qp-caps", "max_recv_sge 4" },
		{ { .max_inline_data = 512 }, "qp-caps-hidden", "data 512" },
		{ { .max_inline_data = 513 }, "qp-caps", "512" },
	};
	struct ibv_srq srq = { 0 };
	struct ibv_qp_init_attr init;
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	world.device.vendor_id = 0xffffff;
	world.device.max_qp_wr = 10;
	world.device.max_sge = 3;
	for (size_t i = 0; i < LENGTH(rows); i++) {
		init = (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC,
						  .send_cq = &cq,
						  .recv_cq = &cq,
						  .cap = rows[i].cap };
		why = explain_create_qp_call(&pd, &init, EINVAL);
		expect_word("caps of a QP", &why, rows[i].id, rows[i].word);
	}
	init.srq = &srq;
	init.cap = (struct ibv_qp_cap){ .max_recv_wr = 11, .max_recv_sge = 4 };
	why = explain_create_qp_call(&pd, &init, EINVAL);
	expect_word("with an SRQ they do not count", &why, "qp-caps",
		    "a queue size");
	world.device.vendor_id = 0x2c9;
	init.cap = (struct ibv_qp_cap){ .max_inline_data = 513 };
	why = explain_create_qp_call(&pd, &init, EINVAL);
	expect("inline data of others than rxe", &why, "qp-caps-hidden");
}

static void test_qp_types(void)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	why = explain_create_qp_call(&pd, &init, EINVAL);
	expect_word("no CQ", &why, "qp-without-cq", "no send_cq");
	init.send_cq = &cq;
	why = explain_create_qp_call(&pd, &init, EINVAL);
	expect_word("no recv_cq", &why, "qp-without-cq", "no recv_cq");
	init.send_cq = NULL;
	init.recv_cq = &cq;
	why = explain_create_qp_call(&pd, &init, EINVAL);
	expect_word("no send_cq", &why, "qp-without-cq", "no send_cq");
	why = explain_create_qp_call(&pd, &init, EOPNOTSUPP);
	expect_word("a type that is not there", &why, "qp-type", "type RC (2)");
	why = explain_create_qp_call(&pd, &init, EPERM);
	expect("a type for root", &why, "qp-type-permission");
	why = explain_create_qp_call(&pd, &init, ENOMEM);
	expect("no memory", &why, "qp-memory");
	why = explain_create_qp_call(&pd, &init, ENODEV);
	expect("another error", &why, NULL);
	init.qp_type = (enum ibv_qp_type)0;
	why = explain_create_qp_call(&pd, &init, EINVAL);
	expect_word("no type", &why, "qp-type", "qp_type 0");
	why = explain_create_qp(EPERM);
	expect("without arguments: EPERM", &why, "qp-type");
	why = explain_create_qp(EOPNOTSUPP);
	expect("without arguments: EOPNOTSUPP", &why, "qp-type");
}

static void test_mrs(void)
{
	static char here[64];
	const int write = IBV_ACCESS_LOCAL_WRITE;
	const struct {
		const void *addr;
		size_t length;
		int access, err;
		const char *id, *word;
	} rows[] = {
		{ here, 0, write, EINVAL, "mr-length-zero", "" },
		{ here, 64, write, EINVAL, "driver-refused", "access 0x1" },
		{ here, 65, write, EINVAL, "mr-too-large", "65 bytes" },
		{ (void *)-8, 8, write, EINVAL, "mr-length-wraps", "" },
		{ (void *)-9, 8, write, EINVAL, "mr-length-impossible", "" },
		{ here, 64, write | IBV_ACCESS_ON_DEMAND, EINVAL,
		  "odp-unsupported", "ON_DEMAND" },
		{ here, 64, write | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP,
		  "odp-unsupported", "ON_DEMAND" },
		{ here, 64, write, EOPNOTSUPP, "odp-unsupported", "flags" },
		{ here, 64, write, EFAULT, "mr-cannot-pin", "" },
		{ (void *)-9, 8, write, ENOMEM, "mr-length-impossible", "" },
		{ here, 64, write, EBUSY, NULL, "" },
	};

	ordinary_world(IBV_QPS_INIT);
	world.device.max_mr_size = 64;
	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct explanation why =
			explain_reg_mr_call(&pd, rows[i].addr, rows[i].length,
					    rows[i].access, rows[i].err);

		expect_word("an MR", &why, rows[i].id, rows[i].word);
	}
}

/* 两页，第二页的后面是洞；中间一页只读。*/
static void test_mappings(void)
{
	char *pages = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char hole[32];
	struct explanation why;

	munmap(pages + 2 * 4096, 4096);
	snprintf(hole, sizeof(hole), "0x%jx,", (uintmax_t)(pages + 2 * 4096));
	why = explain_reg_mr_call(&pd, pages, 2 * 4096, 1, EFAULT);
	expect("up to the hole", &why, "mr-cannot-pin");
	why = explain_reg_mr_call(&pd, pages, 2 * 4096 + 1, 1, EFAULT);
	expect_word("a byte of the hole", &why, "mr-not-mapped", hole);
	why = explain_reg_mr_call(&pd, pages + 4096, 3 * 4096, 1, EFAULT);
	expect_word("beyond the hole", &why, "mr-not-mapped", hole);
	why = explain_reg_mr_call(&pd, pages + 2 * 4096, 16, 1, EFAULT);
	expect_word("in the hole", &why, "mr-not-mapped", hole);
	why = explain_reg_mr_call(&pd, pages + 3 * 4096, 4096, 1, EFAULT);
	expect("behind the hole", &why, "mr-cannot-pin");
	mprotect(pages + 4096, 4096, PROT_READ);
	why = explain_reg_mr_call(&pd, pages, 4096, 1, EFAULT);
	expect("before the page that is read-only", &why, "mr-cannot-pin");
	why = explain_reg_mr_call(&pd, pages, 4097, 1, EFAULT);
	expect("a byte of it", &why, "mr-read-only");
	expect_true("which says so", strstr(why.seen, " r--p "));
	mprotect(pages + 4096, 4096, PROT_READ | PROT_WRITE);
	mprotect(pages, 4096, PROT_READ);
	why = explain_reg_mr_call(&pd, pages + 4096, 4096, 1, EFAULT);
	expect("behind the page that is read-only", &why, "mr-cannot-pin");
	munmap(pages, 4 * 4096);
}

static void test_the_rest(void)
{
	static const struct {
		enum ibv_event_type type;
		const char *id;
	} events[] = {
		{ IBV_EVENT_CQ_ERR, "cq-overrun" },
		{ IBV_EVENT_QP_FATAL, "qp-fatal" },
		{ IBV_EVENT_QP_REQ_ERR, "qp-request" },
		{ IBV_EVENT_QP_ACCESS_ERR, "qp-access" },
		{ IBV_EVENT_PORT_ERR, "port-down" },
		{ IBV_EVENT_GID_CHANGE, "gid-changed" },
		{ IBV_EVENT_SQ_DRAINED, "sq-drained" },
		{ IBV_EVENT_DEVICE_FATAL, "device-fatal" },
		{ IBV_EVENT_COMM_EST, NULL },
	};
	struct explanation why;

	for (size_t i = 0; i < LENGTH(events); i++) {
		why = explain_async_event(events[i].type);
		expect("an asynchronous event", &why, events[i].id);
	}
	why = explain_unacked(3, 4);
	expect_word("more acknowledged than taken", &why, "events-acked-twice",
		    "3 were taken, and 4");
	why = explain_unacked(4, 3);
	expect_word("fewer", &why, "events-not-acked", "4 were taken, and 3");
	ordinary_world(IBV_QPS_INIT);
	why = explain_port(&context, 1);
	expect("a port without a network device", &why, "no-carrier");
	world.gid.ndev_ifindex = 1;
	why = explain_port(&context, 1);
	expect("a port whose network device is up", &why, "no-carrier");
	why = explain_destroy(EINVAL);
	expect("ibv_destroy, EINVAL", &why, NULL);
	why = explain_open_device(EACCES);
	expect("a node for others: EACCES", &why, "node-not-permitted");
	why = explain_open_device(EPERM);
	expect("a node for others: EPERM", &why, "node-not-permitted");
	why = explain_open_device(EINVAL);
	expect("another error", &why, NULL);
}

/* ---- ibv_modify_qp -------------------------------------------------------- */

static const int init_bits =
	IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

/* 一次合法的改变，只动一个成员。*/
#define MODIFY(from, to, mask, member, value, id, word)                \
	do {                                                           \
		struct ibv_qp_attr attr_;                              \
		struct explanation why_;                               \
                                                                       \
		ordinary_world(from);                                  \
		attr_ = good_attr(to);                                 \
		attr_.member = (value);                                \
		why_ = explain_modify_qp(&qp, &attr_, (mask), EINVAL); \
		expect_word(#member " " #value, &why_, (id), (word));  \
	} while (0)
#define TO_INIT(...) MODIFY(IBV_QPS_RESET, IBV_QPS_INIT, init_bits, __VA_ARGS__)
#define TO_RTR(...)  MODIFY(IBV_QPS_INIT, IBV_QPS_RTR, rtr_bits, __VA_ARGS__)
#define TO_RTS(...)  MODIFY(IBV_QPS_RTR, IBV_QPS_RTS, rts_bits, __VA_ARGS__)

static void test_values(void)
{
	static const char fine[] = "driver-refused", good[] = "way and mask";

	TO_INIT(port_num, 0, "port", "port_num 0");
	TO_INIT(port_num, 1, fine, good);
	TO_INIT(port_num, 2, "port", "(1 ... 1)");
	TO_INIT(qp_access_flags, 0x3ff, fine, good);
	TO_INIT(qp_access_flags, 0x400, "access-unknown", "(0x400)");
	TO_INIT(qp_access_flags, IBV_ACCESS_OPTIONAL_FIRST, fine, good);
	TO_RTR(ah_attr.port_num, 0, "av-port", "port_num 0");
	TO_RTR(ah_attr.port_num, 2, "av-port", "(1 ... 1)");
	TO_RTR(path_mtu, 0, "path-mtu-not-enum", "path_mtu 0 is");
	TO_RTR(path_mtu, IBV_MTU_256, fine, good);
	TO_RTR(path_mtu, IBV_MTU_4096, fine, good);
	TO_RTR(path_mtu, (enum ibv_mtu)6, "path-mtu-not-enum", "enum ibv_mtu");
	TO_RTR(path_mtu, (enum ibv_mtu)256, "path-mtu-not-enum", "like bytes");
	TO_RTR(max_dest_rd_atomic, 16, fine, good);
	TO_RTR(max_dest_rd_atomic, 17, "dest-rd-atomic-too-large", "17");
	TO_RTS(timeout, 31, fine, good);
	TO_RTS(timeout, 32, "timeout-too-large", "timeout 32");
	TO_RTS(max_rd_atomic, 16, fine, good);
	TO_RTS(max_rd_atomic, 17, "rd-atomic-too-large", "17");
}

/* 没有这条路：说往哪里走。*/
static void test_no_way(void)
{
	static const struct {
		enum ibv_qp_state from, to;
		const char *word;
	} rows[] = {
		{ IBV_QPS_ERR, IBV_QPS_RTS,
		  "step at a time; ERR leads only to RESET" },
		{ IBV_QPS_RTS, IBV_QPS_SQE, "an error leads there" },
		{ IBV_QPS_RESET, IBV_QPS_ERR, "there is nothing to flush yet" },
		{ IBV_QPS_RTS, IBV_QPS_INIT, "the whole way up with new PSNs" },
		{ IBV_QPS_RTR, IBV_QPS_RTR, "the whole way up with new PSNs" },
		{ IBV_QPS_RESET, IBV_QPS_RTS, "and nobody looked?" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct ibv_qp_attr attr;
		struct explanation why;

		ordinary_world(rows[i].from);
		attr = good_attr(rows[i].to);
		why = explain_modify_qp(&qp, &attr, IBV_QP_STATE, EINVAL);
		expect("no way", &why, "no-way");
		expect_advice("no way", &why, rows[i].word);
	}
}

static void test_claims(void)
{
	static const struct {
		enum ibv_qp_state claimed;
		const char *id;
	} rows[] = {
		{ IBV_QPS_RESET, "cur-state-not-allowed" },
		{ IBV_QPS_INIT, "cur-state-not-allowed" },
		{ IBV_QPS_RTR, "driver-refused" },
		{ IBV_QPS_RTS, "bits-forbidden" },
		{ IBV_QPS_SQD, "bits-forbidden" },
		{ IBV_QPS_SQE, "bits-forbidden" },
		{ IBV_QPS_ERR, "cur-state-not-allowed" },
		{ (enum ibv_qp_state)39, "cur-state-not-allowed" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct ibv_qp_attr attr;
		struct explanation why;

		ordinary_world(IBV_QPS_RTR);
		attr = good_attr(IBV_QPS_RTS);
		attr.cur_qp_state = rows[i].claimed;
		why = explain_modify_qp(&qp, &attr, rts_bits | IBV_QP_CUR_STATE,
					EINVAL);
		expect("cur_qp_state", &why, rows[i].id);
	}
}

static void test_other_errors(void)
{
	struct ibv_qp_attr attr;
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTR);
	why = explain_modify_qp(&qp, &attr, rtr_bits, ENOMEM);
	expect("ENOMEM", &why, "kernel-memory");
	why = explain_modify_qp(&qp, &attr, rtr_bits | IBV_QP_RATE_LIMIT,
				EOPNOTSUPP);
	expect_word("EOPNOTSUPP", &why, "bits-unsupported", "RATE_LIMIT");
	why = explain_modify_qp(&qp, &attr, rtr_bits | IBV_QP_ALT_PATH, EINVAL);
	expect("an alternate path", &why, "alt-path");
	why = explain_modify_qp(&qp, &attr, IBV_QP_STATE, ENODEV);
	expect("an errno of the path, without an AV", &why, NULL);
	attr.qkey = 0x80000000;
	why = explain_modify_qp(&qp, &attr, IBV_QP_QKEY, EPERM);
	expect_word("a controlled Q_Key", &why, "qkey-controlled", "0x8000000");
	why = explain_modify_qp(&qp, &attr, IBV_QP_STATE, EPERM);
	expect("EPERM without a Q_Key", &why, NULL);
	attr.qkey = 0x7fffffff;
	why = explain_modify_qp(&qp, &attr, IBV_QP_QKEY, EPERM);
	expect("EPERM with an ordinary Q_Key", &why, NULL);
	world.qp.qp_state = IBV_QPS_SQD;
	world.qp.sq_draining = 1;
	attr = good_attr(IBV_QPS_ERR);
	why = explain_modify_qp(&qp, &attr, IBV_QP_STATE, EINVAL);
	expect("draining, to ERR", &why, "driver-refused");
}

static void test_address_handles(void)
{
	struct ibv_ah_attr ah;
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	ah = good_attr(IBV_QPS_RTR).ah_attr;
	why = explain_create_ah(&pd, &ah, EINVAL);
	expect("nothing wrong with it", &why, NULL);
	for (int port = 0; port <= 2; port += 2) {
		ah.port_num = (uint8_t)port;
		why = explain_create_ah(&pd, &ah, EINVAL);
		expect("a port that is none", &why, "av-port");
	}
	ah.port_num = 1;
	ah.is_global = 0;
	why = explain_create_ah(&pd, &ah, EINVAL);
	expect("no GRH", &why, "no-grh");
	ah.is_global = 1;
	ah.grh.dgid = (union ibv_gid){ .raw = { 0xfe, 0x80, [15] = 1 } };
	why = explain_create_ah(&pd, &ah, EINVAL);
	expect_word("IPv4 here, IPv6 there", &why, "gid-families-differ",
		    "is IPv4-mapped, the peer's is IPv6");
	world.gid.gid = ah.grh.dgid;
	memset(&ah.grh.dgid, 0, 16);
	memset(ah.grh.dgid.raw + 10, 0xff, 2);
	why = explain_create_ah(&pd, &ah, EINVAL);
	expect_word("and the other way round", &why, "gid-families-differ",
		    "is IPv6, the peer's is IPv4-mapped");
	ordinary_world(IBV_QPS_INIT);
	memset(&ah.grh.dgid, 0, 16);
	why = explain_create_ah(&pd, &ah, EINVAL);
	expect("a GID that never came", &why, "gid-zero");
}

/* 地址解析的 errno。网卡 1 是 lo：它 up，也没有 RDMA 设备。*/
static void test_paths(void)
{
	static const struct {
		const char *gid;
		int netdev, err;
		const char *id;
	} rows[] = {
		{ "::ffff:0.0.0.0", 1, ENODEV, "gid-zero-ipv4" },
		{ "::ffff:0.0.0.1", 1, ENODEV, "peer-on-loopback" },
		{ "::ffff:0.0.0.1", 0, ENODEV, "gid-without-netdev" },
		{ "::", 1, ENODEV, "peer-on-loopback" },
		{ "fe80::1", 1, ENETUNREACH, "no-ipv6-route" },
		{ "fe80::1", 0, ENETUNREACH, "no-ipv6-route" },
		{ "::ffff:127.1.2.3", 1, ETIMEDOUT, "peer-is-local-address" },
		{ "::1", 1, ETIMEDOUT, "peer-is-local-address" },
		{ "::ffff:127.1.2.3", 1, EIO, NULL },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct ibv_qp_attr attr;
		struct explanation why;

		ordinary_world(IBV_QPS_INIT);
		world.gid.ndev_ifindex = (uint32_t)rows[i].netdev;
		attr = good_attr(IBV_QPS_RTR);
		inet_pton(AF_INET6, rows[i].gid, &attr.ah_attr.grh.dgid);
		why = explain_modify_qp(&qp, &attr, rtr_bits, rows[i].err);
		expect(rows[i].gid, &why, rows[i].id);
	}
}

/* ---- librdmacm ------------------------------------------------------------ */

static void test_cm(void)
{
	static const struct {
		unsigned int event;
		int status;
		const char *id, *word;
	} rows[] = {
		{ 8, 8, "cm-rejected", "status 8" },
		{ 8, 10, "cm-stale", "status 10" },
		{ 8, 28, "cm-refused-by-peer", "status 28" },
		{ 8, 5, "cm-refused", "status 5" },
		{ 7, 1, "cm-rejected", "status 1" },
		{ 7, -110, "cm-unreachable", "-110" },
		{ 1, -19, "cm-addr-error", "-19" },
		{ 3, -22, "cm-route-error", "-22" },
		{ 6, -22, "cm-connect-error", "-22" },
		{ 9, 0, NULL, "" },
	};
	static const struct {
		const char *call;
		int err;
		bool again;
		unsigned int bytes;
		bool foreign;
		const char *id, *word;
	} calls[] = {
		{ "connect", EINVAL, false, 56, false, NULL, "" },
		{ "connect", EINVAL, false, 57, false, "cm-private-data",
		  "at most 56" },
		{ "accept", EINVAL, false, 196, false, NULL, "" },
		{ "accept", EINVAL, false, 197, false, "cm-private-data",
		  "at most 196" },
		{ "listen", EINVAL, false, 500, false, NULL, "" },
		{ "accept", ENOMEM, true, 500, true, NULL, "" },
		{ "create_qp", EINVAL, true, 0, true, "cm-foreign-pd", "" },
		{ "resolve_addr", EINVAL, true, 0, false, "cm-state",
		  "rdma_resolve_addr" },
		{ "connect", ECONNREFUSED, false, 0, false, "cm-refused", "" },
		{ "listen", EADDRINUSE, false, 0, false, "cm-port-in-use", "" },
	};
	struct explanation why;

	for (size_t i = 0; i < LENGTH(rows); i++) {
		why = explain_cm_event(rows[i].event, rows[i].status);
		expect_word("an event", &why, rows[i].id, rows[i].word);
	}
	for (size_t i = 0; i < LENGTH(calls); i++) {
		why = explain_cm_call(calls[i].call, calls[i].err,
				      calls[i].again, calls[i].bytes,
				      calls[i].foreign);
		expect_word(calls[i].call, &why, calls[i].id, calls[i].word);
	}
	why = explain_cm_unacked(3);
	expect_word("events", &why, "cm-event-not-acked", "and 3 are not");
	why = explain_cm_without_qp();
	expect("no QP", &why, "cm-without-qp");
}

/* ---- 收下了的 -------------------------------------------------------------- */

#define ACCEPTED(from, mask, member, value, id, word)                        \
	do {                                                                 \
		struct explanation all_[EXPLAIN_MOST] = { 0 };               \
		struct ibv_qp_attr attr_;                                    \
                                                                             \
		ordinary_world(from);                                        \
		attr_ = good_attr(IBV_QPS_RTS);                              \
		attr_.member = (value);                                      \
		explain_accepted(&qp, &attr_, (mask) | IBV_QP_STATE, (from), \
				 all_, EXPLAIN_MOST);                        \
		expect_word(#member " " #value ", taken", &all_[0], (id),    \
			    (word));                                         \
	} while (0)

static void test_accepted_values(void)
{
	const enum ibv_qp_state init = IBV_QPS_INIT;

	ACCEPTED(init, IBV_QP_DEST_QPN, dest_qp_num, 1, "qpn-not-set", "is 1");
	ACCEPTED(init, IBV_QP_DEST_QPN, dest_qp_num, 2, NULL, "");
	ACCEPTED(init, IBV_QP_DEST_QPN, dest_qp_num, 0xffffff, NULL, "");
	ACCEPTED(init, IBV_QP_DEST_QPN, dest_qp_num, 0x1000000,
		 "qpn-byte-order", "it is 0x1");
	ACCEPTED(init, IBV_QP_DEST_QPN, dest_qp_num, 0x1000001, "qpn-too-long",
		 "0x1000001");
	ACCEPTED(init, IBV_QP_DEST_QPN, dest_qp_num, 0xffffff00,
		 "qpn-byte-order", "it is 0xffffff");
	ACCEPTED(init, IBV_QP_SQ_PSN, sq_psn, 0xffffff, NULL, "");
	ACCEPTED(init, IBV_QP_SQ_PSN, sq_psn, 0x1000001, "psn-too-long",
		 "uses 0x1");
	ACCEPTED(init, IBV_QP_PATH_MTU, path_mtu, IBV_MTU_1024, NULL, "");
	ACCEPTED(init, IBV_QP_PATH_MTU, path_mtu, IBV_MTU_2048,
		 "path-mtu-above-active", "2048 bytes");
	ACCEPTED(init, IBV_QP_PATH_MTU, path_mtu, (enum ibv_mtu)255,
		 "path-mtu-not-enum", "enum ibv_mtu;");
	ACCEPTED(init, IBV_QP_PATH_MTU, path_mtu, (enum ibv_mtu)256,
		 "path-mtu-not-enum",
		 "it looks like bytes; rxe takes it and has path_mtu 0 now");
	ACCEPTED(init, IBV_QP_RETRY_CNT, retry_cnt, 8, "retry-too-large", "8");
	ACCEPTED(init, IBV_QP_TIMEOUT, timeout, 0, "timeout-zero", "");
	ACCEPTED(init, IBV_QP_TIMEOUT, timeout, 1, NULL, "");
	ACCEPTED(init, IBV_QP_RNR_RETRY, rnr_retry, 7, NULL, "");
	ACCEPTED(init, IBV_QP_RNR_RETRY, rnr_retry, 8, "rnr-retry-too-large",
		 "8");
	ACCEPTED(init, IBV_QP_MIN_RNR_TIMER, min_rnr_timer, 31, NULL, "");
	ACCEPTED(init, IBV_QP_MIN_RNR_TIMER, min_rnr_timer, 33,
		 "rnr-timer-too-large", "1 goes over the wire");
	ACCEPTED(init, IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic, 0,
		 "rd-atomic-zero", "");
	ACCEPTED(init, IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, 0,
		 "dest-rd-atomic-zero", "");
	/* 没有位，就没有给。*/
	ACCEPTED(init, 0, timeout, 0, NULL, "");
	ACCEPTED(init, 0, dest_qp_num, 1, NULL, "");
	ACCEPTED(init, 0, sq_psn, 0x1000000, NULL, "");
	ACCEPTED(init, 0, rq_psn, 0x1000000, NULL, "");
	ACCEPTED(init, 0, path_mtu, (enum ibv_mtu)9, NULL, "");
	ACCEPTED(init, 0, retry_cnt, 8, NULL, "");
	ACCEPTED(init, 0, rnr_retry, 8, NULL, "");
	ACCEPTED(init, 0, min_rnr_timer, 32, NULL, "");
	ACCEPTED(init, 0, max_rd_atomic, 0, NULL, "");
	ACCEPTED(init, 0, max_dest_rd_atomic, 0, NULL, "");
	ACCEPTED(init, 0, cur_qp_state, IBV_QPS_RTS, NULL, "");
	ACCEPTED(init, IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_RTR,
		 "cur-state-lies", "said RTR, the QP was in INIT");
	ACCEPTED(IBV_QPS_RTS, IBV_QP_CUR_STATE, cur_qp_state, IBV_QPS_RTS,
		 "rts-without-av", "");
}

static void test_accepted_states(void)
{
	struct explanation all[EXPLAIN_MOST] = { 0 };
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTS);
	explain_accepted(&qp, &attr, 0, IBV_QPS_INIT, all, EXPLAIN_MOST);
	expect("no bit at all", &all[0], "mask-empty");
	ordinary_world(IBV_QPS_RTS);
	memset(all, 0, sizeof(all));
	world.qp.ah_attr = attr.ah_attr;
	explain_accepted(&qp, &attr, IBV_QP_STATE, IBV_QPS_RTR, all,
			 EXPLAIN_MOST);
	expect("RTS with an address", &all[0], NULL);
	memset(&world.qp.ah_attr, 0, sizeof(world.qp.ah_attr));
	qp.qp_type = IBV_QPT_UD;
	explain_accepted(&qp, &attr, IBV_QP_STATE, IBV_QPS_RTR, all,
			 EXPLAIN_MOST);
	expect("UD needs none", &all[0], NULL);
	qp.qp_type = IBV_QPT_UC;
	explain_accepted(&qp, &attr, IBV_QP_STATE, IBV_QPS_RTR, all,
			 EXPLAIN_MOST);
	expect("UC does", &all[0], "rts-without-av");
}

/* ---- 名字 ----------------------------------------------------------------- */

static void test_names(void)
{
	enum ibv_qp_state way[QP_PATH_MAX];
	enum ibv_qp_type type;
	char text[512];
	size_t whole;

	expect_true("no type of the table",
		    !qp_type_by_name("RAW_PACKET", &type) &&
			    !qp_type_by_name("UNKNOWN", &type));
	for (int step = 0; step < QP_STATES * QP_STATES; step++)
		qp_transition_text(step / QP_STATES, step % QP_STATES);
	expect_true("the last row of the texts",
		    !strcmp(qp_transition_text(IBV_QPS_SQE, IBV_QPS_RTS),
			    "sending goes on after a failed send"));
	expect_true("the last type",
		    !strcmp(qp_type_name(IBV_QPT_XRC_RECV), "XRC_TGT"));
	expect_true("the next",
		    !strcmp(qp_type_name(IBV_QPT_XRC_RECV + 1), "UNKNOWN"));
	expect_true("the last state",
		    !strcmp(qp_state_name(IBV_QPS_ERR), "ERR"));
	expect_true("the next",
		    !strcmp(qp_state_name(IBV_QPS_ERR + 1), "UNKNOWN"));
	expect_true("no way from it",
		    !qp_transition(IBV_QPT_RC, IBV_QPS_ERR + 1, IBV_QPS_RESET));
	expect_true("nor to it",
		    !qp_transition(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_ERR + 1));
	expect_true("nor a longer one",
		    !qp_path(IBV_QPT_RC, IBV_QPS_ERR + 1, IBV_QPS_RESET, way) &&
			    !qp_path(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_ERR + 1,
				     way));
	expect_true("no bit", !*qp_mask_text(text, sizeof(text), 0));
	expect_true("one that has no name",
		    !strcmp(qp_mask_text(text, sizeof(text), 1 << 30),
			    "0x40000000"));
	whole = strlen(qp_mask_text(text, sizeof(text), -1));
	expect_true("all of them", whole > 200 && whole < sizeof(text));
	for (size_t size = 1; size <= whole + 2; size++) {
		char *tight = malloc(size);

		qp_mask_text(tight, size, -1);
		if (strncmp(tight, text, size - 1) ||
		    strlen(tight) != (size <= whole ? size - 1 : whole))
			expect_true("cut where the room ends", false);
		free(tight);
	}
}

int main(void)
{
	test_names();
	test_cqs();
	test_srqs();
	test_caps();
	test_qp_types();
	test_mrs();
	test_mappings();
	test_the_rest();
	test_values();
	test_no_way();
	test_claims();
	test_other_errors();
	test_address_handles();
	test_paths();
	test_cm();
	test_accepted_values();
	test_accepted_states();
	return failures ? 1 : 0;
}

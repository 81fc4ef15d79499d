// SPDX-License-Identifier: MIT
/*
 * unit_explain.c —— 解释器的判断，不需要设备
 *
 *	unit_explain              每一种情形
 *	unit_explain DEVICE GID   本机的一个设备和它的 GID：问十次对端，什么也不留下
 *
 * rxe 上造不出来的情形（两个 port、RoCE v1 的 GID、InfiniBand、别的厂商），以及每个界限
 * （恰好到界限的不说，多一步的才说），在这里用替身来问：world.h 的 ibv_query_* 取代
 * libibverbs 的。下面的表，一行一种情形：在一切都对的世界里改几处，说出的原因该是什么，
 * 话里该有哪个词。真的 rxe 上造得出来的，由 labs/faults 证明。
 */
#include "../open_files.h"
#include "explain/parts.h"
#include "world.h"

#include <arpa/inet.h>

static int failures;

static void expect(const char *what, bool good, const char *instead)
{
	if (!good)
		failures++;
	printf("%s %s%s%s\n", good ? "ok" : "not ok", what, good ? "" : ": ",
	       good ? "" : instead);
}

/* ---- 一切都对的世界，和出了错的那个调用 ---------------------------------------- */

struct kind {
	void (*begin)(void);
	struct explanation (*ask)(void);
};
#define KIND(name, begin) static const struct kind name = { begin, ask_##name }

static void in_rts(void)
{
	ordinary_world(IBV_QPS_RTS);
}

static void to_init(void)
{
	ordinary_step(IBV_QPS_RESET, IBV_QPS_INIT);
}

static void to_rtr(void)
{
	ordinary_step(IBV_QPS_INIT, IBV_QPS_RTR);
}

static void to_rts(void)
{
	ordinary_step(IBV_QPS_RTR, IBV_QPS_RTS);
}

static struct explanation ask_step(void)
{
	return explain_modify_qp(&world.qp, &world.attr, world.mask, world.err);
}
static const struct kind init = { to_init, ask_step };
static const struct kind rtr = { to_rtr, ask_step };
static const struct kind rts = { to_rts, ask_step };

/* 那个调用成功了：内核里的状态已经是新的。*/
static struct explanation ask_taken(void)
{
	struct explanation all[EXPLAIN_MOST] = { 0 };
	const enum ibv_qp_state before = world.qp.state;

	explain_accepted(&world.qp, &world.attr, world.mask, before, all,
			 EXPLAIN_MOST);
	return all[0];
}
static const struct kind rtr_taken = { to_rtr, ask_taken };
static const struct kind rts_taken = { to_rts, ask_taken };

static struct explain_side side(const char *name, uint32_t own, uint32_t other)
{
	return (struct explain_side){
		.name = name,
		.qp_num = own,
		.gid = { .raw = { [15] = (uint8_t)own } },
		.attr = { .dest_qp_num = other,
			  .ah_attr.grh.dgid.raw = { [15] = (uint8_t)other },
			  .path_mtu = IBV_MTU_1024 },
		.attr_mask = IBV_QP_DEST_QPN | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN |
			     IBV_QP_AV | IBV_QP_PATH_MTU,
	};
}

static void two_sides(void)
{
	ordinary_world(IBV_QPS_RTS);
	world.mine = side("A", 0x11, 0x12);
	world.peer = side("B", 0x12, 0x11);
}

static struct explanation ask_pair(void)
{
	struct explanation all[EXPLAIN_MOST] = { 0 };

	explain_pair(&world.mine, &world.peer, all, EXPLAIN_MOST);
	return all[0];
}
KIND(pair, two_sides);

static void small_limits(void)
{
	ordinary_world(IBV_QPS_RTS);
	world.device.vendor_id = 0xffffff; /* rxe */
	world.device.max_cqe = 100;
	world.device.max_qp_wr = 10;
	world.device.max_sge = 3;
	world.device.max_mr_size = 64;
	world.context.num_comp_vectors = 2;
	world.init = (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC,
						.send_cq = &world.cq,
						.recv_cq = &world.cq };
	world.cqe = 1;
	world.addr = (uintptr_t)&world;
	world.length = 64;
	world.access = IBV_ACCESS_LOCAL_WRITE;
	world.fd = 7;
}

static struct explanation ask_qp(void)
{
	return explain_create_qp_call(&world.pd, &world.init, world.err);
}
KIND(qp, small_limits);

static struct explanation ask_cq(void)
{
	return explain_create_cq_call(&world.context, world.cqe, world.vector,
				      world.err);
}
KIND(cq, small_limits);

static struct explanation ask_mr(void)
{
	return explain_reg_mr_call(&world.pd, (void *)(uintptr_t)world.addr,
				   world.length, world.access, world.err);
}
KIND(mr, small_limits);

static struct explanation ask_dmabuf(void)
{
	return explain_reg_dmabuf_mr(&world.pd, world.fd, world.err);
}
KIND(dmabuf, small_limits);

/* 8 字节，从近处的 MR 的末尾到远处的 MR 的末尾。*/
static void one_request(void)
{
	ordinary_world(IBV_QPS_RTS);
	world.made.cap = (struct ibv_qp_cap){ .max_send_wr = 4,
					      .max_recv_wr = 5,
					      .max_send_sge = 2,
					      .max_recv_sge = 3,
					      .max_inline_data = 16 };
	world.near = (struct explain_mr){ .pd = &world.pd,
					  .addr = 4096,
					  .length = 64,
					  .lkey = 1,
					  .rkey = 2,
					  .access = 15 };
	world.far = (struct explain_mr){ .pd = &world.pd,
					 .addr = 8192,
					 .length = 64,
					 .lkey = 3,
					 .rkey = 0x400,
					 .access = 15 };
	world.sges[0] = (struct ibv_sge){ 4096 + 56, 8, 1 };
	world.rsges[0] = (struct ibv_sge){ 8192, 8, 3 };
	world.send = (struct ibv_send_wr){ .sg_list = world.sges,
					   .num_sge = 1,
					   .send_flags = IBV_SEND_SIGNALED };
	world.recv =
		(struct ibv_recv_wr){ .sg_list = world.rsges, .num_sge = 1 };
	world.peer = (struct explain_side){
		.name = "B",
		.attr = { .qp_access_flags = 14, .max_dest_rd_atomic = 1 },
		.attr_mask = IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_DEST_RD_ATOMIC,
	};
	world.request = (struct explain_request){ .send = &world.send,
						  .local = &world.near,
						  .n_local = 1,
						  .remote = &world.far,
						  .n_remote = 1,
						  .peer = &world.peer };
}

static void one_write(void)
{
	one_request();
	world.send.opcode = IBV_WR_RDMA_WRITE;
	world.send.wr.rdma.remote_addr = 8192 + 56;
	world.send.wr.rdma.rkey = 0x400;
}

static void one_atomic(void)
{
	one_request();
	world.send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	world.send.wr.atomic.remote_addr = 8192 + 56;
	world.send.wr.atomic.rkey = 0x400;
}

static void one_receive(void)
{
	one_request();
	world.request.send = NULL;
	world.request.recv = &world.recv;
	world.rsges[0] = (struct ibv_sge){ 4096, 40, 1 };
}

static void met_receive(void)
{
	one_request();
	world.request.peer_recv = &world.recv;
	world.status = IBV_WC_REM_OP_ERR;
}

static struct explanation ask_post(void)
{
	return explain_post_send(&world.qp, &world.send, world.err);
}
static const struct kind post_send = { one_request, ask_post };
static const struct kind post_atomic = { one_atomic, ask_post };

static struct explanation ask_post_recv(void)
{
	return explain_post_recv(&world.qp, &world.recv, world.err);
}
KIND(post_recv, one_request);

static struct explanation ask_recorded(void)
{
	return explain_recorded(&world.qp, world.status, &world.request);
}
static const struct kind written = { one_write, ask_recorded };
static const struct kind atomic = { one_atomic, ask_recorded };
static const struct kind received = { one_receive, ask_recorded };
static const struct kind met = { met_receive, ask_recorded };

static void both_sides(void)
{
	two_sides();
	world.status = IBV_WC_RETRY_EXC_ERR;
	world.request.mine = &world.mine;
	world.request.peer = &world.peer;
}

static struct explanation ask_completion(void)
{
	const struct ibv_wc wc = { .status = world.status };

	return explain_completion(&world.qp, &wc, &world.request);
}
KIND(completion, in_rts);
static const struct kind between = { both_sides, ask_completion };

/* 等到了 30 毫秒：按 timeout 与 retry_cnt，29 毫秒就该放弃了。*/
static void waiting(void)
{
	one_request();
	world.request.peer = NULL;
	world.now.path_mtu = IBV_MTU_1024;
	world.now.timeout = 10; /* 4 ms */
	world.now.retry_cnt = 6;
	world.ms = 30;
}

static void waiting_to_receive(void)
{
	waiting();
	world.request.send = NULL;
	world.request.recv = &world.recv;
}

static void waiting_for_datagram(void)
{
	waiting_to_receive();
	world.qp.qp_type = IBV_QPT_UD;
	world.now.qkey = 5;
	world.request.peer_send = &world.send;
	world.sges[0].length = 1024;
	world.rsges[0].length = 1064;
	world.send.wr.ud.remote_qpn = 0x11;
	world.send.wr.ud.remote_qkey = 5;
}

static struct explanation ask_stall(void)
{
	return explain_stall(&world.qp, &world.request, world.ms);
}
static const struct kind wait_send = { waiting, ask_stall };
static const struct kind wait_recv = { waiting_to_receive, ask_stall };
static const struct kind datagram = { waiting_for_datagram, ask_stall };

static struct explanation ask_cm_event(void)
{
	return explain_cm_event((unsigned int)world.event, world.err);
}
KIND(cm_event, in_rts);

static void cm_connect(void)
{
	ordinary_world(IBV_QPS_RTS);
	world.call = "connect";
}

static struct explanation ask_cm_call(void)
{
	return explain_cm_call(world.call, world.err, world.again, world.bytes,
			       world.foreign);
}
KIND(cm_call, cm_connect);

/* ---- 一种情形一行 ------------------------------------------------------------ */

struct change {
	size_t at, size;
	uint64_t value;
};
#define SET(member, value)                                                     \
	{                                                                      \
		offsetof(struct world, member),                                \
			sizeof(((struct world *)0)->member), (uint64_t)(value) \
	}
#define DGID(high, low)                                        \
	SET(attr.ah_attr.grh.dgid.global.subnet_prefix,        \
	    __builtin_bswap64(high)),                          \
		SET(attr.ah_attr.grh.dgid.global.interface_id, \
		    __builtin_bswap64(low))

static const struct row {
	const char *name;
	const struct kind *kind;
	const char *id, *word; /* NULL: nothing is said */
	struct change changes[5];
} rows[] = {
#define CASE(name, kind, id, word, ...) \
	{ name, &kind, id, word, { __VA_ARGS__ } },
#include "cases.def"
};

static bool has_han(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text >= 0xe3)
			return true;
	return false;
}

/* 每个 {1} 都填上了：没有空着的，也没有剩下的。*/
static bool has_all(const struct explain_words *words)
{
	const char *const texts[] = { words->cause, words->next, words->seen };

	for (size_t i = 0; i < LENGTH(texts); i++)
		if (strpbrk(texts[i], "{}\t") || strstr(texts[i], "  ") ||
		    strstr(texts[i], " ,"))
			return false;
	return true;
}

static void test_row(const struct row *row)
{
	struct explain_words words, chinese;
	struct explanation why, off;
	enum ibv_qp_state remembered;
	char text[1024];
	bool good;

	row->kind->begin();
	for (size_t i = 0; i < LENGTH(row->changes); i++)
		memcpy((char *)&world + row->changes[i].at,
		       &row->changes[i].value, row->changes[i].size);
	remembered = world.qp.state;
	errno = EBADF;
	why = row->kind->ask();
	explain_in_words(&words, &why, false);
	explain_in_words(&chinese, &why, true);
	snprintf(text, sizeof(text), "%s: \"%s\", not %s with \"%s\"",
		 why.id ? why.id : "nothing", words.cause,
		 row->id ? row->id : "nothing", row->word ? row->word : "");
	good = row->id ? why.id && !strcmp(why.id, row->id) && words.next[0] &&
				 (strstr(words.cause, row->word) ||
				  strstr(words.next, row->word) ||
				  strstr(words.seen, row->word))
		       : !why.id;
	expect(row->name, good, text);
	expect(row->name,
	       !why.id || (has_han(chinese.cause) && has_all(&words) &&
			   has_all(&chinese)),
	       "not said in full in both languages");
	/* 看一眼，不能改变什么；关掉了，就连问也不问。*/
	if (errno != EBADF || world.qp.state != remembered)
		expect(row->name, false, "errno or qp->state has changed");
	world.asked = 0;
	setenv("RDMA_EXPLAIN", "0", 1);
	off = row->kind->ask();
	unsetenv("RDMA_EXPLAIN");
	if (off.id || off.seen[0] || world.asked)
		expect(row->name, false, "it is explained with RDMA_EXPLAIN=0");
}

/* ---- 不是一行的 -------------------------------------------------------------- */

/* 一行原因里用到的参数：第 n 位是 {n}。*/
static unsigned int holes(const char *text)
{
	unsigned int found = 0;

	while (text && (text = strchr(text, '{')))
		found |= 1u << (*++text - '0');
	return found;
}

static void test_table(void)
{
	size_t count;
	const struct explain_row *rows = explain_rows(&count);

	for (size_t i = 0; i < count; i++) {
		const struct explain_row *r = &rows[i];
		const bool word = !strcmp(r->id, r->text[0]);

		expect(r->id, explain_row(r->id) == r, "it is there twice");
		expect(r->id,
		       (word || has_han(r->text[1])) && !has_han(r->text[0]) &&
			       holes(r->text[0]) == holes(r->text[1]) &&
			       holes(r->next[0]) == holes(r->next[1]),
		       "the languages differ");
	}
}

/* 一份记录也许是别的版本写的，参数也许多了、少了、太长。*/
static void test_words(void)
{
	static const struct {
		const char *id, *args, *seen, *wanted[3];
	} said[] = {
		{ "port",
		  "9\t1",
		  "",
		  { "port_num 9 不是这个设备的 port（1 ... 1）" } },
		{ "mr-not-writable",
		  "the buffer of this send",
		  "",
		  { "这个 send 的 buffer 会被写入，而它的 MR 没有 "
		    "LOCAL_WRITE" } },
		{ "recv-too-small",
		  "the peer\t8",
		  "message\t9\nport\t9\t1\nold text",
		  { "消息比对端的 receive（8 字节）长", NULL,
		    "消息有 9 字节\n另外：port_num 9 不是这个设备的 port（1 "
		    "... "
		    "1）\nold text" } },
		{ "port",
		  "",
		  "",
		  { "port_num  不是这个设备的 port（1 ... ）" } },
		{ "made-up", "1", "", { "made-up", "" } },
	};
	struct explain_words words;
	struct explanation why;

	for (size_t i = 0; i < LENGTH(said); i++) {
		why = (struct explanation){ .id = said[i].id };
		strcpy(why.args, said[i].args);
		strcpy(why.seen, said[i].seen);
		explain_in_words(&words, &why, true);
		for (int k = 0; k < 3; k++) {
			const char *text = k == 0   ? words.cause
					   : k == 1 ? words.next
						    : words.seen;

			if (said[i].wanted[k])
				expect(said[i].id,
				       !strcmp(text, said[i].wanted[k]), text);
		}
	}
	why = (struct explanation){ .id = "lkey-for-rkey" };
	memset(why.args, 'x', sizeof(why.args) - 1);
	memset(why.seen, 'x', sizeof(why.seen) - 1);
	explain_in_words(&words, &why, true);
	expect("long arguments", strlen(words.cause) > 400, words.cause);
	why = because("mask-empty");
	for (int i = 0; i < 99; i++)
		also_seen(&why, "message", "%d", i);
	expect("no half line of evidence",
	       !strcmp(strrchr(why.seen, '\n') + 1, "message\t90"),
	       strrchr(why.seen, '\n'));
}

/* 它问内核：procfs、sysfs、两种 netlink。问十次，一个 fd 也不留下。*/
static void test_descriptors(const char *own_gid)
{
	int before = open_files();

	for (int i = 0; i < 10; i++) {
		to_rtr();
		world.gid.ndev_ifindex = 1;
		inet_pton(AF_INET6, own_gid, &world.attr.ah_attr.grh.dgid);
		world.now.ah_attr = world.attr.ah_attr;
		world.now.dest_qp_num = 0xfffffe;
		world.status = IBV_WC_RETRY_EXC_ERR;
		world.err = ETIMEDOUT;
		ask_step();
		ask_completion();
		world.err = ENOMEM;
		ask_mr();
		explain_device_list(0);
		explain_open_device(ENOENT);
	}
	expect("ten calls leave no descriptor", open_files() == before, "some");
}

int main(int argc, char **argv)
{
	if (argc > 2) {
		device_name = argv[1];
		test_descriptors(argv[2]);
		return failures ? 1 : 0;
	}
	for (size_t i = 0; i < LENGTH(rows); i++)
		test_row(&rows[i]);
	test_table();
	test_words();
	test_descriptors("::ffff:192.0.2.1");
	return failures ? 1 : 0;
}

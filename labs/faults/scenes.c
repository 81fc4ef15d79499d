// SPDX-License-Identifier: MIT
/*
 * scenes.c —— 场景：一次正确的运行；或者改一个字段造不出来的错误，各自几行
 */
#include "faults.h"

#include "explain/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- 内存 ------------------------------------------------------------------ */

static void read_only(struct end *end)
{
	end->buf = mmap(NULL, BUFFER_BYTES, PROT_READ,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* 字符串常量在只读段里。*/
static void string_literal(struct end *end)
{
	static const char text[BUFFER_BYTES] = "Hello";

	end->buf = (char *)(uintptr_t)text;
}

/*
 * 文件映射成只读，只要 REMOTE_READ：看上去没有谁要写。可 Linux 6.1 钉页时总是按要写的
 * 来，MAP_SHARED 的页又不能复制，于是被拒；MAP_PRIVATE 就可以。
 */
static void shared_file(struct end *end)
{
	FILE *file = tmpfile();

	if (!file || ftruncate(fileno(file), BUFFER_BYTES))
		leave(end, EXIT_FAILURE);
	end->buf = mmap(NULL, BUFFER_BYTES, PROT_READ, MAP_SHARED, fileno(file),
			0);
}

/* ---- 状态 ------------------------------------------------------------------ */

/* 两步并作一步。*/
static void at_once(struct end *end)
{
	exchange(end);
	modify(end, IBV_QPS_RTS);
	say(end, "ibv_modify_qp to RTS: 0");
	leave(end, EXIT_SUCCESS);
}

/* 回到 RESET 再连一次；recover 是从 ERR。*/
static void reset(struct end *end)
{
	modify(end, IBV_QPS_RESET);
	modify(end, IBV_QPS_INIT);
	climb(end);
}

static void recover(struct end *end)
{
	modify(end, IBV_QPS_ERR);
	reset(end);
}

/* 停一停发送，再接着发。*/
static void pause_sending(struct end *end)
{
	modify(end, IBV_QPS_SQD);
	modify(end, IBV_QPS_RTS);
}

static void careless(struct end *end)
{
	end->careless = true;
}

static void send_now(struct end *end)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };

	post_send(end, &wr);
}

static void send_one(struct end *end)
{
	post_send(end, &end->wr);
	await(end, end->send_cq);
}

/* ---- 对端没有准备好 --------------------------------------------------------- */

/* 停在 INIT，直到 A 有了结果。*/
static void stay(struct end *end)
{
	meet(end);
	meet(end);
}

static void to_error(struct end *end)
{
	modify(end, IBV_QPS_ERR);
}

static void destroy(struct end *end)
{
	ibv_destroy_qp(end->qp);
	stay(end);
}

/* A 手里的是旧的 QPN。*/
static void make_anew(struct end *end)
{
	ibv_destroy_qp(end->qp);
	make_qp(end);
	modify(end, IBV_QPS_INIT);
}

/* ---- 钥匙 ------------------------------------------------------------------ */

static void own_rkey(struct end *end)
{
	end->wr.wr.rdma.rkey = end->mr->rkey;
}

static struct ibv_mr *foreign_mr(struct end *end)
{
	return make_mr(end, ibv_alloc_pd(end->context), BUFFER_BYTES,
		       ALL_RIGHTS);
}

static void foreign_lkey(struct end *end)
{
	end->sge.lkey = foreign_mr(end)->lkey;
}

static void foreign_rkey(struct end *end)
{
	end->mine.rkey = foreign_mr(end)->rkey;
}

/* ---- memory window --------------------------------------------------------- */

/* B 的前 @length 字节，只许写；底下的 MR 只有一页，有 @access。*/
static void bind_window(struct end *end, int access, uint64_t length)
{
	struct ibv_send_wr bind = { .opcode = IBV_WR_BIND_MW,
				    .send_flags = IBV_SEND_SIGNALED };

	ibv_dereg_mr(end->mr);
	end->mr = make_mr(end, end->pd, PAGE, access);
	end->mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_2);
	need(end, "ibv_alloc_mw", end->mw);
	bind.bind_mw.mw = end->mw;
	bind.bind_mw.rkey = ibv_inc_rkey(end->mw->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = end->mr,
		.addr = end->mine.addr,
		.length = length,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	end->known.send = &bind;
	post_send(end, &bind);
	await(end, end->send_cq);
	end->known.send = NULL;
	end->mine.rkey = bind.bind_mw.rkey;
}

static void open_window(struct end *end)
{
	bind_window(end, ALL_RIGHTS | IBV_ACCESS_MW_BIND, PAGE);
}

static void lack_bind(struct end *end)
{
	bind_window(end, ALL_RIGHTS, PAGE);
}

static void bind_too_much(struct end *end)
{
	bind_window(end, ALL_RIGHTS | IBV_ACCESS_MW_BIND, PAGE + 1);
}

static void tell_rkey(struct end *end)
{
	open_window(end);
	exchange(end);
}

static void tell_closed(struct end *end)
{
	struct ibv_send_wr invalidate = { .opcode = IBV_WR_LOCAL_INV,
					  .send_flags = IBV_SEND_SIGNALED };

	open_window(end);
	invalidate.invalidate_rkey = end->mine.rkey;
	post_send(end, &invalidate);
	await(end, end->send_cq);
	exchange(end);
}

static void hear_rkey(struct end *end)
{
	exchange(end);
	end->wr.wr.rdma.rkey = end->peer.rkey;
}

/* 对端看来，window 与 MR 没有区别：一把钥匙，一段地址，几样权限。*/
static void know_window(struct end *end)
{
	static struct explain_mr window;

	hear_rkey(end);
	window = (struct explain_mr){ .addr = end->peer.addr,
				      .length = PAGE,
				      .rkey = end->peer.rkey,
				      .access = IBV_ACCESS_REMOTE_WRITE };
	end->known.remote = &window;
	end->known.n_remote = 1;
}

static void write_past(struct end *end)
{
	know_window(end);
	end->wr.wr.rdma.remote_addr += PAGE;
}

/* ---- 等不来的 --------------------------------------------------------------- */

static void poll_other_cq(struct end *end)
{
	await(end, end->recv_cq);
}

static void wait_too(struct end *end)
{
	post_recv(end);
	await(end, end->recv_cq);
}

/*
 * rxe 冲刷 receive 的是一个 task，ERR 之后稍晚才跑；赶在它前面投的 receive 也会被冲刷。
 * 先把被冲刷的都等到：它跑过了，再投的才是“ERR 里投的”。
 */
static void receive_in_error(struct end *end)
{
	struct ibv_wc flushed;
	int left = end->scene->count + 1;

	modify(end, IBV_QPS_ERR);
	for (int i = 0; i < WAIT_MS && left; i++)
		if (ibv_poll_cq(end->recv_cq, 1, &flushed) > 0)
			left--;
		else
			usleep(1000);
	post_recv(end);
	await(end, end->recv_cq);
}

/*
 * 收到了，却是程序自己扔的：completion 成功，它比较 16 字节的 dgid，不相等，一声不响
 * 地丢掉。UCX 从 1.11（2021）到 2024 年 10 月的修正，在 rxe 与 irdma 上就是这样：第 13
 * 课。只有程序自己知道它扔了什么，所以由它自己来解释。
 */
static void compare_dgid(struct end *end)
{
	const struct ibv_grh *grh = (const struct ibv_grh *)end->buf;
	struct ibv_wc wc = await(end, end->recv_cq);
	struct explanation why = explain_grh(&wc, grh, &end->mine.gid);
	bool equal = !memcmp(&grh->dgid, &end->mine.gid, sizeof(grh->dgid));

	say(end,
	    "wc.status %d (%s), %u bytes, wc.sl %u; the 16 bytes of dgid are "
	    "%smy GID",
	    wc.status, ibv_wc_status_str(wc.status), wc.byte_len, wc.sl,
	    equal ? "" : "not ");
	tell(&why);
	leave(end, EXIT_FAILURE);
}

/* UD 没有 ACK，发送方照样“成功”：A 发来的是什么，B 事先知道。*/
static void expect_datagram(struct end *end)
{
	static struct ibv_sge data;
	static struct ibv_send_wr sent = { .sg_list = &data, .num_sge = 1 };

	data.length = end->scene->bytes;
	sent.wr.ud.remote_qpn = end->qp->qp_num;
	sent.wr.ud.remote_qkey = QKEY;
	end->known.peer_send = &sent;
}

static void forget_grh(struct end *end)
{
	expect_datagram(end);
	end->headroom = 0;
}

/* QP 有 SRQ，却往 QP 上 post receive。*/
static void recv_beside_srq(struct end *end)
{
	struct ibv_srq_init_attr room = { .attr = { 8, 1, 0 } };
	struct ibv_qp_init_attr init = { .send_cq = end->send_cq,
					 .recv_cq = end->recv_cq,
					 .cap = { 1, 0, 1, 0, 0 },
					 .qp_type = IBV_QPT_RC };

	init.srq = ibv_create_srq(end->pd, &room);
	need(end, "ibv_create_srq", init.srq);
	end->qp = ibv_create_qp(end->pd, &init);
	need(end, "ibv_create_qp", end->qp);
	modify(end, IBV_QPS_INIT);
	post_recv(end);
}

static void chain_to_itself(struct end *end)
{
	end->wr.next = &end->wr;
}

/* ---- 表 -------------------------------------------------------------------- */

#define SCENE(name, type, opcode, stage, a, b, explains)                   \
	{                                                                  \
		name, IBV_QPT_##type, IBV_WR_##opcode, 64, 1, stage, a, b, \
			explains                                           \
	}
#define RC(name, opcode, stage, a, b) \
	SCENE(name, RC, opcode, stage, a, b, false)
/* 它自己解释：记录器看不见 window，也不知道程序等的是哪一个请求。*/
#define OWN(name, type, opcode, stage, a, b) \
	SCENE(name, type, opcode, stage, a, b, true)

const struct scene scenes[] = {
	/* 对的。*/
	RC("send", SEND, UP, NULL, NULL),
	RC("write", RDMA_WRITE, UP, NULL, NULL),
	RC("write-imm", RDMA_WRITE_WITH_IMM, UP, NULL, NULL),
	RC("read", RDMA_READ, UP, NULL, NULL),
	RC("atomic", ATOMIC_FETCH_AND_ADD, UP, NULL, NULL),
	SCENE("uc", UC, RDMA_WRITE, UP, NULL, NULL, false),
	SCENE("ud", UD, SEND, UP, NULL, NULL, false),
	RC("reset", RDMA_WRITE, UP, reset, reset),
	RC("recover", RDMA_WRITE, UP, recover, recover),
	RC("pause", RDMA_WRITE, UP, pause_sending, NULL),
	RC("one-more", SEND, FILLED, send_one, NULL),
	RC("cm", SEND, MEMORY, connect_by_cm, connect_by_cm),
	/* 错的。*/
	RC("read-only", SEND, MEMORY, read_only, NULL),
	RC("literal", SEND, MEMORY, string_literal, NULL),
	RC("shared-file", SEND, MEMORY, shared_file, NULL),
	RC("at-once", SEND, MADE, at_once, NULL),
	RC("careless", SEND, INITED, careless, NULL),
	RC("heedless", RDMA_WRITE, FILLED, careless, NULL),
	RC("too-early", SEND, INITED, send_now, NULL),
	RC("late-peer", SEND, INITED, NULL, stay),
	RC("peer-to-error", RDMA_WRITE, UP, NULL, to_error),
	RC("peer-gone", SEND, UP, NULL, destroy),
	RC("peer-anew", SEND, INITED, NULL, make_anew),
	RC("own-rkey", RDMA_WRITE, FILLED, own_rkey, NULL),
	RC("own-rkey-read", RDMA_READ, FILLED, own_rkey, NULL),
	RC("foreign-lkey", SEND, FILLED, foreign_lkey, NULL),
	RC("foreign-rkey", RDMA_WRITE, MADE, NULL, foreign_rkey),
	RC("closed-window", RDMA_WRITE, FILLED, hear_rkey, tell_closed),
	OWN("no-bind", RC, RDMA_WRITE, FILLED, hear_rkey, lack_bind),
	OWN("bind-too-much", RC, RDMA_WRITE, FILLED, hear_rkey, bind_too_much),
	OWN("past-window", RC, RDMA_WRITE, FILLED, write_past, tell_rkey),
	OWN("read-window", RC, RDMA_READ, FILLED, know_window, tell_rkey),
	RC("both-wait", SEND, FILLED, wait_too, NULL),
	OWN("other-cq", RC, SEND, POSTED, poll_other_cq, NULL),
	OWN("receive-in-error", RC, SEND, UP, NULL, receive_in_error),
	OWN("datagram", UD, SEND, MADE, NULL, expect_datagram),
	OWN("no-grh-room", UD, SEND, MADE, NULL, forget_grh),
	RC("no-wr-functions", SEND, MADE, start_plain, NULL),
	RC("write-unasked", SEND, MADE, write_unasked, NULL),
	RC("recv-beside-srq", SEND, MADE, recv_beside_srq, NULL),
	RC("cycle", SEND, FILLED, chain_to_itself, NULL),
	RC("ask-dm", SEND, MADE, ask_for_device_memory, NULL),
	RC("ask-timestamps", SEND, MADE, ask_for_timestamps, NULL),
	RC("forget-pd", SEND, MADE, forget_pd, NULL),
	RC("arm-beyond-srq", SEND, MADE, arm_beyond_srq, NULL),
	RC("interrupted", SEND, MADE, be_interrupted, NULL),
	RC("event-too-early", SEND, MADE, be_too_early, NULL),
	RC("start-twice", SEND, MADE, start_twice, NULL),
	SCENE("ud-start", UD, SEND, FILLED, NULL, read_from_the_start, false),
	OWN("dgid", UD, SEND, FILLED, NULL, compare_dgid),
	{ 0 },
};

// SPDX-License-Identifier: MIT
/*
 * two_hosts.c —— 第 9 课：两台主机之间，一串消息，超时与重试由你定
 *
 *	09-two-hosts server				在 A 上
 *	09-two-hosts client [options] <server_ip>	在 B 上
 *
 * 每条消息带自己的序号，内容逐字节检查；结束时两端各报自己网卡的计数器：丢了什么、
 * 重发了什么，只有它们知道，completion 里看不见。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/handshake.h"
#include "base/report.h"
#include "rdma_common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SERVER_WAIT_MS (300 * 1000)
#define USAGE	       "09-two-hosts server | client [options] <server_ip>"

enum op {
	OP_SEND,
	OP_WRITE,
	OP_READ
};

/* client 定，server 照办；在线上是大端。*/
struct plan {
	uint32_t op, size, count, window;
};

struct options {
	const char *server, *op;
	uint32_t timeout, retry, every_ms, wait_ms;
	struct plan plan;
};

/* ---- 计数器：网卡看见的 ------------------------------------------------------ */

// region counters
static const char *const counted[] = {
	"sent_pkts",	      "rcvd_pkts",	    "completer_retry_err",
	"retry_exceeded_err", "out_of_seq_request", "duplicate_request",
};

#define COUNTED (sizeof(counted) / sizeof(*counted))

static void read_counters(const struct rdma_resources *res,
			  uint64_t out[COUNTED])
{
	char path[512];
	FILE *f;

	for (size_t i = 0; i < COUNTED; i++) {
		out[i] = 0;
		snprintf(path, sizeof(path), "%s/ports/%u/hw_counters/%s",
			 res->context->device->ibdev_path, res->ib_port,
			 counted[i]);
		f = fopen(path, "r");
		if (!f)
			continue; /* 别的网卡叫别的名字 */
		if (fscanf(f, "%ju", (uintmax_t *)&out[i]) != 1)
			out[i] = 0;
		fclose(f);
	}
}
// endregion counters

static void show_counters(const struct rdma_resources *res,
			  const uint64_t before[COUNTED])
{
	uint64_t now[COUNTED];

	read_counters(res, now);
	for (size_t i = 0; i < COUNTED; i++)
		if (now[i] != before[i])
			report_fact("%-20s %+jd", counted[i],
				    (intmax_t)(now[i] - before[i]));
}

struct run {
	const struct options *opt;
	struct plan plan;
	struct rdma_resources res;
	int sock;
	uint64_t before[COUNTED]; /* 计数器在 READY 之前的值 */
	uint32_t done;		  /* 完成了多少条 */
	int64_t last, gap; /* 上一个 completion 的时刻，最长的间隔，ns */
};

/* ---- 连接 -------------------------------------------------------------------- */

// region my-rts
/* 第 3 课的 RTR → RTS，只有这两个值由命令行来：等多久，重发几次。*/
static int to_rts(struct run *run)
{
	struct ibv_qp_attr attr = rts_attributes(&run->res);

	attr.timeout = (uint8_t)run->opt->timeout;
	attr.retry_cnt = (uint8_t)run->opt->retry;
	return modify_qp(&run->res, &attr,
			 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC);
}
// endregion my-rts

static int agree(struct run *run, bool serve)
{
	struct plan mine = run->opt->plan, theirs;
	uint32_t *word = (uint32_t *)&mine, *got = (uint32_t *)&theirs;
	int rc;

	for (size_t i = 0; i < sizeof(mine) / sizeof(*word); i++)
		word[i] = htonl(word[i]);
	rc = sock_sync_data(run->sock, sizeof(mine), &mine, &theirs,
			    deadline_in_ms(EXCHANGE_TIMEOUT_MS), "the plan");
	for (size_t i = 0; !rc && i < sizeof(mine) / sizeof(*word); i++)
		got[i] = ntohl(got[i]);
	if (rc)
		return rc;
	run->plan = serve ? theirs : run->opt->plan;
	if (run->plan.size < sizeof(uint32_t) ||
	    run->plan.size > MAX_MSG_SIZE || !run->plan.window ||
	    run->plan.window > 1024 || run->plan.op > OP_READ)
		return fail(-EPROTO, "the same build on both hosts",
			    "the peer's plan cannot be");
	return 0;
}

/* 比 window 多：ACK 先于 completion，slot 还回来之前又有新的到。*/
static uint32_t receives(const struct run *run)
{
	uint32_t most = 4 * run->plan.window;

	return run->plan.count < most ? run->plan.count : most;
}

static int connect_hosts(struct run *run)
{
	struct rdma_config config = {
		.gid_index = GID_INDEX_AUTO,
		.msg_size = run->plan.size,
		.recv_slots = receives(run),
		.send_slots = run->plan.window,
		.events = true, /* 轮询会让模拟的对端变慢，慢了就有多余的重传 */
	};
	int64_t deadline = deadline_in_ms(EXCHANGE_TIMEOUT_MS);
	int rc = init_rdma_resources(&run->res, &config);

	if (!rc)
		rc = modify_qp_to_init(&run->res);
	for (uint32_t i = 0; i < receives(run) && !rc; i++)
		rc = post_receive(&run->res, i);
	if (!rc)
		rc = exchange_cm_con_data(&run->res, run->sock, deadline);
	if (!rc)
		rc = modify_qp_to_rtr(&run->res);
	if (!rc)
		rc = to_rts(run);
	/* 此刻谁也还没有发；READY 之后再读，就少算了对端先发的。*/
	if (!rc)
		read_counters(&run->res, run->before);
	return sock_sync_step(run->sock, SYNC_READY, rc, deadline);
}

/* ---- 消息 -------------------------------------------------------------------- */

static void fill(char *slot, uint32_t size, uint32_t number)
{
	memset(slot, (int)(number & 0xff), size);
	memcpy(slot, &number, sizeof(number));
}

static int check(const char *slot, uint32_t size, uint32_t number)
{
	uint32_t got;

	memcpy(&got, slot, sizeof(got));
	if (got != number)
		return fail(-EBADMSG, NULL, "message %u came instead of %u",
			    got, number);
	for (uint32_t i = sizeof(got); i < size; i++)
		if (slot[i] != (char)(number & 0xff))
			return fail(-EBADMSG, NULL,
				    "message %u: byte %u is wrong", number, i);
	return 0;
}

static int post(struct run *run, uint32_t number)
{
	uint32_t slot = number % run->plan.window, size = run->plan.size;
	struct rdma_resources *res = &run->res;
	struct ibv_sge into = { (uintptr_t)send_slot(res, slot), size,
				res->mr->lkey };

	if (run->plan.op == OP_READ)
		return post_read(res, slot, &into, res->remote.addr,
				 res->remote.rkey);
	fill(send_slot(res, slot), size, number);
	if (run->plan.op == OP_WRITE)
		return post_write(res, slot, size, res->remote.addr,
				  res->remote.rkey, IBV_SEND_SIGNALED);
	return post_send(res, slot, size, true);
}

static int take(struct run *run)
{
	struct ibv_wc wc;
	int rc = await_completion(&run->res, 0, &wc, (int)run->opt->wait_ms);
	int64_t now = now_ns();

	if (rc)
		return rc;
	if (run->done++ && now - run->last > run->gap)
		run->gap = now - run->last;
	run->last = now;
	return 0;
}

// region stream
/* 在途的至多 window 条；每 every_ms 一条，0：能发就发。*/
static int stream(struct run *run)
{
	uint32_t posted = 0;
	int rc = 0;

	while (!rc && run->done < run->plan.count) {
		if (posted < run->plan.count &&
		    posted - run->done < run->plan.window) {
			rc = post(run, posted++);
			if (!rc && run->opt->every_ms)
				rc = deadline_sleep_ms((int)run->opt->every_ms,
						       INT64_MAX);
		}
		if (!rc && (posted == run->plan.count || run->opt->every_ms ||
			    posted - run->done == run->plan.window))
			rc = take(run);
	}
	return rc;
}
// endregion stream

static int receive_all(struct run *run)
{
	struct ibv_wc wc;
	int rc = 0;

	while (!rc && run->done < run->plan.count) {
		rc = await_completion(&run->res, 0, &wc,
				      (int)run->opt->wait_ms);
		if (!rc)
			rc = check(recv_slot(&run->res, WR_ID_SLOT(wc.wr_id)),
				   wc.byte_len, run->done);
		if (rc)
			break;
		run->done++;
		rc = post_receive(&run->res, WR_ID_SLOT(wc.wr_id));
	}
	return rc;
}

/* ---- 两端 -------------------------------------------------------------------- */

static int client(struct run *run)
{
	static const char *const name[] = { "SENDs", "WRITEs", "READs" };
	int64_t began = now_ns();
	int rc = stream(run);
	double seconds = (double)(now_ns() - began) / 1e9;

	report_result("%u of %u %s of %u bytes completed in %.2f s; "
		      "longest pause %.3f s",
		      run->done, run->plan.count, name[run->plan.op],
		      run->plan.size, seconds, (double)run->gap / 1e9);
	return rc;
}

static int server(struct run *run)
{
	int rc = 0;

	if (run->plan.op != OP_SEND)
		return 0;
	rc = receive_all(run);
	report_result("%u of %u messages received, every byte right", run->done,
		      run->plan.count);
	return rc;
}

static int meet(struct run *run, bool serve)
{
	int listening;

	if (!serve) {
		run->sock = tcp_connect(run->opt->server, DEFAULT_TCP_PORT,
					deadline_in_ms(EXCHANGE_TIMEOUT_MS));
		return run->sock < 0 ? run->sock : 0;
	}
	listening = tcp_listen(DEFAULT_TCP_PORT);
	if (listening < 0)
		return listening;
	run->sock = tcp_accept(listening, deadline_in_ms(SERVER_WAIT_MS));
	sock_close(&listening);
	return run->sock < 0 ? run->sock : 0;
}

static int run_side(struct run *run, bool serve)
{
	int rc = meet(run, serve);

	if (!rc)
		rc = agree(run, serve);
	if (!rc)
		rc = connect_hosts(run);
	if (rc)
		return rc;
	rc = serve ? server(run) : client(run);
	rc = sock_sync_step(run->sock, SYNC_DONE, rc,
			    deadline_in_ms(serve && run->plan.op != OP_SEND
						   ? SERVER_WAIT_MS
						   : EXCHANGE_TIMEOUT_MS));
	show_counters(&run->res, run->before);
	return rc;
}

static int parse(struct options *opt, int argc, char **argv[])
{
	const struct option_row rows[] = {
		{ .letter = 'o',
		  .name = "op",
		  .argument = "OP",
		  .help = "send, write or read (default: send)",
		  TEXT(opt->op) },
		{ .letter = 's',
		  .name = "size",
		  .argument = "B",
		  .help = "bytes of one message (default: @)",
		  NUMBER(opt->plan.size, 1000, 4, 8 << 20) },
		{ .letter = 'n',
		  .name = "count",
		  .argument = "N",
		  .help = "messages (default: @)",
		  NUMBER(opt->plan.count, 200, 1, 1000000) },
		{ .letter = 'w',
		  .name = "window",
		  .argument = "N",
		  .help = "messages on their way at most (default: @)",
		  NUMBER(opt->plan.window, 8, 1, 1024) },
		{ .letter = 't',
		  .name = "timeout",
		  .argument = "T",
		  .help = "the QP's: 4.096 us x 2^T; 0: for ever (default: @)",
		  NUMBER(opt->timeout, 14, 0, 31) },
		{ .letter = 'r',
		  .name = "retry",
		  .argument = "R",
		  .help = "the QP's retry_cnt (default: @)",
		  NUMBER(opt->retry, 6, 0, 7) },
		{ .letter = 'e',
		  .name = "every",
		  .argument = "MS",
		  .help = "one message each MS milliseconds (default: at once)",
		  NUMBER(opt->every_ms, 0, 0, 1000) },
		{ .name = "wait",
		  .argument = "SECS",
		  .help = "limit of each wait for a completion (default: 5)",
		  SECONDS(opt->wait_ms, 5, 1, 3600) },
		{ QUIET("print only results and failures") },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = {
		.next = "usage: " USAGE,
		.head = "usage: " USAGE "\n\n",
		.tail = EXIT_CODES,
		.column = 20,
		.rows = rows,
	};
	int rc = take_options(&line, &argc, argv);

	if (rc < 0)
		rc = take_role(line.next, argc, *argv, &opt->server);
	if (rc >= 0)
		return rc;
	if (!opt->op || !strcmp(opt->op, "send"))
		opt->plan.op = OP_SEND;
	else if (!strcmp(opt->op, "write"))
		opt->plan.op = OP_WRITE;
	else if (!strcmp(opt->op, "read"))
		opt->plan.op = OP_READ;
	else
		return wrong_usage(line.next, "the operation", opt->op);
	return -1;
}

int main(int argc, char *argv[])
{
	struct options opt = { 0 };
	struct run run = { .opt = &opt, .sock = -1 };
	int rc = parse(&opt, argc, &argv), undo;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = run_side(&run, !opt.server);
	sock_close(&run.sock);
	undo = destroy_rdma_resources(&run.res);
	return rc || undo ? 1 : 0;
}

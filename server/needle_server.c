// SPDX-License-Identifier: MIT
/*
 * needle_server.c —— 存储节点：交出目录，然后袖手旁观
 *
 * 与 rdma_server 不同，它从不 post：没有 receive，没有 send，不 poll CQ。READ 由对端
 * 发起，由本机的网卡应答。它要做的只有三件事：把 store 放进注册过的内存，告诉每个
 * engine 那里有什么，在 engine 离开之后拆掉它的 QP。
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/report.h"
#include "needle_memory.h"
#include "pair/options.h"
#include "peers.h"

#define LONG_MS (3600 * 1000) /* 醒来看一眼，接着等 */

struct server_options {
	const char *store;
	struct rdma_options where; /* device, port, GID index */
	unsigned int engines;	   /* at once */
	uint64_t most;		   /* bytes of one MR */
	int handshake_ms;
};

struct node {
	struct rdma_resources owner; /* device and PD */
	struct needle_memory memory;
};

#define USAGE "usage: needle_server --store DIR [options] " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] = USAGE
	"\n\n"
	"Lets engines read the needles that are in DIR now with RDMA READ.\n"
	"What is put later is served after the next start.\n\n" DEVICE_HELP;
static const char tail[] = "\nSIGINT or SIGTERM ends it. " EXIT_CODES;

static int parse(struct server_options *opt, int argc, char *argv[])
{
	const struct option_row rows[] = {
		{ 'S', "store", "DIR", "the folder of the volumes",
		  TEXT(opt->store) },
		{ 'n', "max-engines", "N",
		  "engines at once, 1 ... # (default: @)",
		  NUMBER(opt->engines, 64, 1, PEERS_MOST) },
		{ 'M', "max-mr", "B",
		  "bytes of one memory region (default: the\ndevice's limit)",
		  NUMBER(opt->most, UINT64_MAX, 1, UINT64_MAX) },
		{ 't', "timeout", "SECS", "limit of one handshake (default: @)",
		  SECONDS(opt->handshake_ms, EXCHANGE_TIMEOUT_MS / 1000, 1,
			  86400) },
		{ QUIET("print only failures") },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, head, tail, 21, NULL, rows };
	int rc;

	*opt = (struct server_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = options_device(&opt->where, usage, argc, argv);
	if (rc < 0 && (!opt->store || !*opt->store))
		rc = wrong_usage(usage, "--store is missing", NULL);
	return rc;
}

/* ---- 每个 engine 一个 QP，一份目录，然后袖手旁观 --------------------------------- */

/*
 * rkey 只在它所属的 PD 里有效：要让多个 QP 都能被人读同一块 MR，它们就得建在同一个 PD
 * 里。每个连接各注册一遍也行，但每注册一遍都要把所有的页再 pin 一次。
 */
static int make_qp(struct rdma_resources *res,
		   const struct rdma_resources *owner)
{
	int rc;

	*res = *owner;
	/* 自己不收也不发；但 CQ 和两个队列的容量都不能是 0。*/
	res->recv_slots = res->send_slots = 1;
	rc = create_cq(res, false);
	return rc ? rc : create_qp(res, 0);
}

/* PD 与 context 是借来的：先放下它们，就只拆自己的 QP 和 CQ。*/
static void destroy_qp(struct peer *peer)
{
	struct rdma_resources *res = &peer->res;

	res->pd = NULL;
	res->context = NULL;
	destroy_objects(res);
}

// region serve-engine
/* 第 3、4 阶段，再加一份目录。此后节点不再 post 任何东西，CQ 永远是空的。*/
static int meet_engine(struct peer *peer, int64_t deadline)
{
	const struct node *node = peer->service->context;
	struct rdma_resources *res = &peer->res;
	int rc = make_qp(res, &node->owner);

	if (rc)
		return rc;
	/*
	 * 对端能同时在途多少个 READ，以我们的 max_dest_rd_atomic 为限：每个都要占住
	 * 一份“重传时还能再答一遍”的状态。给到网卡的上限，让 engine 自己选。
	 */
	res->max_reads = UINT8_MAX;
	rc = modify_qp_to_init(res);
	if (!rc)
		rc = exchange_cm_con_data(res, peer->sock, deadline);
	if (rc)
		return rc;
	show_both_sides(cm_con_data_of(res), res->remote);
	rc = peer_connect(peer, deadline);
	return rc ? rc
		  : needle_catalog_send(&node->memory.catalog, peer->sock,
					deadline);
}
// endregion serve-engine

static void serve_engine(struct peer *peer)
{
	const struct node *node = peer->service->context;

	report_fact("engine %u (%s): QP 0x%06x, told of %zu needles",
		    peer->number, peer->name, peer->res.qp->qp_num,
		    node->memory.catalog.count);
	while (!peer_wait(peer, LONG_MS))
		;
}

/* ---- 从头到尾 --------------------------------------------------------------- */

static int open_owner(const struct server_options *opt,
		      struct rdma_resources *owner)
{
	int rc = open_device(owner, &opt->where.config);

	if (rc)
		return rc;
	report_fact("%s port %u, GID index %u",
		    ibv_get_device_name(owner->context->device), owner->ib_port,
		    owner->gid_index);
	return create_pd(owner);
}

static int serve(const struct server_options *opt, struct node *node)
{
	const struct peer_service engines = {
		.who = "engine",
		.more = "raise --max-engines",
		.most = opt->engines,
		.handshake_ms = opt->handshake_ms,
		.meet = meet_engine,
		.serve = serve_engine,
		.part = destroy_qp,
		.context = node,
	};
	uint64_t most = opt->most;
	int rc;

	report_step("map the volumes of %s", opt->store);
	rc = needle_memory_open(&node->memory, opt->store);
	if (rc)
		return rc;

	report_step("open the device, make a PD, register for REMOTE_READ");
	rc = open_owner(opt, &node->owner);
	if (rc)
		return rc;
	if (most > node->owner.device_attr.max_mr_size)
		most = node->owner.device_attr.max_mr_size;
	rc = needle_memory_register(&node->memory, node->owner.pd, most);
	if (rc)
		return rc;
	report_fact("%zu needles of %zu volumes in %zu MRs",
		    node->memory.catalog.count, node->memory.n_volumes,
		    node->memory.n_mrs);

	report_step("give each engine a QP and the catalogue");
	return serve_peers(&engines, opt->where.tcp_port);
}

int main(int argc, char *argv[])
{
	struct node node = { 0 };
	struct server_options opt;
	int rc = parse(&opt, argc, argv);
	int undo, closed;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	expect_stop();
	rc = serve(&opt, &node);
	report_step("deregister the memory, deallocate the PD, close the "
		    "device");
	undo = needle_memory_close(&node.memory);
	closed = destroy_rdma_resources(&node.owner);
	return rc || undo || closed ? 1 : 0;
}

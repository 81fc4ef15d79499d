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
#include "needle_engines.h"
#include "needle_memory.h"
#include "pair/options.h"

struct server_options {
	const char *store;
	struct rdma_options where; /* device, port, GID index */
	unsigned int engines;	   /* at once */
	uint64_t most;		   /* bytes of one MR */
	int handshake_ms;
};

#define USAGE "usage: needle_server --store DIR [options] " DEVICE_OPERANDS
static const char usage[] = USAGE "; see --help";
static const char head[] = USAGE
	"\n\n"
	"Lets engines read the needles that are in DIR now with RDMA READ.\n"
	"What is put later is served after the next start.\n\n"
	"  device_name        RDMA device (default: the first usable)\n"
	"  port               TCP port (default: 18515)\n"
	"  gid_index          GID table slot (default: chosen by type)\n\n";
static const char tail[] = "\nSIGINT or SIGTERM ends it. Exit code: 0 done, 1 "
			   "failed, 2 wrong usage.\n";

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

static int open_device(const struct server_options *opt,
		       struct rdma_resources *owner)
{
	int rc = rdma_open_device(owner, &opt->where.config);

	if (rc)
		return rc;
	report_fact("%s port %u, GID index %u",
		    ibv_get_device_name(owner->context->device), owner->ib_port,
		    owner->gid_index);
	return rdma_create_pd(owner);
}

static int serve(const struct server_options *opt, struct rdma_resources *owner,
		 struct needle_memory *memory)
{
	struct needle_service service = {
		.owner = owner,
		.catalog = &memory->catalog,
		.most = opt->engines,
		.handshake_ms = opt->handshake_ms,
	};
	uint64_t most = opt->most;
	int sock, rc;

	report_step("map the volumes of %s", opt->store);
	rc = needle_memory_open(memory, opt->store);
	if (rc)
		return rc;

	report_step("open the device, make a PD, register for REMOTE_READ");
	rc = open_device(opt, owner);
	if (rc)
		return rc;
	if (most > owner->device_attr.max_mr_size)
		most = owner->device_attr.max_mr_size;
	rc = needle_memory_register(memory, owner->pd, most);
	if (rc)
		return rc;
	report_fact("%zu needles of %zu volumes in %zu MRs",
		    memory->catalog.count, memory->n_volumes, memory->n_mrs);

	report_step("give each engine a QP and the catalogue");
	sock = tcp_listen(opt->where.tcp_port);
	if (sock < 0)
		return sock;
	report_fact("listening on TCP port %u", opt->where.tcp_port);
	rc = needle_serve(&service, sock);
	sock_close(&sock);
	return rc;
}

int main(int argc, char *argv[])
{
	struct needle_memory memory = { 0 };
	struct rdma_resources owner = { 0 };
	struct server_options opt;
	int rc = parse(&opt, argc, argv);
	int undo, closed;

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	expect_stop();
	rc = serve(&opt, &owner, &memory);
	report_step("deregister the memory, deallocate the PD, close the "
		    "device");
	undo = needle_memory_close(&memory);
	closed = destroy_rdma_resources(&owner);
	return rc || undo || closed ? 1 : 0;
}

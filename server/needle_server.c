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

#include <getopt.h>
#include <stdio.h>

#define SHORT_OPTIONS	":S:n:M:t:qh"
#define DEFAULT_ENGINES 64

struct server_options {
	const char *store;
	struct rdma_options where; /* device, port, GID index */
	uint64_t engines;	   /* at once */
	uint64_t most;		   /* bytes of one MR */
	uint64_t seconds;	   /* of one handshake */
};

static void print_help(void)
{
	printf("usage: needle_server --store DIR [options] [device_name] "
	       "[port] [gid_index]\n"
	       "\n"
	       "Lets engines read the needles that are in DIR now with RDMA "
	       "READ.\n"
	       "What is put later is served after the next start.\n"
	       "\n"
	       "  device_name        RDMA device (default: the first usable)\n"
	       "  port               TCP port (default: %d)\n"
	       "  gid_index          GID table slot (default: chosen by type)\n"
	       "\n"
	       "  -S, --store DIR    the folder of the volumes\n"
	       "  -n, --max-engines N  engines at once, 1 ... %d (default: "
	       "%d)\n"
	       "  -M, --max-mr B     bytes of one memory region (default: the\n"
	       "                     device's limit)\n"
	       "  -t, --timeout SECS limit of one handshake (default: %d)\n"
	       "  -q, --quiet        print only failures\n"
	       "  -h, --help         print this and exit\n"
	       "\n"
	       "SIGINT or SIGTERM ends it. Exit code: 0 done, 1 failed, 2 "
	       "wrong usage.\n",
	       DEFAULT_TCP_PORT, NEEDLE_ENGINES_MOST, DEFAULT_ENGINES,
	       EXCHANGE_TIMEOUT_MS / 1000);
}

static int bad_usage(const char *what, const char *value)
{
	return wrong_usage("usage: needle_server --store DIR [options] "
			   "[device_name] [port] [gid_index]; see --help",
			   what, value);
}

static int parse_option(struct server_options *opt, int c, char *argv[])
{
	char value[64];

	switch (c) {
	case 'S':
		opt->store = optarg;
		return -1;
	case 'n':
		if (parse_number(optarg, 1, NEEDLE_ENGINES_MOST, &opt->engines))
			return -1;
		return bad_usage("--max-engines is not 1 ... 4096", optarg);
	case 'M':
		if (parse_number(optarg, 1, UINT64_MAX, &opt->most))
			return -1;
		return bad_usage("--max-mr is not 1 ... 2^64 - 1", optarg);
	case 't':
		if (parse_number(optarg, 1, 86400, &opt->seconds))
			return -1;
		return bad_usage("--timeout is not 1 ... 86400 seconds",
				 optarg);
	case 'q':
		report_set_level(REPORT_QUIET);
		return -1;
	case 'h':
		print_help();
		return 0;
	}
	return bad_usage(wrong_option(c, argv, SHORT_OPTIONS, value,
				      sizeof(value)),
			 value);
}

static int parse(struct server_options *opt, int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "store", required_argument, NULL, 'S' },
		{ "max-engines", required_argument, NULL, 'n' },
		{ "max-mr", required_argument, NULL, 'M' },
		{ "timeout", required_argument, NULL, 't' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *value = NULL, *wrong;
	int c, rc;

	*opt = (struct server_options){
		.where = { .config = { .gid_index = GID_INDEX_AUTO },
			   .tcp_port = DEFAULT_TCP_PORT },
		.engines = DEFAULT_ENGINES,
		.most = UINT64_MAX,
		.seconds = EXCHANGE_TIMEOUT_MS / 1000,
	};
	opterr = 0;
	while ((c = getopt_long(argc, argv, SHORT_OPTIONS, longs, NULL)) !=
	       -1) {
		rc = parse_option(opt, c, argv);
		if (rc >= 0)
			return rc;
	}
	wrong = options_device(&opt->where, argc - optind, argv + optind,
			       &value);
	if (wrong)
		return bad_usage(wrong, value);
	return opt->store && *opt->store
		       ? -1
		       : bad_usage("--store is missing", NULL);
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
		.most = (unsigned int)opt->engines,
		.handshake_ms = (int)opt->seconds * 1000,
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

// SPDX-License-Identifier: MIT
/*
 * options.c —— rdma_server 与 rdma_client 共用的命令行
 *
 * 位置参数与教材一致（设备名、端口、GID index 都可省略），其余是选项。
 */
#include "options.h"

#include "base/arguments.h"

#include <string.h>

#define SERVER_USAGE "usage: rdma_server [options] " DEVICE_OPERANDS
#define CLIENT_USAGE "usage: rdma_client [options] <server_ip> " DEVICE_OPERANDS
#define HEAD                                                             \
	"\n\n"                                                           \
	"  device_name        RDMA device (default: the first usable)\n" \
	"  port               TCP port of the server (default: 18515)\n" \
	"  gid_index          GID table slot (default: chosen by type)\n\n"

/* 表的开头，client 没有的。*/
#define SERVER_ROWS 3

static const char *usage(enum role role)
{
	return role == ROLE_SERVER ? SERVER_USAGE "; see --help"
				   : CLIENT_USAGE "; see --help";
}

int options_device(struct rdma_options *opt, const char *next, int argc,
		   char *argv[])
{
	const struct option_row rows[] = {
		{ .name = "device_name", DEVICE(opt->config.device_name) },
		{ .name = "port",
		  NUMBER(opt->tcp_port, DEFAULT_TCP_PORT, 1, UINT16_MAX) },
		{ .name = "gid_index",
		  NUMBER(opt->config.gid_index, GID_INDEX_AUTO, 0, UINT8_MAX) },
		{ 0 },
	};

	return take_operands(next, rows, argc, argv);
}

int options_server(struct rdma_options *opt, const char *next, int argc,
		   char *argv[])
{
	const char *what;

	if (argc < 1 || !*argv[0])
		return wrong_usage(next, "the server is missing", NULL);
	what = not_a_server(argv[0]);
	if (what)
		return wrong_usage(next, what, argv[0]);
	opt->server = argv[0];
	return options_device(opt, next, argc - 1, argv + 1);
}

/* 选项之间的关系放在最后检查：它们可以以任何顺序出现。*/
static int complete_options(struct rdma_options *opt)
{
	if (opt->many && (opt->plan.iters || opt->plan.mode != MODE_ONCE))
		return wrong_usage(
			usage(opt->role),
			"--many leaves --iters and --bw to the clients", NULL);
	if (!opt->many && (opt->slots || opt->credits >= 0))
		return wrong_usage(usage(opt->role),
				   "--slots and --credits go with --many",
				   NULL);
	if (opt->cm && (opt->many || opt->config.gid_index != GID_INDEX_AUTO))
		return wrong_usage(usage(opt->role),
				   "--cm leaves the GID to librdmacm, and does "
				   "not go with --many",
				   NULL);
	if (opt->plan.mode == MODE_BANDWIDTH) {
		if (!opt->plan.iters)
			opt->plan.iters = 1000;
	} else if (opt->plan.iters) {
		opt->plan.mode = MODE_PINGPONG;
	}
	if (opt->message && opt->plan.mode != MODE_ONCE)
		return wrong_usage(usage(opt->role),
				   "--message does not go with --iters or --bw",
				   NULL);
	if (!opt->message)
		opt->message = opt->role == ROLE_SERVER
				       ? "Hello from RDMA server!"
				       : "Hello from RDMA client!";
	if (opt->plan.mode == MODE_ONCE &&
	    strlen(opt->message) + 1 > opt->config.msg_size)
		return wrong_usage(usage(opt->role),
				   "the message and its NUL are longer than "
				   "--size",
				   opt->message);
	measure_slots(&opt->config, &opt->plan);
	return -1;
}

int options_parse(struct rdma_options *opt, enum role role, int argc,
		  char *argv[])
{
	const bool server = role == ROLE_SERVER;
	const struct option_row rows[] = {
		{ 0, "many", "N",
		  "serve N clients at once, until stopped; -s is the most",
		  NUMBER(opt->many, 0, 1, 1000) },
		{ 0, "slots", "N", "--many: receives for all (default: 4 N)",
		  NUMBER(opt->slots, 0, 2, UINT32_MAX) },
		{ 0, "credits", "N",
		  "--many: messages of one client in a turn (default: "
		  "its\nshare of the slots; 0: all that it has sent)",
		  NUMBER(opt->credits, -1, 0, 1000000) },
		{ 0, "cm", NULL,
		  "connect by librdmacm; port is one of its own then, and\nthe "
		  "address chooses device and GID",
		  FLAG(opt->cm) },
		{ 's', "size", "B", "bytes of one message (default: @)",
		  NUMBER(opt->config.msg_size, DEFAULT_MSG_SIZE, 1,
			 MAX_MSG_SIZE) },
		{ 'n', "iters", "N", "measure N round trips",
		  NUMBER(opt->plan.iters, 0, 1, 100000000) },
		{ 'b', "bw", NULL, "measure bandwidth, client to server",
		  SET(opt->plan.mode, MODE_BANDWIDTH) },
		{ 'w', "window", "N", "--bw: at most N sends outstanding (@)",
		  NUMBER(opt->plan.window, 128, 1, 4096) },
		{ EVENTS(opt->config.events) },
		{ 'm', "message", "TEXT", "the text to send",
		  TEXT(opt->message) },
		{ 't', "timeout", "SECS",
		  server ? "limit of every wait (default: 300 for a client to "
			   "come;\n10 for the exchange, 5 for a completion)"
			 : "limit of every wait (default: 10 for the server to "
			   "be there;\n10 for the exchange, 5 for a "
			   "completion)",
		  SECONDS(opt->timeout_ms, 0, 1, 86400) },
		{ QUIET("print only the result and failures") },
		{ JSON(opt->json) },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = {
		.head = server ? SERVER_USAGE HEAD : CLIENT_USAGE HEAD,
		.next = usage(role),
		.rows = rows + (server ? 0 : SERVER_ROWS),
		.column = 21,
		.tail = "\nGive -s, -n, -b the same values on both sides.\n"
			"Exit code: 0 done, 1 failed, 2 wrong usage.\n",
	};
	int rc;

	*opt = (struct rdma_options){ .role = role, .credits = -1 };
	rc = take_options(&line, &argc, &argv);
	if (rc < 0)
		rc = server ? options_device(opt, line.next, argc, argv)
			    : options_server(opt, line.next, argc, argv);
	return rc < 0 ? complete_options(opt) : rc;
}

int timeout_or(const struct rdma_options *opt, int default_ms)
{
	return opt->timeout_ms ? opt->timeout_ms : default_ms;
}

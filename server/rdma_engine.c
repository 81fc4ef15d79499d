// SPDX-License-Identifier: MIT
/*
 * rdma_engine.c —— 一头是 Unix socket 上的许多 client，另一头是存储节点的内存
 *
 * 这里只把部件接起来，每一件的道理都在 common/ 各自的文件里：
 *
 *	ipc/clients     client 们：收请求，发回答
 *	engine/service  每种请求怎么答；engine/answer 是其中要花时间的那一种
 *	engine/link     与存储节点的连接，断了会重来；engine/remote_read 在它上面
 *	base/event_loop 让这一切在一个线程里轮流进行
 */
#include "base/arguments.h"
#include "base/deadline.h"
#include "base/report.h"
#include "engine/service.h"

#include <locale.h>
#include <string.h>
#include <sys/resource.h>

/* ---- 命令行：上限都有缺省值，也都能改：测试要把它们调小 ------------------- */

struct engine_options {
	const char *socket;
	char host[256]; /* 存储节点的 */
	uint16_t port;
	const char *token_file; /* NULL：不必出示 */
	const char *device;	/* NULL：头一个能用的 */
	int gid_index;
	uint64_t max_sessions, max_clients;
	uint64_t max_memory;   /* 字节 */
	uint64_t session_secs; /* session 没有说期限时的 */
	uint64_t read_secs;    /* StartRead 没有进展 */
	uint64_t client_secs;  /* client 一动不动 */
	uint64_t depth;	       /* 同时在途的 READ */
	uint64_t chunk;	       /* 其中一个的字节数 */
};

#define USAGE "usage: rdma_engine --socket PATH --peer HOST[:PORT] [options]"
#define HEAD                                                                 \
	USAGE "\n\n"                                                         \
	      "Reads needles from a storage node (needle_server) with RDMA " \
	      "READ, for\n"                                                  \
	      "clients on a Unix socket.\n\n"
#define TAIL "\nSIGINT or SIGTERM ends it. " EXIT_CODES
static const char usage[] = USAGE "; see --help";

/* HOST、HOST:PORT、[IPv6]:PORT。没有方括号而有两个以上冒号的，整个是 IPv6 地址。*/
static int parse_peer(struct engine_options *opt, const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t length = strlen(text);
	uint64_t port = DEFAULT_TCP_PORT;

	if (colon && *text != '[' && strchr(text, ':') != colon)
		colon = NULL;
	if (colon && *text == '[' && colon[-1] != ']')
		colon = NULL;
	if (colon) {
		if (!parse_number(colon + 1, 1, 65535, &port))
			return wrong_usage(usage,
					   "--peer's port is not 1 ... 65535",
					   text);
		length = (size_t)(colon - text);
	}
	if (length > 2 && *text == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (!length || length >= sizeof(opt->host))
		return wrong_usage(usage, "--peer is not HOST or HOST:PORT",
				   text);
	memcpy(opt->host, text, length);
	opt->host[length] = '\0';
	opt->port = (uint16_t)port;
	return -1;
}

static int parse(struct engine_options *opt, int argc, char *argv[])
{
	const char *peer = NULL;
	const struct option_row rows[] = {
		{ 's', "socket", "PATH",
		  "where clients connect; only this user can",
		  TEXT(opt->socket) },
		{ 'p', "peer", "HOST[:PORT]", "the storage node (port: 18515)",
		  TEXT(peer) },
		{ 'd', "device", "NAME",
		  "RDMA device (default: the first usable)",
		  TEXT(opt->device) },
		{ 'g', "gid-index", "N",
		  "GID table slot (default: chosen by type)",
		  NUMBER(opt->gid_index, GID_INDEX_AUTO, 0, UINT8_MAX) },
		{ 'n', "max-sessions", "N", "sessions at once (default: @)",
		  NUMBER(opt->max_sessions, 1000, 1, 1000000) },
		{ 'c', "max-clients", "N", "clients at once (default: @)",
		  NUMBER(opt->max_clients, 1024, 1, 100000) },
		{ 'm', "max-memory", "MIB",
		  "memory for all clients; one client gets at "
		  "most three\nquarters of it (default: @)",
		  MEBIBYTES(opt->max_memory, 1024, 1, 1 << 24) },
		{ 'a', "auth-token-file", "F", "clients must show this token",
		  TEXT(opt->token_file) },
		{ 't', "session-timeout", "SECS",
		  "of a session that names none (@)",
		  NUMBER(opt->session_secs, ENGINE_TIMEOUT_SECS, 1, 86400) },
		{ 'r', "read-timeout", "SECS",
		  "of a read that makes no progress (@)",
		  NUMBER(opt->read_secs, 10, 1, 3600) },
		{ 'w', "client-timeout", "SECS",
		  "of a client that owes something (@)",
		  NUMBER(opt->client_secs, 30, 1, 3600) },
		{ 0, "depth", "N", "READs posted at once (@)",
		  NUMBER(opt->depth, REMOTE_READ_DEPTH, 1, 8192) },
		{ 0, "chunk", "BYTES", "at most for one READ (@)",
		  NUMBER(opt->chunk, REMOTE_READ_CHUNK, 1, 1 << 30) },
		{ QUIET("print only failures") },
		{ HELP },
		{ 0 },
	};
	const struct command_line line = { usage, HEAD, TAIL, 23, NULL, rows };
	int rc;

	*opt = (struct engine_options){ 0 };
	rc = take_options(&line, &argc, &argv);
	if (rc >= 0)
		return rc;
	if (argc > 0)
		return wrong_usage(usage, "too many arguments", argv[0]);
	if (!opt->socket)
		return wrong_usage(usage, "--socket is missing", NULL);
	return peer ? parse_peer(opt, peer)
		    : wrong_usage(usage, "--peer is missing", NULL);
}

/* ---- 部件 --------------------------------------------------------------- */

struct engine {
	struct rdma_resources res;
	struct event_loop loop;
	struct engine_link link;
	struct engine_service service;
	struct engine_ipc ipc;
	struct budget memory; /* 为 client 用掉的内存，都记在这里 */
};

/* 每个 client、每个 session 各占一个 fd，软上限通常只有 1024；硬上限以内可以自己提。*/
static void raise_fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void connect_parts(struct engine *e, const struct engine_options *opt)
{
	/* 总有四分之一是别人的：一个 client 用不光。*/
	const size_t share = opt->max_memory / 4 * 3;

	e->link = (struct engine_link){
		.host = opt->host,
		.port = opt->port,
		.loop = &e->loop,
		.res = &e->res,
		.chunk_size = (uint32_t)opt->chunk,
		.up = engine_service_link_up,
		.context = &e->service,
	};
	e->service.loop = &e->loop;
	e->service.link = &e->link;
	e->service.max_sessions = opt->max_sessions;
	e->service.session_secs = opt->session_secs;
	e->memory.most = opt->max_memory;
	e->service.budget = &e->memory;
	e->service.max_bytes = share;
	e->service.read_ms = (int)opt->read_secs * 1000;
	e->ipc = (struct engine_ipc){
		.loop = &e->loop,
		.most = (unsigned int)opt->max_clients,
		.budget = &e->memory,
		.share = share,
		.stall_ms = (int)opt->client_secs * 1000,
		.request = engine_service_request,
		.gone = engine_service_gone,
		.context = &e->service,
	};
}

static int serve_clients(struct engine *e, const struct engine_options *opt)
{
	int rc = engine_ipc_open(&e->ipc, opt->socket);

	if (rc)
		return rc;
	report_step("serve clients on %s", opt->socket);
	report_flush();
	rc = event_loop_run(&e->loop);
	report_step("end all sessions, disconnect, remove the socket");
	engine_ipc_close(&e->ipc);
	return rc;
}

/*
 * 拆的次序与建相反，中间有一条规矩：先送走 client（它们的 READ 被取消，但可能还在途），
 * 再断 link（QP 进 RESET，在途的才真正结束），最后才释放 buffer。
 */
static int serve(struct engine *e, const struct engine_options *opt)
{
	int rc = event_loop_open(&e->loop);

	if (rc)
		return rc;
	rc = engine_service_open(&e->service);
	if (rc)
		goto close_loop;
	rc = engine_link_open(&e->link);
	if (rc)
		goto close_service;
	rc = serve_clients(e, opt);
	engine_link_close(&e->link);
close_service:
	engine_service_close(&e->service);
close_loop:
	event_loop_close(&e->loop);
	return rc;
}

int main(int argc, char *argv[])
{
	struct engine e = { 0 };
	struct engine_options opt;
	struct rdma_config config;
	int rc, undo;

	setlocale(LC_CTYPE, "");
	rc = parse(&opt, argc, argv);
	if (rc >= 0)
		return rc;
	catch_stop_signals();
	expect_stop();
	raise_fd_limit();
	if (opt.token_file && engine_auth_load(&e.service.auth, opt.token_file))
		return 1;

	report_step("open the device, make PD, CQ and QP");
	config = remote_reader_config(opt.device, opt.gid_index,
				      (uint32_t)opt.depth);
	if (init_rdma_resources(&e.res, &config))
		return 1;
	report_fact("%s port %u, GID index %u",
		    ibv_get_device_name(e.res.context->device), e.res.ib_port,
		    e.res.gid_index);
	connect_parts(&e, &opt);
	rc = serve(&e, &opt);
	undo = destroy_rdma_resources(&e.res);
	return rc || undo ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * rdma_engine.c —— 一头是 Unix socket 上的许多 client，另一头是存储节点的内存
 *
 * 这里只把部件接起来，每一件的道理都在 common/ 各自的文件里：
 *
 *	engine_ipc     client 们：收请求，发回答
 *	engine_service 每种请求怎么答；engine_read 是其中要花时间的那一种
 *	engine_link    与存储节点的连接，断了会重来；remote_read 在它上面
 *	event_loop     让这一切在一个线程里轮流进行
 */
#include "base/deadline.h"
#include "base/report.h"
#include "engine/service.h"
#include "engine_options.h"

#include <locale.h>
#include <sys/resource.h>

struct engine {
	struct rdma_resources res;
	struct event_loop loop;
	struct engine_link link;
	struct engine_service service;
	struct engine_ipc ipc;
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
	e->service.max_bytes = opt->max_memory;
	e->service.read_ms = (int)opt->read_secs * 1000;
	e->ipc = (struct engine_ipc){
		.loop = &e->loop,
		.most = (unsigned int)opt->max_clients,
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
	rc = engine_options_parse(&opt, argc, argv);
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

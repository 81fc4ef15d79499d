// SPDX-License-Identifier: MIT
/*
 * ucx_spy.c —— LD_PRELOAD 的“间谍”：看 UCX 的调用，按吩咐让其中一个失败
 *
 *	SPY_UCX_FAIL=NAME:N   第 N 次调用 NAME 失败（UCS_ERR_IO_ERROR）；NAME:N+：此后每次
 *	SPY_UCX_GONE=1        不是 IO_ERROR，而是对端走了（UCS_ERR_CONNECTION_RESET）
 *	SPY_UCX_FAILED=FILE   失败过，里面就有一行
 *	SPY_UCX_LOG=FILE      每次调用追加一行；同一个接连来几次，只写一行
 *	SPY_UCX_HOLD=FILE     还第一个 worker 之前，等到有这个文件
 *
 * 真的原因（没有描述符、没有内存）也能叫它们失败，可是 UCX 要几个描述符、几个就够它接下
 * 一个 client，每次不一样；给少了，UCX 1.13 会在 uct_tcp_sockcm_ep 的清理里段错误。
 * 变量的名字不以 UCX_ 开头：那样的，UCX 会说它不认得。
 */
#include "../real.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static void append(const char *variable, const char *name)
{
	FILE *file = getenv(variable) ? fopen(getenv(variable), "ae") : NULL;

	if (file)
		fprintf(file, "%s\n", name);
	if (file)
		fclose(file);
}

static void note(const char *name)
{
	static const char *last;

	if (last != name)
		append("SPY_UCX_LOG", name);
	last = name;
}

static bool fails(const char *name)
{
	static int calls;
	const char *rule = getenv("SPY_UCX_FAIL");
	size_t length = strlen(name);
	char *end;
	long nth;

	note(name);
	if (!rule || strncmp(rule, name, length) || rule[length] != ':')
		return false;
	nth = strtol(rule + length + 1, &end, 10);
	if (++calls < nth || (calls > nth && *end != '+'))
		return false;
	append("SPY_UCX_FAILED", name);
	return true;
}

static ucs_status_t how(void)
{
	return getenv("SPY_UCX_GONE") ? UCS_ERR_CONNECTION_RESET
				      : UCS_ERR_IO_ERROR;
}

#define MAY_FAIL(type, name, params, args, failed)          \
	type name params                                    \
	{                                                   \
		REAL(name);                                 \
		return fails(#name) ? (failed) : real args; \
	}

#define STATUS(name, params, args) \
	MAY_FAIL(ucs_status_t, name, params, args, how())

#define REQUEST(name, params, args) \
	MAY_FAIL(ucs_status_ptr_t, name, params, args, UCS_STATUS_PTR(how()))

STATUS(ucp_config_read,
       (const char *prefix, const char *file, ucp_config_t **config),
       (prefix, file, config))
STATUS(ucp_config_modify,
       (ucp_config_t * config, const char *name, const char *value),
       (config, name, value))
STATUS(ucp_init_version,
       (unsigned int major, unsigned int minor, const ucp_params_t *params,
	const ucp_config_t *config, ucp_context_h *context),
       (major, minor, params, config, context))
STATUS(ucp_worker_create,
       (ucp_context_h context, const ucp_worker_params_t *params,
	ucp_worker_h *worker),
       (context, params, worker))
STATUS(ucp_worker_get_efd, (ucp_worker_h worker, int *fd), (worker, fd))
STATUS(ucp_worker_arm, (ucp_worker_h worker), (worker))
STATUS(ucp_listener_create,
       (ucp_worker_h worker, const ucp_listener_params_t *params,
	ucp_listener_h *listener),
       (worker, params, listener))
STATUS(ucp_conn_request_query,
       (ucp_conn_request_h request, ucp_conn_request_attr_t *attr),
       (request, attr))
STATUS(ucp_ep_create,
       (ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep),
       (worker, params, ep))
REQUEST(ucp_ep_flush_nbx, (ucp_ep_h ep, const ucp_request_param_t *param),
	(ep, param))
REQUEST(ucp_ep_close_nbx, (ucp_ep_h ep, const ucp_request_param_t *param),
	(ep, param))
REQUEST(ucp_stream_send_nbx,
	(ucp_ep_h ep, const void *buffer, size_t count,
	 const ucp_request_param_t *param),
	(ep, buffer, count, param))
REQUEST(ucp_stream_recv_nbx,
	(ucp_ep_h ep, void *buffer, size_t count, size_t *length,
	 const ucp_request_param_t *param),
	(ep, buffer, count, length, param))
REQUEST(ucp_tag_send_nbx,
	(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
	 const ucp_request_param_t *param),
	(ep, buffer, count, tag, param))
REQUEST(ucp_tag_recv_nbx,
	(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
	 ucp_tag_t mask, const ucp_request_param_t *param),
	(worker, buffer, count, tag, mask, param))
REQUEST(ucp_tag_msg_recv_nbx,
	(ucp_worker_h worker, void *buffer, size_t count,
	 ucp_tag_message_h message, const ucp_request_param_t *param),
	(worker, buffer, count, message, param))

unsigned int ucp_worker_progress(ucp_worker_h worker)
{
	REAL(ucp_worker_progress);
	note("ucp_worker_progress");
	return real(worker);
}

void ucp_worker_destroy(ucp_worker_h worker)
{
	static bool held;
	const char *file = getenv("SPY_UCX_HOLD");

	REAL(ucp_worker_destroy);
	note("ucp_worker_destroy");
	for (int ms = 0; file && !held && ms < 60000; ms += 10) {
		held = !access(file, F_OK);
		usleep(10000);
	}
	held = true;
	real(worker);
}

// SPDX-License-Identifier: MIT
/*
 * no_worker.c —— LD_PRELOAD：从第 NO_WORKER 次起，ucp_worker_create 一概失败
 *
 * 用 RLIMIT_NOFILE 也能叫它失败，可是 UCX 要几个 descriptor、几个就够它接下一个
 * client，每次不一样；给少了，UCX 1.13 在 uct_tcp_sockcm_ep 的清理里段错误。
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

ucs_status_t ucp_worker_create(ucp_context_h context,
			       const ucp_worker_params_t *params,
			       ucp_worker_h *worker)
{
	static int calls;
	ucs_status_t (*real)(ucp_context_h, const ucp_worker_params_t *,
			     ucp_worker_h *);
	void *symbol = dlsym(RTLD_NEXT, "ucp_worker_create");

	if (!symbol)
		abort();
	if (++calls >= atoi(getenv("NO_WORKER")))
		return UCS_ERR_IO_ERROR;
	memcpy(&real, &symbol, sizeof(real));
	return real(context, params, worker);
}

// SPDX-License-Identifier: MIT
/*
 * ucx_worker.c —— context 与 worker：UCX 里一切通信的地基
 *
 * context 是“这台机器上有哪些 transport、哪些网卡可用”；worker 是一组队列，所有
 * endpoint 的消息都进出于它。UCX 没有后台线程替你收发：只有调用
 * ucp_worker_progress() 时，数据才会前进，callback 才会被调用。socket 则相反：内核
 * 一直在收，recv() 只是去取。这是两者最根本的区别。
 */
#include "ucx_worker.h"

#include "deadline.h"
#include "report.h"

#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#define BUSY_POLLS 256 /* 看一次钟和信号要花的时间，抵得上好几次空转 */

/* ---- 出错时说什么 ------------------------------------------------------- */

static const struct {
	ucs_status_t status;
	int err;
	const char *name;
	const char *next;
} statuses[] = {
	{ UCS_ERR_NO_MEMORY, ENOMEM, "UCS_ERR_NO_MEMORY", NULL },
	{ UCS_ERR_NO_DEVICE, ENODEV, "UCS_ERR_NO_DEVICE",
	  "ucx_info -d lists the transports and devices that are here; choose "
	  "among them with UCX_TLS and UCX_NET_DEVICES" },
	{ UCS_ERR_BUSY, EBUSY, "UCS_ERR_BUSY", NULL },
	{ UCS_ERR_INVALID_PARAM, EINVAL, "UCS_ERR_INVALID_PARAM", NULL },
	{ UCS_ERR_INVALID_ADDR, EADDRNOTAVAIL, "UCS_ERR_INVALID_ADDR", NULL },
	{ UCS_ERR_UNREACHABLE, EHOSTUNREACH, "UCS_ERR_UNREACHABLE",
	  "let both sides have the same UCX_TLS, and UCX_NET_DEVICES that "
	  "reach each other" },
	{ UCS_ERR_REJECTED, ECONNREFUSED, "UCS_ERR_REJECTED",
	  "see the peer's own messages" },
	{ UCS_ERR_NOT_CONNECTED, ENOTCONN, "UCS_ERR_NOT_CONNECTED",
	  "see the peer's own messages" },
	{ UCS_ERR_CONNECTION_RESET, ECONNRESET, "UCS_ERR_CONNECTION_RESET",
	  "see the peer's own messages" },
	{ UCS_ERR_ENDPOINT_TIMEOUT, ECONNRESET, "UCS_ERR_ENDPOINT_TIMEOUT",
	  "is the peer still there, and the network? see its own messages" },
	{ UCS_ERR_TIMED_OUT, ETIMEDOUT, "UCS_ERR_TIMED_OUT", NULL },
	{ UCS_ERR_MESSAGE_TRUNCATED, EMSGSIZE, "UCS_ERR_MESSAGE_TRUNCATED",
	  NULL },
	{ UCS_ERR_CANCELED, ECANCELED, "UCS_ERR_CANCELED", NULL },
	{ UCS_ERR_EXCEEDS_LIMIT, EMFILE, "UCS_ERR_EXCEEDS_LIMIT", NULL },
	{ UCS_ERR_UNSUPPORTED, EOPNOTSUPP, "UCS_ERR_UNSUPPORTED", NULL },
	{ UCS_ERR_IO_ERROR, EIO, "UCS_ERR_IO_ERROR",
	  "UCX_LOG_LEVEL=warn shows what UCX itself has to say" },
};

#define N_STATUSES (sizeof(statuses) / sizeof(statuses[0]))

static size_t row_of(ucs_status_t status)
{
	size_t i = 0;

	while (i < N_STATUSES && statuses[i].status != status)
		i++;
	return i;
}

int ucx_errno(ucs_status_t status)
{
	size_t i = row_of(status);

	if (status == UCS_OK)
		return 0;
	return i < N_STATUSES ? -statuses[i].err : -EIO;
}

int ucx_failed(ucs_status_t status, const char *next, const char *fmt, ...)
{
	size_t i = row_of(status);
	char call[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	if (!next)
		next = i < N_STATUSES && statuses[i].next
			       ? statuses[i].next
			       : "UCX_LOG_LEVEL=warn shows what UCX itself has "
				 "to say";
	report_error(next, "%s: %s (%d): %s", call,
		     i < N_STATUSES ? statuses[i].name : "UCX status",
		     (int)status, ucs_status_string(status));
	return ucx_errno(status);
}

const char *ucx_version(void)
{
	return ucp_get_version_string();
}

void ucx_debug(const struct ucx_worker *w, const char *fmt, ...)
{
	char host[65] = "?", text[256], stamp[32];
	struct timespec now;
	va_list ap;

	if (!w->debug)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	gethostname(host, sizeof(host) - 1);
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(stamp, sizeof(stamp), "%lld.%06ld", (long long)now.tv_sec,
		 now.tv_nsec / 1000);
	report_remark(stamp, "[%s:%d] UCXPY  DEBUG %s", host, (int)getpid(),
		      text);
}

/* ---- 配置 --------------------------------------------------------------- */

/*
 * UCX 的日志默认写到 stdout，格式是它自己的。启动时的 WARN 值得看：UCX_TLS 里写了
 * 一个这里没有的 transport，它会说出有哪些；其余的由我们用自己的话报告一次。
 */
static ucs_log_func_rc_t
warn_while_starting(const char *file, unsigned int line, const char *function,
		    ucs_log_level_t level,
		    const ucs_log_component_config_t *component,
		    const char *message, va_list ap)
{
	char text[512];

	(void)file, (void)line, (void)function, (void)component;
	if (level == UCS_LOG_LEVEL_WARN) {
		vsnprintf(text, sizeof(text), message, ap);
		report_warning(NULL, "UCX: %s", text);
	}
	return UCS_LOG_FUNC_RC_STOP;
}

/*
 * rxe 的驱动把父网卡的名字放在 parent 里，硬件的驱动没有这个文件。
 *
 * UCX 1.13 的 UD 会核对每个包 GRH 里的目的 GID；在 RoCE v2 的 IPv4 上，它从
 * wc.sl 里读 RoCE 的版本，mlx5 这样填，rxe 不填，于是每个包都被丢掉，建连就永远
 * 挂着。第 08 课讲怎样查出来的。用户自己设了值就听用户的。
 */
static void allow_rxe(void)
{
	static const char *const key = "UCX_UD_VERBS_ETH_DGID_CHECK";
	glob_t found;

	if (!getenv(key) &&
	    !glob("/sys/class/infiniband/*/parent", 0, NULL, &found)) {
		setenv(key, "n", 1);
		globfree(&found);
	}
}

// region ucx-config
static ucs_status_t read_config(ucp_config_t **config)
{
	ucs_status_t status;

	allow_rxe();
	status = ucp_config_read(NULL, NULL, config);
	if (status != UCS_OK)
		return status;
	/*
	 * rendezvous 默认会用两条 rail；两边算出来的 rail 若对不上（一边两块网卡、
	 * 另一边一块），建连就失败：“no remote ep address for lane[2]”。UCX-Py 把它
	 * 设成 1，我们也一样。用户在环境变量里给了，就听用户的。
	 */
	if (!getenv("UCX_MAX_RNDV_RAILS") && !getenv("UCX_MAX_RNDV_LANES"))
		status = ucp_config_modify(*config, "MAX_RNDV_RAILS", "1");
	/* 没有它，server 重启后一分钟内 bind 会因 TIME_WAIT 而失败。*/
	if (status == UCS_OK && !getenv("UCX_TCP_CM_REUSEADDR"))
		status = ucp_config_modify(*config, "TCP_CM_REUSEADDR", "y");
	if (status != UCS_OK)
		ucp_config_release(*config);
	return status;
}
// endregion ucx-config

/* ---- context 与 worker -------------------------------------------------- */

static const char *env_or(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value && *value ? value : otherwise;
}

// region ucx-context
static int open_context(struct ucx_worker *w)
{
	/*
	 * features 决定 UCX 为每个 endpoint 建哪几条通路。两边要一样：UCX-Py 要
	 * 这五样，只要少一样，两边选出的 lane 就可能对不上。我们用到的是 TAG（消息）、
	 * STREAM（peer info）与 WAKEUP（event fd）。
	 */
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_STREAM |
			    UCP_FEATURE_WAKEUP | UCP_FEATURE_AM |
			    UCP_FEATURE_RMA,
	};
	const bool quiet = !getenv("UCX_LOG_LEVEL");
	ucp_config_t *config;
	ucs_status_t status;

	if (quiet)
		ucs_log_push_handler(warn_while_starting);
	status = read_config(&config);
	if (status == UCS_OK) {
		status = ucp_init(&params, config, &w->context);
		ucp_config_release(config);
	}
	if (quiet) {
		ucs_log_pop_handler();
		ucs_global_opts_set_value("LOG_LEVEL", "fatal");
	}
	if (status == UCS_OK)
		return 0;
	w->context = NULL;
	return ucx_failed(status, NULL,
			  "ucp_init(UCX_TLS=%s, UCX_NET_DEVICES=%s)",
			  env_or("UCX_TLS", "all"),
			  env_or("UCX_NET_DEVICES", "all"));
}
// endregion ucx-context

// region ucx-worker
static int open_worker(struct ucx_worker *w)
{
	const ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucs_status_t status =
		ucp_worker_create(w->context, &params, &w->worker);

	if (status != UCS_OK) {
		w->worker = NULL;
		return ucx_failed(status, NULL, "ucp_worker_create()");
	}
	if (!w->busy)
		status = ucp_worker_get_efd(w->worker, &w->efd);
	if (status != UCS_OK)
		return ucx_failed(status,
				  "choose transports that can wake up, as tcp "
				  "and rc_verbs can, or take --busy",
				  "ucp_worker_get_efd()");
	return 0;
}
// endregion ucx-worker

int ucx_open(struct ucx_worker *w, bool busy)
{
	const char *level = getenv("UCXPY_LOG_LEVEL");
	int rc;

	w->busy = busy;
	w->debug = level && !strcmp(level, "DEBUG");
	rc = open_context(w);
	if (!rc)
		rc = open_worker(w);
	if (rc)
		ucx_close(w);
	return rc;
}

void ucx_close(struct ucx_worker *w)
{
	if (w->worker)
		ucp_worker_destroy(w->worker);
	if (w->context)
		ucp_cleanup(w->context);
	w->worker = NULL;
	w->context = NULL;
}

/* ---- progress ----------------------------------------------------------- */

/* 一直空转：延迟最小，一个 CPU 全占。*/
static int look_again(struct ucx_worker *w, int64_t deadline)
{
	if (++w->polls % BUSY_POLLS)
		return 0;
	if (stop_requested())
		return -EINTR;
	return deadline_passed(deadline) ? -ETIMEDOUT : 0;
}

// region progress
int ucx_progress(struct ucx_worker *w, int64_t deadline)
{
	ucs_status_t status;

	if (ucp_worker_progress(w->worker))
		return 0;
	if (w->busy)
		return look_again(w, deadline);
	/*
	 * 睡之前必须 arm：“从现在起有事就让 efd 可读”。若在上一行与这一行之间
	 * 已经来了事件，arm 会返回 BUSY：不能睡，否则这个事件就再也叫不醒我们。
	 */
	status = ucp_worker_arm(w->worker);
	if (status == UCS_ERR_BUSY)
		return 0;
	if (status != UCS_OK)
		return ucx_failed(status, NULL, "ucp_worker_arm()");
	return wait_fd(w->efd, POLLIN, deadline);
}
// endregion progress

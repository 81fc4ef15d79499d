// SPDX-License-Identifier: MIT
/*
 * worker.c —— context 与 worker：UCX 里一切通信的地基
 *
 * context 是“这台机器上有哪些 transport、哪些网卡可用”；worker 是一组队列，所有
 * endpoint 的消息都进出于它。UCX 没有后台线程替你收发：只有调用
 * ucp_worker_progress() 时，数据才会前进，callback 才会被调用。socket 则相反：内核
 * 一直在收，recv() 只是去取。这是两者最根本的区别。
 */
#include "worker.h"

#include "base/call_failed.h"
#include "base/deadline.h"
#include "base/report.h"

#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#define POLLS_A_LOOK 256 /* 这么多次 progress，看一次钟和信号 */

/* ---- 出错时说什么 ------------------------------------------------------- */

#define STATUS(status) UCS_ERR_##status, "UCS_ERR_" #status

#define UCX_SAYS "UCX_LOG_LEVEL=warn shows what UCX itself has to say"

static const struct status {
	ucs_status_t status;
	const char *name;
	int err;
	const char *next; /* NULL: UCX_SAYS */
} statuses[] = {
	{ STATUS(NO_MEMORY), ENOMEM, NULL },
	{ STATUS(NO_DEVICE), ENODEV,
	  "ucx_info -d lists the transports and devices that are here; "
	  "choose among them with UCX_TLS and UCX_NET_DEVICES" },
	{ STATUS(BUSY), EBUSY, NULL },
	{ STATUS(INVALID_PARAM), EINVAL, NULL },
	{ STATUS(INVALID_ADDR), EADDRNOTAVAIL, NULL },
	{ STATUS(UNREACHABLE), EHOSTUNREACH,
	  "let both sides have the same UCX_TLS, and UCX_NET_DEVICES that "
	  "reach each other" },
	{ STATUS(REJECTED), ECONNREFUSED, "see the peer's own messages" },
	{ STATUS(NOT_CONNECTED), ENOTCONN, "see the peer's own messages" },
	{ STATUS(CONNECTION_RESET), ECONNRESET, "see the peer's own messages" },
	{ STATUS(ENDPOINT_TIMEOUT), ECONNRESET,
	  "is the peer still there, and the network? see its own messages" },
	{ STATUS(TIMED_OUT), ETIMEDOUT, NULL },
	{ STATUS(MESSAGE_TRUNCATED), EMSGSIZE, NULL },
	{ STATUS(CANCELED), ECANCELED, NULL },
	{ STATUS(EXCEEDS_LIMIT), EMFILE, NULL },
	{ STATUS(UNSUPPORTED), EOPNOTSUPP, NULL },
	{ STATUS(IO_ERROR), EIO, NULL },
	{ UCS_OK, "UCX status", EIO, NULL }, /* 其余的 */
};

static const struct status *row_of(ucs_status_t status)
{
	const struct status *row = statuses;

	while (row->status != UCS_OK && row->status != status)
		row++;
	return row;
}

int ucx_errno(ucs_status_t status)
{
	return status == UCS_OK ? 0 : -row_of(status)->err;
}

int ucx_failed(ucs_status_t status, const char *next, const char *fmt, ...)
{
	const struct status *row = row_of(status);
	char call[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	if (!next)
		next = row->next ? row->next : UCX_SAYS;
	report_error(next, "%s: %s (%d): %s", call, row->name, (int)status,
		     ucs_status_string(status));
	return ucx_errno(status);
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

	(void)file;
	(void)line;
	(void)function;
	(void)component;
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
 * 挂着。第 13 课讲怎样查出来的。
 *
 * Linux 6.5 起，rxe 对同一个 QP 不止一次地说 LAST_WQE_REACHED，UCX 的 assertion 便
 * 让整个进程 abort；在那以前，rxe 一次也不说。不听异步事件，就是后一种：离开的
 * client 的 QP 要等 worker 销毁。也在第 13 课。
 */
static bool have_rxe(void)
{
	glob_t found;

	if (glob("/sys/class/infiniband/*/parent", 0, NULL, &found))
		return false;
	globfree(&found);
	return true;
}

/*
 * ucp_config_modify 只管 UCP 这一层；UCT（各个 transport）的设置，UCX 1.13 只从
 * 环境变量里读。用户自己设了值（setenv 的第三个参数 0），就听用户的。
 */
static void set_transport_options(void)
{
	if (have_rxe()) {
		setenv("UCX_UD_VERBS_ETH_DGID_CHECK", "n", 0);
		setenv("UCX_IB_ASYNC_EVENTS", "n", 0);
	}
	/* 没有它，server 重启后一分钟内 bind 会因 TIME_WAIT 而失败。*/
	setenv("UCX_TCP_CM_REUSEADDR", "y", 0);
}

static ucs_status_t read_config(ucp_config_t **config)
{
	ucs_status_t status;

	set_transport_options();
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
	if (status != UCS_OK)
		ucp_config_release(*config);
	return status;
}

/* ---- 没有人要的消息 ----------------------------------------------------- */

void ucx_add_tags(struct ucx_worker *w, struct ucx_tags *tags)
{
	LIST_INSERT_HEAD(&w->tags, tags, next);
	tags->added = true;
}

void ucx_remove_tags(struct ucx_tags *tags)
{
	if (tags->added)
		LIST_REMOVE(tags, next);
	tags->added = false;
}

static bool is_wanted(const struct ucx_worker *w, ucp_tag_t tag)
{
	const struct ucx_tags *t;

	LIST_FOREACH(t, &w->tags, next)
		if (tag == t->msg_tag || tag == t->ctrl_tag)
			return true;
	return false;
}

/*
 * 消息到了而没有匹配的接收，UCX 就把它留在 unexpected queue 里，没有上限，也没有
 * 期限。对端断开之前发出的消息、或故意用没人要的 tag 发来的，会一直占着内存。用 0
 * 字节的 buffer 去收：UCX 说 truncated，同时把它丢掉。
 *
 * mask 为 0 匹配任何 tag，给出最老的一条。它若有主，就停下：主人很快会来收走。
 */
static void drop_strays(struct ucx_worker *w)
{
	const ucp_request_param_t param = { 0 };
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message;
	ucs_status_ptr_t request;
	char nothing;

	while (ucp_tag_probe_nb(w->worker, 0, 0, 0, &info) &&
	       !is_wanted(w, info.sender_tag)) {
		message = ucp_tag_probe_nb(w->worker, info.sender_tag,
					   UINT64_MAX, 1, &info);
		request = ucp_tag_msg_recv_nbx(w->worker, &nothing, 0, message,
					       &param);
		if (UCS_PTR_IS_PTR(request))
			ucp_request_free(request);
	}
}

/* ---- context 与 worker -------------------------------------------------- */

static const char *env_or(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value ? value : otherwise;
}

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

int ucx_open(struct ucx_worker *w, bool busy)
{
	const char *level = getenv("UCXPY_LOG_LEVEL");
	int rc;

	w->busy = busy;
	w->debug = level && !strcmp(level, "DEBUG");
	rc = open_context(w);
	if (!rc)
		rc = open_worker(w);
	w->wake = w->efd;
	if (rc)
		ucx_close(w);
	return rc;
}

/* 几个 worker 的 efd 合成一个：谁有事都能叫醒我们。*/
static int wake_for(struct ucx_worker *first, int efd)
{
	struct epoll_event event = { .events = EPOLLIN };
	int rc = 0;

	if (first->busy)
		return 0;
	if (first->wake == first->efd) {
		int all = epoll_create1(EPOLL_CLOEXEC);

		if (all < 0 ||
		    epoll_ctl(all, EPOLL_CTL_ADD, first->efd, &event))
			rc = -errno;
		if (rc && all >= 0)
			close(all);
		if (!rc)
			first->wake = all;
	}
	if (!rc && epoll_ctl(first->wake, EPOLL_CTL_ADD, efd, &event))
		rc = -errno;
	return rc ? call_failed(-rc, "epoll(UCX's event fd)") : 0;
}

int ucx_open_another(struct ucx_worker *w, struct ucx_worker *first)
{
	int rc;

	w->busy = first->busy;
	w->debug = first->debug;
	w->context = first->context;
	w->first = first;
	rc = open_worker(w);
	w->wake = w->efd;
	if (!rc)
		rc = wake_for(first, w->efd);
	if (rc) {
		w->first = NULL;
		w->context = NULL;
		ucx_close(w);
		return rc;
	}
	LIST_INSERT_HEAD(&first->others, w, next);
	return 0;
}

void ucx_close(struct ucx_worker *w)
{
	if (w->first) /* efd 一关，epoll 自己就忘了它 */
		LIST_REMOVE(w, next);
	else if (w->wake != w->efd)
		close(w->wake);
	if (w->worker) {
		drop_strays(w);
		ucp_worker_destroy(w->worker);
	}
	if (w->context && !w->first)
		ucp_cleanup(w->context);
	w->worker = NULL;
	w->context = NULL;
	w->first = NULL;
	w->wake = w->efd;
}

/* ---- progress ----------------------------------------------------------- */

static unsigned int progress_all(struct ucx_worker *w)
{
	unsigned int n = ucp_worker_progress(w->worker);
	struct ucx_worker *other;

	LIST_FOREACH(other, &w->others, next)
		n += ucp_worker_progress(other->worker);
	return n;
}

static void drop_all_strays(struct ucx_worker *w)
{
	struct ucx_worker *other;

	drop_strays(w);
	LIST_FOREACH(other, &w->others, next)
		drop_strays(other);
}

/* 1：arm 成了，从现在起有事 efd 就可读；0：还有事没处理完，不能睡。*/
static int arm(struct ucx_worker *w)
{
	ucs_status_t status = ucp_worker_arm(w->worker);

	if (status == UCS_OK || status == UCS_ERR_BUSY)
		return status == UCS_OK;
	return ucx_failed(status, NULL, "ucp_worker_arm()");
}

static int arm_all(struct ucx_worker *w)
{
	struct ucx_worker *other;
	int rc = arm(w);

	LIST_FOREACH(other, &w->others, next)
		if (rc > 0)
			rc = arm(other);
	return rc;
}

static int check_deadline(struct ucx_worker *w, int64_t deadline)
{
	if (stop_requested())
		return -EINTR;
	drop_all_strays(w);
	return deadline_passed(deadline) ? -ETIMEDOUT : 0;
}

static int wait_for_events(struct ucx_worker *w, int64_t deadline)
{
	int rc = wait_fd(w->wake, POLLIN, deadline);

	if (!rc || rc == -ETIMEDOUT || rc == -EINTR)
		return rc;
	return call_failed(-rc, "poll(UCX's event fd)");
}

/*
 * verbs 的 CQ 只为 arm 之后到的 completion 发事件：恰好在 arm 之前、上一次 progress
 * 之后到的，谁也不会来叫醒我们。所以先只睡 20 ms，再看一眼；以后每 100 ms 看一眼。
 * 丢一个事件，代价是 20 ms，而不是整个期限。
 *
 * 第 05 课的办法是 arm 之后立刻再 poll 一次；这里的 progress 可能是好几个系统调用，
 * 每条消息多一次就慢了。睡得更短也不行：1 ms 的定时器每次都要重设硬件时钟，量出来
 * 每条消息慢 15%。
 */
static int sleep_armed(struct ucx_worker *w, int64_t deadline)
{
	static const int naps_ms[] = { 20, 100 };
	int rc = -ETIMEDOUT;

	for (size_t i = 0; i < 2 && rc == -ETIMEDOUT; i++) {
		int64_t soon = deadline_in_ms(naps_ms[i]);

		if (soon >= deadline)
			return wait_for_events(w, deadline);
		rc = wait_for_events(w, soon);
		if (rc == -ETIMEDOUT && progress_all(w))
			return 0;
		drop_all_strays(w);
	}
	return rc == -ETIMEDOUT ? 0 : rc;
}

// region progress
int ucx_progress(struct ucx_worker *w, int64_t deadline)
{
	int rc = 0;

	/* 看钟比空转贵，不必每次都看；可是也不能总有事做就永远不看。*/
	if (++w->polls % POLLS_A_LOOK == 0)
		rc = check_deadline(w, deadline);
	if (rc)
		return rc;
	if (progress_all(w) || w->busy)
		return 0;
	/*
	 * 没有事做就睡，睡之前先 arm：“从现在起有事就让 efd 可读”。每次睡之前都要
	 * 重新 arm：两次之间新建的 endpoint 可能用上了还没 arm 过的网卡。
	 */
	rc = arm_all(w);
	return rc <= 0 ? rc : sleep_armed(w, deadline);
}
// endregion progress

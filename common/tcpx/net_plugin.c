// SPDX-License-Identifier: MIT
/*
 * net_plugin.c —— 装载一个 NCCL net 插件，取出它某一版的函数表
 *
 * NCCL 不认识网卡，只认识“net 插件”：一个 .so，导出 ncclNetPlugin_v5 … v8 这样的
 * 数据符号，每个符号是一张函数表。表里没有版本号、没有长度，成员的顺序就是接口：按
 * v8 的布局去读 v5 的表，取到的是别的函数。所以符号名里的版本，是唯一的依据。
 */
#include "net_plugin.h"

#include "base/report.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_PLUGIN "libnccl-net-lab.so"

static const char *nccl_result_name(int rc)
{
	static const char *const names[] = {
		"success",	  "unhandled CUDA error", "system error",
		"internal error", "invalid argument",	  "invalid usage",
		"remote error",
	};

	return rc >= 0 && rc <= NCCL_REMOTE_ERROR ? names[rc] : "unknown error";
}

void plugin_debug(const struct tcpx_net *net, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (!net->debug)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	report_remark("TCPX", "%s", text);
}

static bool debug_wanted(void)
{
	const char *value = getenv("UCCL_TCPX_DEBUG");

	return value && *value && *value != '0';
}

/* ---- 插件里出的事 --------------------------------------------------------- */

/*
 * 插件就在我们的进程里：它踩坏内存、abort()，倒下的是我们，屏幕上只有一个
 * "Segmentation fault"。所以进出插件都记一笔；真出了事，信号处理函数先说清是谁的哪个
 * 调用。那里只能用 async-signal-safe 的函数，所以不经过 report。
 */
static struct {
	const char *volatile call, *volatile plugin;
	const char *volatile message_of; /* 正在格式化哪个源文件写的日志 */
} inside;

static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		return; /* 没有别处可说了 */
}

static void on_crash(int signal)
{
	const char *name = sigabbrev_np(signal);

	if (inside.call) {
		say("error: SIG");
		say(name ? name : "?");
		say(" came in ");
		say(inside.call);
		say(" of plugin \"");
		say(inside.plugin);
		say("\"");
		if (inside.message_of) {
			say(", while its message from ");
			say(inside.message_of);
			say(" was formatted");
		}
		say("\n next: take another version of the plugin, or look "
		    "with gdb --args\n");
	}
	raise(signal); /* SA_RESETHAND：这一次，后果照旧 */
}

/* 已经有人接管了的（例如 sanitizer），比我们知道得更多，就让给它。*/
static void watch_for_crashes(void)
{
	static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL,
				       SIGABRT };
	const struct sigaction ours = { .sa_handler = on_crash,
					.sa_flags = SA_RESETHAND };
	struct sigaction theirs;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!sigaction(signals[i], NULL, &theirs) &&
		    theirs.sa_handler == SIG_DFL)
			sigaction(signals[i], &ours, NULL);
}

void plugin_enter(const struct tcpx_net *net, const char *call)
{
	inside.plugin = net->name ? net->name : net->path;
	inside.call = call;
}

int plugin_leave(int rc)
{
	inside.call = NULL;
	return rc;
}

static unsigned int messages; /* of the plugin's, shown */

/*
 * 插件不返回原因，只返回一个小整数；原因写在它的日志里。所以 WARN 总要让用户看见，
 * INFO 与 TRACE 则只在调试时。格式与参数都是插件给的，也会错（Mellanox 的有一处
 * 拿一个 char 当 %s 的参数），那就死在 vsnprintf 里。
 */
static void log_of_plugin(int log_level, unsigned long flags, const char *file,
			  int line, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	(void)flags;
	if (log_level > NCCL_LOG_WARN && !debug_wanted())
		return;
	inside.message_of = file ? file : "?";
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	inside.message_of = NULL;
	messages++;
	report_remark("ncclNet", "%s:%d %s", file ? file : "?", line, text);
}

int plugin_failed(const struct tcpx_net *net, int rc, const char *fmt, ...)
{
	char call[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	report_error(rc == NCCL_REMOTE_ERROR ? "see the peer's own messages"
		     : messages ? "see the plugin's own messages above; "
				  "UCCL_TCPX_DEBUG=1 shows all of them"
				: "the plugin has not said why; "
				  "UCCL_TCPX_DEBUG=1 lets it say more",
		     "%s of plugin \"%s\" (v%d) returned %d: %s", call,
		     net->name, net->api, rc, nccl_result_name(rc));
	return rc == NCCL_REMOTE_ERROR ? -EREMOTEIO : -EIO;
}

/* ---- load --------------------------------------------------------------- */

// region calls
/*
 * 各版本中，这些成员的类型完全相同，只是在表里的偏移不同——编译器替我们算偏移。
 * 类型不同的四个（getProperties、connect、accept、regMr）在用到的地方分版本调用。
 */
#define SAME_CALLS(t)                                       \
	((struct tcpx_calls){ .init = (t)->init,            \
			      .devices = (t)->devices,      \
			      .listen = (t)->listen,        \
			      .dereg_mr = (t)->deregMr,     \
			      .isend = (t)->isend,          \
			      .irecv = (t)->irecv,          \
			      .test = (t)->test,            \
			      .close_send = (t)->closeSend, \
			      .close_recv = (t)->closeRecv, \
			      .close_listen = (t)->closeListen })
// endregion calls

static void take_calls(struct tcpx_net *net)
{
	const ncclNet_v5_t *v5 = net->table;
	const ncclNet_v6_t *v6 = net->table;
	const ncclNet_v7_t *v7 = net->table;
	const ncclNet_v8_t *v8 = net->table;

	switch (net->api) {
	case 5:
		net->calls = SAME_CALLS(v5);
		break;
	case 6:
		net->calls = SAME_CALLS(v6);
		break;
	case 7:
		net->calls = SAME_CALLS(v7);
		net->calls.irecv_consumed = v7->irecvConsumed;
		break;
	default:
		net->calls = SAME_CALLS(v8);
		net->calls.irecv_consumed = v8->irecvConsumed;
	}
	/* 名字是各版本表里的第一个成员。*/
	net->name = v5->name ? v5->name : "(no name)";
}

/* 表里的空指针一旦被调用就是 SIGSEGV，所以先查一遍；init 在此之前单独查。*/
static const char *missing_call(const struct tcpx_net *net)
{
	const ncclNet_v5_t *v5 = net->table;
	const ncclNet_v6_t *v6 = net->table;
	const struct tcpx_calls *c = &net->calls;
	const struct {
		const char *name;
		bool there;
	} calls[] = {
		{ "devices", c->devices },
		/* 到 accept 为止，各版本的偏移都相同。*/
		{ "getProperties", v5->getProperties },
		{ "listen", c->listen },
		{ "connect", v5->connect },
		{ "accept", v5->accept },
		{ "regMr", net->api == 5 ? !!v5->regMr : !!v6->regMr },
		{ "deregMr", c->dereg_mr },
		{ "isend", c->isend },
		{ "irecv", c->irecv },
		{ "test", c->test },
		{ "closeSend", c->close_send },
		{ "closeRecv", c->close_recv },
		{ "closeListen", c->close_listen },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!calls[i].there)
			return calls[i].name;
	return NULL;
}

const char *plugin_beside_program(char *path, size_t size, const char *name)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	char *end;

	path[n > 0 ? n : 0] = '\0';
	end = strrchr(path, '/');
	end = end ? end + 1 : path;
	snprintf(end, size - (size_t)(end - path), "%s", name);
	return path;
}

static void choose_path(struct tcpx_net *net, const char *path)
{
	if (!path)
		path = getenv("UCCL_TCPX_PLUGIN_PATH");
	if (path && *path)
		snprintf(net->path, sizeof(net->path), "%s", path);
	else
		plugin_beside_program(net->path, sizeof(net->path), OWN_PLUGIN);
}

/*
 * 一个插件可以同时导出好几版的表。取我们认识的最新一版，或用户点名的那一版；
 * 但绝不混用：handle 的内部格式可能随版本而变（见 001 号报告）。
 */
static int choose_api(struct tcpx_net *net, int api)
{
	char exported[64] = "";
	size_t used = 0;

	for (int v = NCCL_NET_OLDEST; v <= NCCL_NET_NEWEST; v++) {
		char symbol[32];
		void *table;

		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
		table = dlsym(net->lib, symbol);
		plugin_debug(net, "dlsym(%s) = %p", symbol, table);
		if (!table)
			continue;
		used += (size_t)snprintf(exported + used,
					 sizeof(exported) - used, " v%d", v);
		if (api == v || api == TCPX_NEWEST) {
			net->table = table;
			net->api = v;
		}
	}
	if (net->table)
		return 0;
	if (!used)
		return fail(-EPROTONOSUPPORT,
			    "give the path of an NCCL net plugin, often named "
			    "libnccl-net*.so",
			    "%s is a library, but exports none of "
			    "ncclNetPlugin_v%d ... v%d",
			    net->path, NCCL_NET_OLDEST, NCCL_NET_NEWEST);
	return fail(-EPROTONOSUPPORT,
		    "choose one of those with --net-api, or leave it out",
		    "%s does not export ncclNetPlugin_v%d, but%s", net->path,
		    api, exported);
}

static int open_library(struct tcpx_net *net)
{
	/*
	 * 不含 '/' 的名字，dlopen 会去系统目录找；用户说的多半是当前目录下的文件，
	 * 但那也可能真是装在系统里的插件：两种都交给 dlopen(3) 的规则。
	 */
	plugin_enter(net, "a constructor");
	net->lib = dlopen(net->path, RTLD_NOW | RTLD_LOCAL);
	plugin_leave(0);
	if (net->lib)
		return 0;
	return fail(-ENOENT,
		    "set UCCL_TCPX_PLUGIN_PATH to a plugin's full path; make "
		    "builds one: build/" OWN_PLUGIN,
		    "dlopen() failed: %s", dlerror());
}

static int no_call(const struct tcpx_net *net, const char *call)
{
	return fail(-EPROTONOSUPPORT, "choose another version with --net-api",
		    "ncclNetPlugin_v%d of %s has no %s()", net->api, net->path,
		    call);
}

/*
 * init() 之前，只有 name 与 init 两项算数：Mellanox 的插件要到 init() 里才决定用哪一套
 * 实现，那时才把表的其余各项填上。所以先 init()，再取一遍表，然后才查缺了什么。
 */
static int initialize(struct tcpx_net *net)
{
	const char *missing;
	int rc;

	take_calls(net);
	if (!net->calls.init)
		return no_call(net, "init");
	rc = IN_PLUGIN(net, "init()", net->calls.init(log_of_plugin));
	plugin_debug(net, "net->init: rc=%d", rc);
	if (rc)
		return plugin_failed(net, rc, "init()");
	take_calls(net);
	missing = missing_call(net);
	return missing ? no_call(net, missing) : 0;
}

int tcpx_load_plugin(struct tcpx_net *net, const char *path, int api)
{
	int rc;

	*net = (struct tcpx_net){ .debug = debug_wanted() };
	choose_path(net, path);
	plugin_debug(net, "Loading plugin: %s", net->path);
	watch_for_crashes();
	rc = open_library(net);
	if (!rc)
		rc = choose_api(net, api);
	if (!rc)
		rc = initialize(net);
	if (rc)
		tcpx_unload_plugin(net);
	return rc;
}

void tcpx_unload_plugin(struct tcpx_net *net)
{
	net->name = NULL; /* 名字也在那个库里 */
	plugin_enter(net, "a destructor");
	if (net->lib)
		dlclose(net->lib);
	plugin_leave(0);
	*net = (struct tcpx_net){ 0 };
}

/* ---- devices ------------------------------------------------------------ */

int tcpx_get_device_count(struct tcpx_net *net)
{
	int n = 0;
	int rc = IN_PLUGIN(net, "devices()", net->calls.devices(&n));

	plugin_debug(net, "net->devices: rc=%d ndev=%d", rc, n);
	if (rc)
		return plugin_failed(net, rc, "devices()");
	if (n > 0)
		return n;
	return fail(-ENODEV,
		    "is a network interface up? plugins choose by "
		    "NCCL_SOCKET_IFNAME and the like",
		    "plugin \"%s\" found %d devices", net->name, n);
}

int tcpx_get_properties(struct tcpx_net *net, int dev,
			struct tcpx_properties *props)
{
	ncclNetProperties_v5_t v5 = { 0 };
	ncclNetProperties_v7_t v7 = { 0 };
	ncclNetProperties_v8_t v8 = { 0 };
	int rc;

	/* 结构体大小不同：拿 v5 的结构体去接 v8 的输出，会写穿栈。*/
#define GET(table_type, p, offload)                                         \
	do {                                                                \
		rc = IN_PLUGIN(net, "getProperties()",                      \
			       ((const table_type *)net->table)             \
				       ->getProperties(dev, &(p)));         \
		*props = (struct tcpx_properties){ (p).name, (p).speed,     \
						   (p).maxRecvs, offload }; \
	} while (0)
	if (net->api <= 6)
		GET(ncclNet_v5_t, v5, false);
	else if (net->api == 7)
		GET(ncclNet_v7_t, v7, v7.netDeviceType != NCCL_NET_DEVICE_HOST);
	else
		GET(ncclNet_v8_t, v8, v8.netDeviceType != NCCL_NET_DEVICE_HOST);
#undef GET
	plugin_debug(net, "net->getProperties: dev=%d rc=%d", dev, rc);
	if (rc)
		return plugin_failed(net, rc, "getProperties(dev %d)", dev);
	if (!props->name)
		props->name = "(no name)";
	return 0;
}

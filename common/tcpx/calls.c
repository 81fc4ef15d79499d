// SPDX-License-Identifier: MIT
/*
 * calls.c —— 第 6 阶段：不经过 NCCL，直接驱动一个 NCCL net 插件
 *
 * NCCL 不认识网卡，只认识“net 插件”：一个 .so，里面有一张函数表。GPUDirect-TCPX
 * 就是这样一个插件。它的接口与 verbs 很像——listen/connect/accept 像建 QP，regMr
 * 像 ibv_reg_mr，isend/irecv 像 ibv_post_send/ibv_post_recv，test 像
 * ibv_poll_cq——但多了一个东西：handle，128 个只有插件自己看得懂的字节。
 *
 * 接口有好几版（v5…v8），函数表的布局各不相同；契约则不在表里，只在文档和各插件的
 * 源码里，违反其中一条，总有某个真实的插件会崩溃或挂住。本文件把两者都收拢在一处：
 * 上层只看到一套调用，也没有办法违约。
 */
#include "calls.h"

#include "base/deadline.h"
#include "base/handshake.h"
#include "base/report.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tcpx_request {
	struct tcpx_comm *comm;
	void *request; /* the plugin's */
	int n;	       /* buffers */
	int sizes[NCCL_NET_PLUGIN_MAX_RECVS];
	bool tested;   /* test() said done */
	bool consumed; /* the slot may be used again */
};

/*
 * 一个 comm 的在途请求排成一个环：[first, first + count)。其中前 tested 个已完成
 * 而还没被取走；契约只允许 test 最老的那个未完成者，也就是第 tested 个。
 */
struct tcpx_comm {
	struct tcpx_net *net;
	void *comm; /* the plugin's */
	bool sends;
	bool device_offload;
	bool failed; /* the failure has been reported */
	struct tcpx_request ring[TCPX_MAX_RECVS];
	unsigned int first, count, tested;
	void *dev_handle; /* what the plugin made of the storage */
	unsigned char dev_storage[NCCL_NET_DEV_HANDLE_SIZE]
		__attribute__((aligned(16)));
};

static void debug_handle(const struct tcpx_net *net, const char *call,
			 const struct tcpx_handle *handle)
{
	if (!net->debug)
		return;
	for (size_t row = 0; row < sizeof(handle->bytes); row += 32) {
		char hex[2 * 32 + 1];

		for (size_t i = 0; i < 32; i++)
			sprintf(hex + 2 * i, "%02x", handle->bytes[row + i]);
		plugin_debug(net, "%s: handle[%3zu..] 0x%s", call, row, hex);
	}
}

/* ---- connections -------------------------------------------------------- */

int tcpx_listen(struct tcpx_net *net, int dev, struct tcpx_handle *handle,
		struct tcpx_listener *listener)
{
	struct tcpx_handle filled = { 0 };
	void *comm = NULL;
	int rc = IN_PLUGIN(net, "listen()",
			   net->calls.listen(dev, filled.bytes, &comm));

	plugin_debug(net, "tcpx_listen (v%d): rc=%d listen_comm=%p", net->api,
		     rc, comm);
	if (rc)
		return plugin_failed(net, rc, "listen(dev %d)", dev);
	/* “还没好，再来”只有 connect 与 accept 可以说；listen 要么成了，要么没成。*/
	if (!comm)
		return fail(
			-EPROTO, "take another version of the plugin",
			"listen(dev %d) of plugin \"%s\" (v%d) returned 0 "
			"and no listenComm: there is nothing to accept from",
			dev, net->name, net->api);
	debug_handle(net, "tcpx_listen", &filled);
	*handle = filled;
	*listener = (struct tcpx_listener){ comm, dev };
	return 0;
}

int tcpx_close_listen(struct tcpx_net *net, struct tcpx_listener *listener)
{
	int rc;

	if (!listener->comm)
		return 0;
	rc = IN_PLUGIN(net, "closeListen()",
		       net->calls.close_listen(listener->comm));
	plugin_debug(net, "tcpx_close_listen: rc=%d listen_comm=%p", rc,
		     listener->comm);
	listener->comm = NULL;
	return rc ? plugin_failed(net, rc, "closeListen()") : 0;
}

static struct tcpx_comm *new_comm(struct tcpx_net *net, bool sends, int dev)
{
	struct tcpx_properties props;
	struct tcpx_comm *comm;

	if (tcpx_get_properties(net, dev, &props))
		return NULL;
	/* aligned_alloc：dev_storage 要求 16 字节对齐。*/
	comm = aligned_alloc(16, (sizeof(*comm) + 15) & ~(size_t)15);
	if (!comm) {
		report_error(NULL, "no memory for a connection");
		return NULL;
	}
	memset(comm, 0, sizeof(*comm));
	comm->net = net;
	comm->sends = sends;
	comm->device_offload = props.device_offload;
	return comm;
}

/* 等待被打断：说清在等什么。对端的失败，sock_check_peer 已经报告过了。*/
static int give_up(int rc, const char *what, const char *next)
{
	if (rc == -EINTR)
		report_error(NULL, "%s: stopped by a signal", what);
	else if (rc == -ETIMEDOUT)
		report_error(next, "%s: nothing came before the deadline",
			     what);
	return rc;
}

/* 插件没有文件描述符可等，只能反复问；问的间隙看期限、看 Ctrl-C、看对端死活。*/
int tcpx_pause(struct poll_pause *pause, const struct tcpx_wait *wait,
	       const char *what, const char *next)
{
	int rc = pause_between_polls(pause, wait->deadline, wait->stall_ms);

	if (rc)
		return give_up(rc, what, next);
	if (pause->napped && wait->peer_sock >= 0)
		return sock_check_peer(wait->peer_sock,
				       (enum sync_step)wait->peer_step);
	return 0;
}

/* 从 @from（handle 或 listener）那里要一条连接，问一次。*/
static int ask_once(struct tcpx_comm *comm, int dev, void *from)
{
	ncclNetDeviceHandle_t *dev_handle = (void *)comm->dev_storage;
	const ncclNet_v5_t *v5 = comm->net->table;
	const ncclNet_v7_t *v7 = comm->net->table;
	int rc;

	plugin_enter(comm->net, comm->sends ? "connect()" : "accept()");
	if (comm->net->api <= 6)
		return plugin_leave(
			comm->sends ? v5->connect(dev, from, &comm->comm)
				    : v5->accept(from, &comm->comm));
	rc = comm->sends ? v7->connect(dev, from, &comm->comm, &dev_handle)
			 : v7->accept(from, &comm->comm, &dev_handle);
	comm->dev_handle = dev_handle;
	return plugin_leave(rc);
}

// region connect
static int ask_until_there(struct tcpx_comm *comm, int dev, void *from,
			   const struct tcpx_wait *wait, const char *next)
{
	const char *who = comm->sends ? "tcpx_connect_v5" : "tcpx_accept_v5";
	const char *side = comm->sends ? "send" : "recv";
	struct poll_pause pause = { 0 };
	unsigned long polls = 1;
	int rc, gave_up = 0;

	/*
	 * rc 为 0 而 comm 为 NULL，意思是“还没好，再来”，不是失败。上限由期限来定。
	 * 一旦成功就不能再调用：那个 buffer 里的状态已被插件释放。
	 */
	while (!(rc = ask_once(comm, dev, from)) && !comm->comm) {
		if (polls++ == 1)
			plugin_debug(comm->net,
				     "%s: rc=0 %s_comm=(nil): not ready, call "
				     "again",
				     who, side);
		gave_up = tcpx_pause(&pause, wait,
				     comm->sends ? "connect()" : "accept()",
				     next);
		if (gave_up)
			break;
	}
	plugin_debug(comm->net,
		     "%s (v%d): rc=%d %s_comm=%p %s_dev_handle=%p calls=%lu",
		     who, comm->net->api, rc, side, comm->comm, side,
		     comm->dev_handle, polls);
	if (gave_up || !rc)
		return gave_up;
	return comm->sends
		       ? plugin_failed(comm->net, rc, "connect(dev %d)", dev)
		       : plugin_failed(comm->net, rc, "accept()");
}

int tcpx_connect_v5(struct tcpx_net *net, int dev,
		    const struct tcpx_handle *handle, struct tcpx_wait wait,
		    struct tcpx_comm **send_comm)
{
	/*
	 * 契约：每次尝试从一份原样的 handle 开始；一次尝试之内的每次轮询都用同一个
	 * buffer——插件会把“连到哪一步了”记在里面。所以这里复制一份，一直用到底。
	 */
	struct tcpx_handle ours = *handle;
	struct tcpx_comm *comm = new_comm(net, true, dev);
	int rc;

	if (!comm)
		return -EIO;
	debug_handle(net, "tcpx_connect_v5", handle);
	rc = ask_until_there(comm, dev, ours.bytes, &wait,
			     "does the handle come from this listener, and "
			     "from the same API version?");
	if (!rc)
		*send_comm = comm;
	else
		free(comm);
	return rc;
}
// endregion connect

int tcpx_accept_v5(struct tcpx_net *net, struct tcpx_listener *listener,
		   struct tcpx_wait wait, struct tcpx_comm **recv_comm)
{
	struct tcpx_comm *comm = new_comm(net, false, listener->dev);
	int rc;

	if (!comm)
		return -EIO;
	rc = ask_until_there(comm, listener->dev, listener->comm, &wait,
			     "did the peer connect with this listener's "
			     "handle, unchanged, and with the same API "
			     "version?");
	if (!rc)
		*recv_comm = comm;
	else
		free(comm);
	return rc;
}

static int close_comm(struct tcpx_comm **comm, int (*close_it)(void *),
		      const char *call)
{
	struct tcpx_net *net;
	int rc;

	if (!*comm)
		return 0;
	net = (*comm)->net;
	rc = IN_PLUGIN(net, call, close_it((*comm)->comm));
	plugin_debug(net, "tcpx_close_%s: rc=%d comm=%p",
		     (*comm)->sends ? "send" : "recv", rc, (*comm)->comm);
	free(*comm);
	*comm = NULL;
	return rc ? plugin_failed(net, rc, "%s", call) : 0;
}

int tcpx_close_send(struct tcpx_comm **comm)
{
	return close_comm(comm, *comm ? (*comm)->net->calls.close_send : NULL,
			  "closeSend()");
}

int tcpx_close_recv(struct tcpx_comm **comm)
{
	return close_comm(comm, *comm ? (*comm)->net->calls.close_recv : NULL,
			  "closeRecv()");
}

/* ---- memory ------------------------------------------------------------- */

int tcpx_reg_mr(struct tcpx_comm *comm, void *data, size_t size, int type,
		void **mhandle)
{
	const struct tcpx_net *net = comm->net;
	void *made = NULL;
	int rc;

	/* v8 之前 size 是 int：悄悄截断的话，注册的就只是 buffer 的一部分。*/
	if (net->api < 8 && size > INT_MAX)
		return fail(-E2BIG, "use --net-api v8, or less memory",
			    "regMr of v%d takes at most %d bytes, not %zu",
			    net->api, INT_MAX, size);
	plugin_enter(net, "regMr()");
	if (net->api == 5)
		rc = ((const ncclNet_v5_t *)net->table)
			     ->regMr(comm->comm, data, (int)size, type, &made);
	else if (net->api < 8)
		rc = ((const ncclNet_v6_t *)net->table)
			     ->regMr(comm->comm, data, (int)size, type, &made);
	else
		rc = ((const ncclNet_v8_t *)net->table)
			     ->regMr(comm->comm, data, size, type, &made);
	plugin_leave(rc);
	plugin_debug(net,
		     "tcpx_reg_mr: data=%p size=%zu type=%d rc=%d mhandle=%p",
		     data, size, type, rc, made);
	/* 只看 rc：有的插件不需要 mhandle，成功时它就是 NULL。*/
	if (rc)
		return plugin_failed(net, rc, "regMr(%zu bytes, type %d)", size,
				     type);
	*mhandle = made;
	return 0;
}

int tcpx_dereg_mr(struct tcpx_comm *comm, void *mhandle)
{
	int rc = IN_PLUGIN(comm->net, "deregMr()",
			   comm->net->calls.dereg_mr(comm->comm, mhandle));

	plugin_debug(comm->net, "tcpx_dereg_mr: rc=%d mhandle=%p", rc, mhandle);
	return rc ? plugin_failed(comm->net, rc, "deregMr()") : 0;
}

/* ---- transfer ----------------------------------------------------------- */

static struct tcpx_request *in_ring(struct tcpx_comm *comm, unsigned int i)
{
	return &comm->ring[(comm->first + i) % TCPX_MAX_RECVS];
}

static bool ring_is_full(const struct tcpx_comm *comm)
{
	return comm->count >= (comm->sends ? TCPX_MAX_SENDS : TCPX_MAX_RECVS);
}

/* 请求失败之后，这个 comm 就废了：只报告一次，后来的调用直接返回。*/
static int comm_failed(struct tcpx_comm *comm, int rc, const char *call)
{
	comm->failed = true;
	return plugin_failed(comm->net, rc, "%s", call);
}

static struct tcpx_request *append(struct tcpx_comm *comm, void *request, int n)
{
	struct tcpx_request *r = in_ring(comm, comm->count++);

	*r = (struct tcpx_request){ .comm = comm, .request = request, .n = n };
	for (int i = 0; i < n; i++)
		r->sizes[i] = -1; /* 有的插件从不写 size */
	return r;
}

int tcpx_isend(struct tcpx_comm *comm, void *data, int size, int tag,
	       void *mhandle, struct tcpx_request **request)
{
	void *made = NULL;
	int rc;

	*request = NULL;
	if (comm->failed)
		return -EIO;
	if (ring_is_full(comm))
		return 0;
	rc = IN_PLUGIN(comm->net, "isend()",
		       comm->net->calls.isend(comm->comm, data, size, tag,
					      mhandle, &made));
	if (rc || made)
		plugin_debug(comm->net,
			     "tcpx_isend: data=%p size=%d tag=%d rc=%d "
			     "request=%p",
			     data, size, tag, rc, made);
	if (rc)
		return comm_failed(comm, rc, "isend()");
	if (!made) /* 没有空位：不是错误，稍后再来 */
		return 0;
	*request = append(comm, made, 1);
	(*request)->sizes[0] = size;
	return 0;
}

int tcpx_irecv(struct tcpx_comm *comm, int n, void **data, int *sizes,
	       int *tags, void **mhandles, struct tcpx_request **request)
{
	void *made = NULL;
	int rc;

	*request = NULL;
	if (comm->failed)
		return -EIO;
	if (n < 1 || n > NCCL_NET_PLUGIN_MAX_RECVS)
		return fail(-EINVAL, NULL,
			    "irecv() takes 1 ... %d buffers, not %d",
			    NCCL_NET_PLUGIN_MAX_RECVS, n);
	if (ring_is_full(comm))
		return 0;
	rc = IN_PLUGIN(comm->net, "irecv()",
		       comm->net->calls.irecv(comm->comm, n, data, sizes, tags,
					      mhandles, &made));
	if (rc || made)
		plugin_debug(comm->net,
			     "tcpx_irecv: n=%d data=%p size=%d rc=%d "
			     "request=%p",
			     n, data[0], sizes[0], rc, made);
	if (rc)
		return comm_failed(comm, rc, "irecv()");
	if (made)
		*request = append(comm, made, n);
	return 0;
}

// region test
/*
 * 契约：只能 test 最老的那个未完成请求，完成后也不能再 test 它。上层要问的可能是
 * 后面的某个，所以从最老的开始，一个一个推进到它为止——不再往后：多一次 test 就是
 * 多一次系统调用，正落在延迟的关键路径上。
 */
static int advance_to(struct tcpx_request *wanted)
{
	struct tcpx_comm *comm = wanted->comm;

	while (!wanted->tested) {
		struct tcpx_request *oldest = in_ring(comm, comm->tested);
		int sizes[NCCL_NET_PLUGIN_MAX_RECVS];
		int done = 0;
		int rc;

		memset(sizes, 0xff, sizeof(sizes)); /* 预置 -1 */
		rc = IN_PLUGIN(comm->net, "test()",
			       comm->net->calls.test(oldest->request, &done,
						     sizes));
		if (rc)
			return comm_failed(comm, rc, "test()");
		if (!done)
			return 0;
		plugin_debug(comm->net,
			     "tcpx_test: request=%p rc=0 done=1 size=%d",
			     oldest->request, sizes[0]);
		/* 发送方的 size 不可信（有的插件给 0）：我们自己知道发了多少。*/
		if (!comm->sends)
			memcpy(oldest->sizes, sizes, sizeof(sizes));
		oldest->tested = true;
		comm->tested++;
	}
	return 0;
}
// endregion test

/* 环的开头若已用完，就让出位置。*/
static void drop_consumed(struct tcpx_comm *comm)
{
	while (comm->count && in_ring(comm, 0)->consumed) {
		comm->first = (comm->first + 1) % TCPX_MAX_RECVS;
		comm->count--;
		comm->tested--;
	}
}

int tcpx_test(struct tcpx_request *request, bool *done, int *sizes)
{
	struct tcpx_comm *comm = request->comm;
	int rc = 0;

	if (comm->failed)
		return -EIO;
	if (!request->tested)
		rc = advance_to(request);
	if (rc)
		return rc;
	*done = request->tested;
	if (!request->tested)
		return 0;
	if (sizes)
		memcpy(sizes, request->sizes,
		       (size_t)request->n * sizeof(*sizes));
	if (comm->sends) {
		request->consumed = true;
		drop_consumed(comm);
	}
	return 0;
}

int tcpx_irecv_consumed(struct tcpx_comm *comm, int n,
			struct tcpx_request *request)
{
	int rc = 0;

	/*
	 * 只有会在 GPU 上“拆包”的设备才需要：数据先落在插件的中转内存里，用完要告诉
	 * 插件可以回收。主机内存没有这回事，有的插件在此时调用它反而会报错。
	 */
	if (comm->device_offload && comm->net->calls.irecv_consumed) {
		rc = IN_PLUGIN(comm->net, "irecvConsumed()",
			       comm->net->calls.irecv_consumed(
				       comm->comm, n, request->request));
		plugin_debug(comm->net, "tcpx_irecv_consumed: request=%p rc=%d",
			     request->request, rc);
	}
	request->consumed = true;
	drop_consumed(comm);
	return rc ? comm_failed(comm, rc, "irecvConsumed()") : 0;
}

// SPDX-License-Identifier: MIT
/*
 * 第 6 课：不经过 NCCL，亲手调用一个 NCCL net 插件
 *
 * 两端放在同一个进程里，直接从插件的函数表里调用，一次一步，把每一步的 rc 与指针都打印
 * 出来：哪一次是“还没好，再来”，哪一次才是真的。跨进程的完整版本——handle 走 TCP、
 * 期限、应用层确认——是 build/test_connection，也就是 common/tcpx/session.c。
 */
#include "../lesson.h"
#include "base/deadline.h"
#include "base/report.h"
#include "tcpx/session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS 5000
#define LESSON_API 8

/* 两端的一切。comm、request、mhandle 都是插件的，我们只转交指针。*/
struct both_ends {
	struct tcpx_net plugin;
	const ncclNet_v8_t *net; /* its table */
	struct tcpx_handle handle;
	void *listen_comm, *recv_comm, *send_comm;
	void *send_mr, *recv_mr;
	bool send_registered, recv_registered; /* mhandle 可以是 NULL */
	char to_send[TCPX_TEXT_SPACE];
	char received[TCPX_TEXT_SPACE / 2];
};

/* 000 号文档里的结构：只有教学插件自己知道 handle 里面是不是它。*/
struct tcpxHandle {
	uint32_t ip_addr_u32;
	uint16_t listen_port;
	int remote_dev;
	int remote_gpuidx;
};

/* 插件说的 rc 到这里为止：往上只传 -EIO。*/
static int check(const struct both_ends *b, int rc, const char *call)
{
	return rc ? plugin_failed(&b->plugin, rc, "%s", call) : 0;
}

static void show_handle(const struct tcpx_handle *handle)
{
	for (size_t row = 0; row < sizeof(handle->bytes); row += 16) {
		char hex[2 * 16 + 1];

		for (size_t i = 0; i < 16; i++)
			sprintf(hex + 2 * i, "%02x", handle->bytes[row + i]);
		if (strspn(hex, "0") < strlen(hex))
			report_fact("bytes %3zu to %3zu: 0x%s", row, row + 15,
				    hex);
	}
}

static int load_and_listen(struct both_ends *b)
{
	ncclNetProperties_v8_t props;
	int rc;

	report_step("load the plugin");
	rc = tcpx_load_plugin(&b->plugin, NULL, LESSON_API);
	if (rc)
		return rc;
	b->net = b->plugin.table;
	rc = check(b, b->net->getProperties(0, &props), "getProperties");
	if (rc)
		return rc;
	report_fact("\"%s\", API v%d; device 0 is %s, takes %s", b->net->name,
		    b->plugin.api, props.name,
		    props.ptrSupport & NCCL_PTR_CUDA ? "host and GPU memory"
						     : "host memory");
	report_step("listen: the plugin fills a handle of %d bytes",
		    NCCL_NET_HANDLE_MAXSIZE);
	rc = check(b, b->net->listen(0, b->handle.bytes, &b->listen_comm),
		   "listen");
	if (!rc)
		show_handle(&b->handle);
	return rc;
}

static int accept_too_early(struct both_ends *b)
{
	unsigned char storage[NCCL_NET_DEV_HANDLE_SIZE]
		__attribute__((aligned(16))) = { 0 };
	ncclNetDeviceHandle_t *dev_handle = (void *)storage;
	int rc;

	report_step("accept, before anybody has connected");
	rc = b->net->accept(b->listen_comm, &b->recv_comm, &dev_handle);
	report_fact("accept: rc=%d recv_comm=%s", rc,
		    b->recv_comm ? "a comm" : "(nil)");
	return check(b, rc, "accept");
}

// region connect-by-hand
static int connect_by_hand(struct both_ends *b)
{
	/* v7 起，connect 与 accept 要求调用者备好放 device handle 的地方。*/
	unsigned char storage[2][NCCL_NET_DEV_HANDLE_SIZE]
		__attribute__((aligned(16))) = { 0 };
	ncclNetDeviceHandle_t *send_dev = (void *)storage[0];
	ncclNetDeviceHandle_t *recv_dev = (void *)storage[1];
	struct tcpx_handle copy = b->handle; /* 就像刚从对端收到 */
	int64_t deadline = deadline_in_ms(TIMEOUT_MS);
	int rc = 0;

	report_step("connect and accept, called again until both have a comm");
	while (!rc && !(b->send_comm && b->recv_comm)) {
		if (!b->send_comm)
			rc = b->net->connect(0, copy.bytes, &b->send_comm,
					     &send_dev);
		if (!rc && !b->recv_comm)
			rc = b->net->accept(b->listen_comm, &b->recv_comm,
					    &recv_dev);
		if (!rc && deadline_passed(deadline))
			return fail(-ETIMEDOUT, NULL,
				    "no connection within %d ms", TIMEOUT_MS);
	}
	if (!rc)
		report_fact("connect: rc=0 send_comm=a comm; accept: rc=0 "
			    "recv_comm=a comm");
	return check(b, rc, b->send_comm ? "accept" : "connect");
}
// endregion connect-by-hand

static int register_memory(struct both_ends *b, int type)
{
	int rc;

	report_step("register both buffers");
	rc = b->net->regMr(b->send_comm, b->to_send, sizeof(b->to_send), type,
			   &b->send_mr);
	b->send_registered = !rc;
	if (!rc)
		rc = b->net->regMr(b->recv_comm, b->received,
				   sizeof(b->received), type, &b->recv_mr);
	b->recv_registered = !rc;
	report_fact("regMr, type %d: rc=%d", type, rc);
	return check(b, rc, "regMr");
}

static const char *request_text(const void *request)
{
	return request ? "a request" : "(nil)";
}

static int begin(struct both_ends *b, int size, void **send_request,
		 void **recv_request)
{
	int sizes[1] = { sizeof(b->received) }, tags[1] = { 7 };
	void *data[1] = { b->received };
	int64_t deadline = deadline_in_ms(TIMEOUT_MS);
	int rc;

	memcpy(b->to_send, TCPX_TEXT, sizeof(TCPX_TEXT));
	report_step("isend, before the peer has posted a receive");
	rc = b->net->isend(b->send_comm, b->to_send, size, tags[0], b->send_mr,
			   send_request);
	report_fact("isend: rc=%d request=%s", rc, request_text(*send_request));
	if (rc)
		return check(b, rc, "isend");

	report_step("irecv of %d bytes, then isend of %d again", sizes[0],
		    size);
	rc = b->net->irecv(b->recv_comm, 1, data, sizes, tags, &b->recv_mr,
			   recv_request);
	report_fact("irecv: rc=%d request=%s", rc, request_text(*recv_request));
	/* “对端已备好”这条消息也要在网上走一趟，所以同样可能要多叫几次。*/
	while (!rc && !*send_request && !deadline_passed(deadline))
		rc = b->net->isend(b->send_comm, b->to_send, size, tags[0],
				   b->send_mr, send_request);
	report_fact("isend: rc=%d request=%s", rc, request_text(*send_request));
	if (!rc && !(*send_request && *recv_request))
		return fail(-ETIMEDOUT, NULL, "no request within %d ms",
			    TIMEOUT_MS);
	return check(b, rc, "isend");
}

static int test_both(struct both_ends *b, void *send_request,
		     void *recv_request)
{
	int sent = 0, received = 0;
	int sent_size = -1, received_size = -1; /* 插件可能不写 */
	int64_t deadline = deadline_in_ms(TIMEOUT_MS);
	char text[64];
	int rc = 0;

	report_step("test, until both requests are done");
	while (!rc && !(sent && received) && !deadline_passed(deadline)) {
		if (!sent)
			rc = b->net->test(send_request, &sent, &sent_size);
		if (!rc && !received)
			rc = b->net->test(recv_request, &received,
					  &received_size);
	}
	if (rc)
		return check(b, rc, "test");
	if (!sent || !received)
		return fail(-ETIMEDOUT, NULL, "no message within %d ms",
			    TIMEOUT_MS);
	/* 没写 size 的插件，就只能打印到 NUL 为止。*/
	report_fact("the receiver's size is %d: \"%s\"", received_size,
		    printable_text(text, sizeof(text), b->received,
				   received_size < 0 ? sizeof(b->received)
						     : (size_t)received_size));
	return 0;
}

static int close_both(struct both_ends *b)
{
	int rc = 0;

	if (b->send_registered)
		rc |= b->net->deregMr(b->send_comm, b->send_mr);
	if (b->recv_registered)
		rc |= b->net->deregMr(b->recv_comm, b->recv_mr);
	if (b->send_comm)
		rc |= b->net->closeSend(b->send_comm);
	if (b->recv_comm)
		rc |= b->net->closeRecv(b->recv_comm);
	if (b->listen_comm)
		rc |= b->net->closeListen(b->listen_comm);
	tcpx_unload_plugin(&b->plugin);
	return rc ? -EIO : 0;
}

static int walk(struct both_ends *b, int mem_type, int size)
{
	void *send_request = NULL, *recv_request = NULL;
	int rc = load_and_listen(b);

	if (!rc)
		rc = accept_too_early(b);
	if (!rc)
		rc = connect_by_hand(b);
	if (!rc)
		rc = register_memory(b, mem_type);
	if (!rc)
		rc = begin(b, size, &send_request, &recv_request);
	return rc ? rc : test_both(b, send_request, recv_request);
}

/* ---- --break --------------------------------------------------------------- */

static int one_accept(void *ends)
{
	int rc = load_and_listen(ends);

	if (!rc)
		rc = accept_too_early(ends);
	if (rc)
		return rc;
	/* 001 号报告里的程序就停在这里：把“还没好”当成了“失败”。*/
	return fail(-EIO,
		    "rc decides: 0 with a NULL comm means call again, until a "
		    "deadline of your own",
		    "recv_comm is null");
}

static int mem_type(void *ends)
{
	return walk(ends, 0, sizeof(TCPX_TEXT));
}

static int too_big(void *ends)
{
	return walk(ends, NCCL_PTR_HOST, TCPX_TEXT_SPACE);
}

/* 000 号文档里的 client 就这么读，打印出“Server info”。*/
static int parse_handle(void *ends)
{
	const struct both_ends *b = ends;
	struct tcpxHandle parsed;
	struct in_addr addr;
	int rc = load_and_listen(ends);

	if (rc)
		return rc;
	report_step("break it: parse the handle as struct tcpxHandle");
	memcpy(&parsed, b->handle.bytes, sizeof(parsed));
	addr.s_addr = parsed.ip_addr_u32;
	report_fact("Server info - IP: %s, Port: %u, Dev: %d", inet_ntoa(addr),
		    ntohs(parsed.listen_port), parsed.remote_dev);
	return fail(-EINVAL, "pass the 128 bytes on as they are",
		    "that is nobody's address: only the plugin knows how it "
		    "laid out its handle");
}

static void copy_out(FILE *from)
{
	char line[512];

	rewind(from);
	while (fgets(line, sizeof(line), from))
		report_line("%.*s", (int)strcspn(line, "\n"), line);
	fclose(from);
}

/* 两个进程、两个角色，用的是 test_connection 的全部步骤，只是版本混着用。*/
static int mix_api(void *ends)
{
	struct tcpx_test test = {
		.port = TCPX_DEFAULT_PORT,
		.api = 5,
		.listen_api = 7,
		.mem_type = NCCL_PTR_HOST,
		.plan = { .size = sizeof(TCPX_TEXT), .iters = 1, .text = true },
	};
	FILE *says = tmpfile(); /* client 的话先攒着，免得两边的行互相穿插 */
	struct tcpx_outcome out;
	int status = 0;
	pid_t child;
	int rc;

	(void)ends;
	fflush(NULL);
	if (!says || (child = fork()) < 0)
		return fail(-EIO, NULL, "cannot start the client: %s",
			    strerror(errno));
	if (child == 0) {
		dup2(fileno(says), STDOUT_FILENO);
		dup2(fileno(says), STDERR_FILENO);
		test.server = "127.0.0.1";
		_exit(tcpx_run_test(&test, &out) ? 1 : 0);
	}
	rc = tcpx_run_test(&test, &out);
	waitpid(child, &status, 0);
	report_line("---- the client's side, exit code %d ----",
		    WEXITSTATUS(status));
	copy_out(says);
	return rc ? rc : -status;
}

static const struct lesson_break breaks[] = {
	{ "one-accept", "call accept once and take NULL for a failure",
	  one_accept },
	{ "mem-type", "register memory with type 0, not NCCL_PTR_HOST",
	  mem_type },
	{ "parse-handle", "read the handle as if its layout were known",
	  parse_handle },
	{ "too-big", "send more than the peer's receive buffer holds",
	  too_big },
	{ "mix-api", "listen through v7, connect and accept through v5",
	  mix_api },
	{ 0 },
};

int main(int argc, char *argv[])
{
	struct both_ends b = { 0 };
	struct lesson lesson;
	int rc = lesson_parse_break(&lesson, breaks, argc, argv);

	if (rc >= 0)
		return rc;
	catch_stop_signals();
	rc = lesson.broken ? lesson.broken->plant(&b)
			   : walk(&b, NCCL_PTR_HOST, (int)sizeof(TCPX_TEXT));
	rc |= close_both(&b);
	return rc ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * unit_tcpx_calls.c —— calls.h 的几处边界，test_connection 自己走不到：一个 irecv 的
 * buffer 个数，v8 之前 regMr 的 size；反复问的时候被叫停
 *
 *	unit_tcpx_calls PLUGIN.so     自己与自己连
 */
#include "../unit.h"
#include "tcpx/calls.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>

#define WAIT_MS 20000
#define MOST	NCCL_NET_PLUGIN_MAX_RECVS

static struct tcpx_wait patience(void)
{
	return (struct tcpx_wait){ .deadline = deadline_in_ms(WAIT_MS),
				   .peer_sock = -1 };
}

/* 一个 irecv，八条消息：都到了才算完成。*/
static void check_receives(struct tcpx_comm *out, struct tcpx_comm *in)
{
	struct tcpx_request *receive, *sent;
	int sizes[MOST + 1], tags[MOST + 1];
	void *data[MOST + 1], *mrs[MOST + 1] = { NULL };
	char bytes[MOST + 1] = { 0 };
	struct tcpx_wait wait = patience();
	bool done;

	for (int i = 0; i <= MOST; i++) {
		data[i] = &bytes[i];
		sizes[i] = 1;
		tags[i] = i;
	}
	for (int n = 0; n <= MOST + 1; n += MOST + 1)
		CHECK(tcpx_irecv(in, n, data, sizes, tags, mrs, &receive) ==
				      -EINVAL &&
			      !receive,
		      "irecv of %d buffers", n);
	CHECK(!tcpx_irecv(in, MOST, data, sizes, tags, mrs, &receive) &&
		      receive,
	      "irecv of %d buffers", MOST);
	for (int i = 0; receive && i < MOST; i++) {
		CHECK(!tcpx_test(receive, &done, sizes) && !done,
		      "%d messages came", i);
		do {
			if (tcpx_isend(out, "x", 1, i, NULL, &sent))
				break;
		} while (!sent && !deadline_passed(wait.deadline));
		CHECK(sent && !tcpx_test(sent, &done, NULL) && done,
		      "message %d", i);
	}
	for (done = false; receive && !done;)
		if (tcpx_test(receive, &done, sizes) ||
		    deadline_passed(wait.deadline))
			break;
	CHECK(done && sizes[0] == 1 && sizes[MOST - 1] == 1 &&
		      bytes[0] == 'x' && bytes[MOST - 1] == 'x' && !bytes[MOST],
	      "all messages came");
}

/* 这个插件不碰内存，所以多大都“注册”得了。*/
static void check_registrations(struct tcpx_comm *comm, int api)
{
	static char byte;
	const size_t sizes[] = { INT_MAX, (size_t)INT_MAX + 1 };
	void *mr;

	for (int i = 0; i < 2; i++) {
		int rc = tcpx_reg_mr(comm, &byte, sizes[i], NCCL_PTR_HOST, &mr);

		CHECK(rc == (i && api < 8 ? -E2BIG : 0),
		      "v%d: regMr of %zu bytes gives %d", api, sizes[i], rc);
		CHECK(rc || !tcpx_dereg_mr(comm, mr), "deregMr");
	}
}

static void check_version(const char *path, int api)
{
	struct tcpx_comm *out = NULL, *in = NULL;
	struct tcpx_listener listener;
	struct tcpx_handle handle;
	struct tcpx_net net;

	if (tcpx_load_plugin(&net, path, api) ||
	    tcpx_listen(&net, 0, &handle, &listener) ||
	    tcpx_connect_v5(&net, 0, &handle, patience(), &out) ||
	    tcpx_accept_v5(&net, &listener, patience(), &in)) {
		CHECK(false, "v%d: a connection", api);
		return;
	}
	check_registrations(out, api);
	check_receives(out, in);
	tcpx_close_send(&out);
	tcpx_close_recv(&in);
	tcpx_close_listen(&net, &listener);
	tcpx_unload_plugin(&net);
}

/* 头几次只是空转，也要看：被叫停的人不该再等到期限。*/
static void check_stop(void)
{
	struct poll_pause pause = { 0 };

	catch_stop_signals();
	CHECK(!pause_between_polls(&pause, INT64_MAX, 0), "nobody stops it");
	raise(SIGINT);
	CHECK(pause_between_polls(&pause, INT64_MAX, 0) == -EINTR,
	      "stopped while it polls");
}

int main(int argc, char *argv[])
{
	for (int api = 5; argc == 2 && api <= 8; api++)
		check_version(argv[1], api);
	check_stop();
	return unit_result("tcpx_calls");
}

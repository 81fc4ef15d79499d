// SPDX-License-Identifier: MIT
/*
 * plugin_calls.c —— 两个进程，一个不守规矩的用户：一口气提交许多，先问最后一个
 *
 *	plugin_calls PLUGIN.so
 *
 * 守契约的是 calls.c，不是它的用户。打印收到几个 request、后面的有没有按次序完成，
 * 失败之后再用的返回值；插件这边的对错由 net_shim.so 判断。
 */
#include "tcpx/calls.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIES	20
#define SIZE	64
#define WAIT_MS 4000

static char memory[TRIES][SIZE];

static struct tcpx_wait patience(void)
{
	return (struct tcpx_wait){ .deadline = deadline_in_ms(WAIT_MS),
				   .peer_sock = -1 };
}

/* 提交到没有空位为止；返回有几个。*/
static int begin(struct tcpx_comm *comm, bool sends, void *mr,
		 struct tcpx_request **requests)
{
	const int64_t deadline = deadline_in_ms(WAIT_MS / 2);
	const int most = sends ? TCPX_MAX_SENDS : TCPX_MAX_RECVS;
	int n = 0, rc = 0;

	/* 对端的 receive 要走一趟网，所以没到上限时多试一会儿。*/
	for (int extra = 3; !rc && n < TRIES && extra;) {
		void *data = memory[n];
		int size = SIZE, tag = 7;

		rc = sends ? tcpx_isend(comm, data, size, tag, mr, &requests[n])
			   : tcpx_irecv(comm, 1, &data, &size, &tag, &mr,
					&requests[n]);
		if (!rc && requests[n])
			n++;
		else if (n >= most || deadline_passed(deadline))
			extra--;
	}
	return n;
}

/* 先问最后一个，直到它完成；然后从头问起。*/
static int finish(struct tcpx_comm *comm, struct tcpx_request **requests, int n,
		  bool sends)
{
	const int64_t deadline = deadline_in_ms(WAIT_MS);
	int good = 0, sizes[NCCL_NET_PLUGIN_MAX_RECVS];
	bool done = false;

	while (n && !done && !deadline_passed(deadline))
		if (tcpx_test(requests[n - 1], &done, sizes))
			return -1;
	for (int i = 0; i < n && done; i++) {
		if (i < n - 1 &&
		    (tcpx_test(requests[i], &done, sizes) || !done))
			return -1;
		good += sizes[0] == SIZE;
		if (!sends && tcpx_irecv_consumed(comm, 1, requests[i]))
			return -1;
	}
	return good;
}

static int send_side(struct tcpx_net *net, const struct tcpx_handle *handle)
{
	struct tcpx_request *requests[TRIES] = { NULL };
	struct tcpx_comm *comm = NULL;
	void *mr = NULL;
	int n, good;

	memset(memory, 's', sizeof(memory));
	if (tcpx_connect_v5(net, 0, handle, patience(), &comm) ||
	    tcpx_reg_mr(comm, memory, sizeof(memory), NCCL_PTR_HOST, &mr))
		return 3;
	n = begin(comm, true, mr, requests);
	good = finish(comm, requests, n, true);
	printf("sends %d good %d\n", n, good);
	fflush(stdout);
	tcpx_dereg_mr(comm, mr);
	tcpx_close_send(&comm);
	return 0;
}

static int receive_side(struct tcpx_net *net, struct tcpx_listener *listener)
{
	struct tcpx_request *requests[TRIES] = { NULL }, *more = NULL;
	struct tcpx_comm *comm = NULL;
	void *mr = NULL, *data = memory[0];
	int n, good, size = SIZE, tag = 7;

	if (tcpx_accept_v5(net, listener, patience(), &comm) ||
	    tcpx_reg_mr(comm, memory, sizeof(memory), NCCL_PTR_HOST, &mr))
		return 3;
	n = begin(comm, false, mr, requests);
	good = finish(comm, requests, TCPX_MAX_SENDS, false);
	printf("receives %d good %d text %.4s\n", n, good, memory[11]);
	/* NET_SHIM=fail=irecv:17：失败，再来一次也失败，但不再碰插件。*/
	n = tcpx_irecv(comm, 1, &data, &size, &tag, &mr, &more);
	printf("failed %d", n);
	n = tcpx_irecv(comm, 1, &data, &size, &tag, &mr, &more);
	printf(" again %d\n", n);
	fflush(stdout);
	tcpx_dereg_mr(comm, mr);
	tcpx_close_recv(&comm);
	return 0;
}

int main(int argc, char *argv[])
{
	struct tcpx_listener listener;
	struct tcpx_handle handle;
	struct tcpx_net net;
	int rc, status = 0;
	pid_t child;

	if (argc < 2 || tcpx_load_plugin(&net, argv[1], 8) ||
	    tcpx_listen(&net, 0, &handle, &listener))
		return 2;
	child = fork();
	if (!child)
		_exit(send_side(&net, &handle));
	rc = receive_side(&net, &listener);
	waitpid(child, &status, 0);
	tcpx_close_listen(&net, &listener);
	tcpx_unload_plugin(&net);
	return rc || status;
}

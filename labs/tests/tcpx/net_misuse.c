// SPDX-License-Identifier: MIT
/*
 * net_misuse.c —— 每次违反 net 插件契约的一条，看 net_shim.so 是否当场发现
 *
 *	net_misuse PLUGIN.so MISTAKE
 *
 * 一个检查若从未报过警，就不知道它会不会报警。收发两端在同一个线程里，只用 v8 的表；
 * 除了点名的那个错误，其余都守规矩：没有 MISTAKE（"none"）时必须平安结束。
 */
#include "tcpx/nccl_net.h"

#include <dlfcn.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE  64
#define COUNT 17

struct pair {
	const ncclNet_v8_t *net;
	const char *mistake;
	void *listen, *send, *recv;
	void *send_mh, *recv_mh;
	char data[2][COUNT][SIZE];
	void *sends[COUNT], *recvs[COUNT];
};

static bool makes(const struct pair *p, const char *mistake)
{
	return !strcmp(p->mistake, mistake);
}

static void must(int rc, const char *call)
{
	if (!rc)
		return;
	fprintf(stderr, "net_misuse: %s returned %d\n", call, rc);
	exit(1);
}

/* slow 的 shim 要求很多次轮询，正好在两次之间犯错。*/
static void connect_pair(struct pair *p)
{
	static alignas(16) char storage[2][NCCL_NET_DEV_HANDLE_SIZE + 16];
	char pristine[NCCL_NET_HANDLE_MAXSIZE], a[NCCL_NET_HANDLE_MAXSIZE],
		b[NCCL_NET_HANDLE_MAXSIZE];
	ncclNetDeviceHandle_t *dh[2] = { (void *)storage[0],
					 (void *)storage[1] };
	char *handle = a;

	must(p->net->listen(0, pristine, &p->listen), "listen");
	memcpy(a, pristine, sizeof(a));
	storage[0][7] = makes(p, "dirty-storage");
	a[3] ^= makes(p, "dirty-handle");
	if (makes(p, "no-storage"))
		dh[0] = NULL;
	if (makes(p, "odd-storage"))
		dh[0] = (void *)(storage[0] + 8);
	while (!p->send || !p->recv) {
		if (!p->send)
			must(p->net->connect(0, handle, &p->send, &dh[0]),
			     "connect");
		if (!p->recv)
			must(p->net->accept(p->listen, &p->recv, &dh[1]),
			     "accept");
		if (makes(p, "fresh-handle") && !p->send)
			memcpy(a, pristine, sizeof(a));
		if (makes(p, "moved-handle") && !p->send)
			handle = memcpy(b, a, sizeof(b));
	}
	dh[0] = (void *)(storage[0] + 16);
	if (makes(p, "connect-again"))
		p->net->connect(0, handle, &p->send, &dh[0]);
	if (makes(p, "accept-again"))
		p->net->accept(p->listen, &p->recv, &dh[1]);
}

static void receive(struct pair *p, int i)
{
	void *data = p->data[1][i];
	int size = SIZE, tag = 0;

	must(p->net->irecv(p->recv, 1, &data, &size, &tag, &p->recv_mh,
			   &p->recvs[i]),
	     "irecv");
}

static void send_one(struct pair *p, int i)
{
	while (!p->sends[i])
		must(p->net->isend(p->send, p->data[0][i], SIZE, 0, p->send_mh,
				   &p->sends[i]),
		     "isend");
}

static void await_one(struct pair *p, void *request)
{
	int done = 0, size;

	while (!done)
		must(p->net->test(request, &done, &size), "test");
}

static void transfer(struct pair *p)
{
	int receives = makes(p, "17-receives") ? 17 : 16;
	int sends = makes(p, "13-sends") ? 13 : 12;

	if (makes(p, "unregistered"))
		p->net->isend(p->send, p->sends, SIZE, 0, p->send_mh,
			      &p->sends[0]);
	for (int i = 0; i < receives; i++)
		receive(p, i);
	for (int i = 0; i < sends; i++)
		send_one(p, i);
	if (makes(p, "use-failed")) {
		int done, size;

		p->net->test(p->sends[0], &done, &size);
		p->net->test(p->sends[0], &done, &size);
	}
	if (makes(p, "test-youngest"))
		await_one(p, p->sends[1]);
	for (int i = 0; i < sends; i++)
		await_one(p, p->sends[i]);
	for (int i = sends; i < receives; i++)
		send_one(p, i), await_one(p, p->sends[i]);
	for (int i = 0; i < receives; i++)
		await_one(p, p->recvs[i]);
	if (makes(p, "test-again"))
		await_one(p, p->recvs[0]);
	if (makes(p, "consume"))
		p->net->irecvConsumed(p->recv, 1, p->recvs[0]);
	if (makes(p, "consume-wrong"))
		p->net->irecvConsumed(p->recv, 1, p->recvs[1]);
}

static void close_pair(struct pair *p)
{
	if (!makes(p, "stay-registered"))
		must(p->net->deregMr(p->send, p->send_mh), "deregMr");
	if (makes(p, "deregister-again"))
		p->net->deregMr(p->send, p->send_mh);
	must(p->net->deregMr(p->recv, p->recv_mh), "deregMr");
	must(p->net->closeSend(p->send), "closeSend");
	if (makes(p, "close-again"))
		p->net->closeSend(p->send);
	if (makes(p, "close-null"))
		p->net->closeSend(NULL);
	if (makes(p, "use-closed"))
		p->net->isend(p->send, p->data[0][0], SIZE, 0, p->send_mh,
			      &p->sends[0]);
	must(p->net->closeRecv(p->recv), "closeRecv");
	if (!makes(p, "stay-open"))
		must(p->net->closeListen(p->listen), "closeListen");
}

int main(int argc, char *argv[])
{
	static struct pair p;
	void *lib = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;

	p.net = lib ? dlsym(lib, "ncclNetPlugin_v8") : NULL;
	if (!p.net)
		return 2;
	p.mistake = argv[2];
	must(p.net->init(NULL), "init");
	connect_pair(&p);
	must(p.net->regMr(p.send, p.data[0], sizeof(p.data[0]),
			  makes(&p, "type-0") ? 0 : NCCL_PTR_HOST, &p.send_mh),
	     "regMr");
	must(p.net->regMr(p.recv, p.data[1], sizeof(p.data[1]), NCCL_PTR_HOST,
			  &p.recv_mh),
	     "regMr");
	transfer(&p);
	close_pair(&p);
	dlclose(lib);
	return 0;
}

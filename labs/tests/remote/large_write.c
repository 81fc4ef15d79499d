// SPDX-License-Identifier: MIT
/*
 * large_write.c —— 一次很大的 WRITE，好让人在半路上杀掉一端
 *
 *	large_write BYTES DEVICE          借出 BYTES 字节，等对端离开
 *	large_write BYTES DEVICE SERVER   写满它
 */
#include "base/deadline.h"
#include "rdma_common.h"

#include <stdlib.h>
#include <unistd.h>

#define PORT	   18600
#define PATIENCE_S 120

static struct rdma_resources res;

/* 只有一个 slot，要写的人从那里写，借出的人借的就是它：1 GiB 也只占一次。*/
static int make_all(const char *device, uint32_t size)
{
	const struct rdma_config config = { .device_name = device,
					    .gid_index = GID_INDEX_AUTO };
	int rc = rdma_open_device(&res, &config);

	if (!rc)
		rc = rdma_create_pd(&res);
	res.buf = calloc(1, size);
	res.msg_size = size;
	res.send_slots = 1;
	if (rc || !res.buf)
		return rc ? rc : -1;
	rc = expose_memory(&res, res.buf, size, IBV_ACCESS_REMOTE_WRITE,
			   &res.mr);
	if (!rc)
		rc = rdma_create_cq(&res, false);
	if (!rc)
		rc = rdma_create_qp(&res, 0);
	if (!rc)
		rc = modify_qp_to_init(&res);
	return rc ? rc : allow_remote(&res, IBV_ACCESS_REMOTE_WRITE);
}

static int lend(int64_t deadline)
{
	int listener = tcp_listen(PORT), sock, rc;
	char rest;

	sock = listener < 0 ? listener : tcp_accept(listener, deadline);
	if (sock < 0)
		return sock;
	rc = connect_qp(&res, sock, deadline);
	while (!rc && read(sock, &rest, 1) > 0)
		;
	return rc;
}

static int fill(const char *server, int64_t deadline)
{
	int sock = tcp_connect(server, PORT, deadline), rc;

	if (sock < 0)
		return sock;
	rc = connect_qp(&res, sock, deadline);
	if (!rc)
		rc = post_write(&res, 0, res.msg_size, res.remote.addr,
				res.remote.rkey, IBV_SEND_SIGNALED);
	return rc ? rc
		  : poll_completion(&res, WR_ID_WRITE(0), NULL,
				    PATIENCE_S * 1000);
}

int main(int argc, char *argv[])
{
	const int64_t deadline = deadline_in_ms(PATIENCE_S * 1000);
	int rc;

	if (argc < 3)
		return 2;
	rc = make_all(argv[2], (uint32_t)atol(argv[1]));
	if (!rc)
		rc = argc > 3 ? fill(argv[3], deadline) : lend(deadline);
	return destroy_rdma_resources(&res) || rc;
}

// SPDX-License-Identifier: MIT
/*
 * large_write.c —— 一次很大的 WRITE，好让人在半路上杀掉一端，或者撤走内存
 *
 *	large_write keep|drop BYTES DEVICE          借出 BYTES 字节，等对端离开
 *	large_write keep|drop BYTES DEVICE SERVER   写满它
 *
 * drop：WRITE 走到一半，把自己的 MR 注销。BYTES 不超过 LAP 时，借出的一端还核对内容。
 */
#include "base/deadline.h"
#include "base/pattern.h"
#include "rdma_common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PORT	   18600
#define PATIENCE_S 120
#define LAP	   (UINT32_C(16) << 20)
#define SEED	   17

static struct rdma_resources res;
static bool drop;

/* 同样的 LAP 个字节，一遍遍地连着映射：两端都是 1 GiB，也只占 32 MiB 内存。*/
static char *map_in_laps(uint32_t size)
{
	const int flags = MAP_SHARED | MAP_FIXED;
	const int fd = memfd_create("lap", 0);
	char *all =
		mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (all == MAP_FAILED || ftruncate(fd, LAP))
		return NULL;
	for (uint32_t at = 0; at < size; at += LAP)
		if (mmap(all + at, size - at < LAP ? size - at : LAP,
			 PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED)
			return NULL;
	close(fd);
	return all;
}

static int make_all(const char *device, uint32_t size)
{
	const struct rdma_config config = { .device_name = device,
					    .gid_index = GID_INDEX_AUTO };
	int rc = rdma_open_device(&res, &config);

	if (!rc)
		rc = rdma_create_pd(&res);
	res.buf = map_in_laps(size);
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

static int drop_mr(void)
{
	const int rc = check_destroyed("ibv_dereg_mr", ibv_dereg_mr(res.mr));

	res.mr = NULL;
	return rc;
}

static int lend(int64_t deadline)
{
	const volatile char *first = res.buf;
	int listener = tcp_listen(PORT), sock, rc;
	char rest;

	if (listener < 0)
		return listener;
	sock = tcp_accept(listener, deadline);
	close(listener);
	if (sock < 0)
		return sock;
	rc = connect_qp(&res, sock, deadline);
	while (drop && !rc && !*first)
		rc = deadline_sleep_ms(1, deadline);
	if (drop && !rc)
		rc = drop_mr();
	while (!rc && read(sock, &rest, 1) > 0)
		;
	if (!rc && res.msg_size <= LAP)
		rc = pattern_first_wrong(res.buf, res.msg_size, SEED) <
		     res.msg_size;
	close(sock);
	return rc;
}

static int fill(const char *server, int64_t deadline)
{
	int sock = tcp_connect(server, PORT, deadline), rc;

	if (sock < 0)
		return sock;
	pattern_fill(res.buf, res.msg_size < LAP ? res.msg_size : LAP, SEED);
	rc = connect_qp(&res, sock, deadline);
	if (!rc)
		rc = post_write(&res, 0, res.msg_size, res.remote.addr,
				res.remote.rkey, IBV_SEND_SIGNALED);
	if (!rc && drop)
		rc = drop_mr();
	if (!rc)
		rc = poll_completion(&res, WR_ID_WRITE(0), NULL,
				     PATIENCE_S * 1000);
	close(sock);
	return rc;
}

int main(int argc, char *argv[])
{
	const int64_t deadline = deadline_in_ms(PATIENCE_S * 1000);
	char *all;
	int rc;

	if (argc < 4)
		return 2;
	drop = !strcmp(argv[1], "drop");
	rc = make_all(argv[3], (uint32_t)atol(argv[2]));
	if (!rc)
		rc = argc > 4 ? fill(argv[4], deadline) : lend(deadline);
	all = res.buf;
	res.buf = NULL; /* 不是 malloc 来的 */
	rc = destroy_rdma_resources(&res) || rc;
	if (all)
		munmap(all, res.msg_size);
	return rc;
}

// SPDX-License-Identifier: MIT
/*
 * unit_exchange.c —— 不需要 RDMA 设备的单元测试：TCP 连接与交换、可打印文本
 *
 * 对端的全部字节事先放进 socketpair 的另一头，于是每个字节边界、每种坏值都能在
 * 毫秒内试遍。成功打印每项的名字并以 0 退出；失败时说出是哪一次。
 */
#include "../unit.h"
#include "base/deadline.h"
#include "base/pattern.h"
#include "base/report.h"
#include "base/verbs_names.h"
#include "explain/qp_table.h"
#include "rdma_common.h"

#include <errno.h>
#include <locale.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_BYTES 8
#define CON_BYTES   43
#define SYNC_BYTES  12

static const uint8_t good_hello[HELLO_BYTES] = { 'R', 'C', 'M', 'E',
						 0,   1,   0,	CON_BYTES };
static const uint8_t good_con[CON_BYTES] = {
	0,    0x12, 0x34, 0x56, /* qp_num */
	0xab, 0xcd,		/* lid */
	0,    0,    0,	  0,	0,  0,	0, 0,
	0,    0,    0xff, 0xff, 10, 99, 0, 2, /* gid */
	0,    0x65, 0x43, 0x21,		      /* psn */
	3,				      /* active_mtu */
	1,    2,    3,	  4,	5,  6,	7, 8, /* addr */
	0x11, 0x22, 0x33, 0x44,		      /* rkey */
	0,    0,    0x10, 0,		      /* size */
};
static const uint8_t good_sync[SYNC_BYTES] = { 'S', 'Y', 'N', 'C', 0, 0,
					       0,   1,	 0,   0,   0, 0 };

static struct rdma_resources fake_resources(void)
{
	static struct ibv_qp qp = { .qp_num = 0x11 };
	static struct ibv_mr mr = { .rkey = 0x99 };
	struct rdma_resources res = {
		.qp = &qp, .mr = &mr, .psn = 0x123456, .msg_size = 4096
	};

	res.port_attr.active_mtu = IBV_MTU_1024;
	res.gid.raw[10] = 0xff;
	res.gid.raw[11] = 0xff;
	res.gid.raw[12] = 10;
	return res;
}

/* stderr 里 "error:" 的行数，并清空。*/
static int errors_reported(FILE *log)
{
	char line[1024];
	int n = 0;

	rewind(log);
	while (fgets(line, sizeof(line), log))
		n += !strncmp(line, "error: ", 7);
	rewind(log);
	if (ftruncate(fileno(log), 0))
		abort();
	return n;
}

/*
 * 对端说了 @bytes 的前 @size 个字节就不再说（@hang_up：并且关闭）。返回
 * exchange_cm_con_data 的结果，随后若成功，再加上 sock_sync_step 的。
 */
static int meet(struct rdma_resources *res, const uint8_t *bytes, size_t size,
		bool hang_up, int ms)
{
	int pair[2];
	int rc;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    (size && write(pair[1], bytes, size) != (ssize_t)size))
		abort();
	if (hang_up)
		shutdown(pair[1], SHUT_WR);
	rc = exchange_cm_con_data(res, pair[0], deadline_in_ms(ms));
	if (!rc)
		rc = sock_sync_step(pair[0], SYNC_READY, 0, deadline_in_ms(ms));
	close(pair[0]);
	close(pair[1]);
	return rc;
}

static size_t whole_talk(uint8_t *to)
{
	memcpy(to, good_hello, HELLO_BYTES);
	memcpy(to + HELLO_BYTES, good_con, CON_BYTES);
	memcpy(to + HELLO_BYTES + CON_BYTES, good_sync, SYNC_BYTES);
	return HELLO_BYTES + CON_BYTES + SYNC_BYTES;
}

static void test_every_byte_boundary(FILE *log)
{
	uint8_t talk[128];
	size_t all = whole_talk(talk);

	for (size_t n = 0; n <= all; n++) {
		struct rdma_resources res = fake_resources();
		int rc = meet(&res, talk, n, true, 2000);

		CHECK(rc == (n == all ? 0 : -ECONNRESET), "%zu: %d", n, rc);
		CHECK(errors_reported(log) == (n != all), "after %zu", n);
		CHECK(!res.remote.qp_num == (n < HELLO_BYTES + CON_BYTES),
		      "remote is set after %zu bytes", n);
	}
}

static void test_silence_ends(FILE *log)
{
	uint8_t talk[128];
	size_t all = whole_talk(talk);

	for (size_t n = 0; n < all; n += 10) {
		struct rdma_resources res = fake_resources();
		int64_t start = now_ns();
		int rc = meet(&res, talk, n, false, 30);
		int64_t took = (now_ns() - start) / 1000000;

		CHECK(rc == -ETIMEDOUT, "%zu: %d", n, rc);
		CHECK(took >= 29 && took < 2000, "%d ms", (int)took);
		CHECK(errors_reported(log) == 1, "after %zu", n);
	}
}

static void test_wire_bytes(FILE *log)
{
	struct rdma_resources res = fake_resources();
	struct cm_con_data_t wire;
	uint8_t talk[128];
	uint8_t got[HELLO_BYTES + CON_BYTES];
	int pair[2];

	CHECK(meet(&res, talk, whole_talk(talk), true, 2000) == 0, "meet");
	CHECK(res.remote.qp_num == 0x123456, "%x", res.remote.qp_num);
	CHECK(res.remote.lid == 0xabcd, "%x", res.remote.lid);
	CHECK(res.remote.psn == 0x654321, "%x", res.remote.psn);
	CHECK(res.remote.active_mtu == 3, "%d", res.remote.active_mtu);
	CHECK(res.remote.addr == 0x0102030405060708, "addr");
	CHECK(res.remote.rkey == 0x11223344, "%x", res.remote.rkey);
	CHECK(res.remote.size == 4096, "%u", res.remote.size);
	CHECK(!memcmp(res.remote.gid, good_con + 6, 16), "gid");

	wire = cm_con_data_to_wire(res.remote);
	CHECK(sizeof(wire) == CON_BYTES, "%zu", sizeof(wire));
	CHECK(!memcmp(&wire, good_con, CON_BYTES), "to_wire");
	wire = cm_con_data_to_wire(wire);
	CHECK(!memcmp(&wire, &res.remote, CON_BYTES), "from_wire");

	/* 我们自己发出去的字节。*/
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
	    write(pair[1], talk, 51) != 51)
		abort();
	CHECK(!exchange_cm_con_data(&res, pair[0], deadline_in_ms(2000)), " ");
	CHECK(recv(pair[1], got, sizeof(got), MSG_WAITALL) == sizeof(got), " ");
	CHECK(!memcmp(got, good_hello, HELLO_BYTES), "my hello");
	CHECK(!memcmp(got + 8, "\0\0\0\x11\0\0", 6), "my qp_num and lid");
	CHECK(!memcmp(got + 14, res.gid.raw, 16), "my gid");
	CHECK(!memcmp(got + 30, "\0\x12\x34\x56\x03", 5), "my psn and mtu");
	CHECK(!memcmp(got + 43, "\0\0\0\x99\0\0\x10\0", 8), "my rkey and size");
	close(pair[0]);
	close(pair[1]);
	CHECK(errors_reported(log) == 0, "wire");
}

static uint32_t be(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
	       (uint32_t)at[2] << 8 | at[3];
}

/* 头文件对 cm_con_data_t 的承诺，另写一遍。*/
static bool may_be(const uint8_t *con)
{
	static const uint8_t zero[16];

	return be(con) <= 0xffffff && be(con) > 1 && be(con + 22) <= 0xffffff &&
	       con[26] >= 1 && con[26] <= 5 && memcmp(con + 6, zero, 16);
}

static void test_bad_values(FILE *log)
{
	uint8_t talk[128];
	size_t all = whole_talk(talk);
	unsigned int seed = 4;

	for (int i = 0; i < 4000; i++) {
		struct rdma_resources res = fake_resources();
		int at = rand_r(&seed) % (HELLO_BYTES + CON_BYTES);
		uint8_t old = talk[at];
		bool good;
		int rc;

		talk[at] = (uint8_t)rand_r(&seed);
		good = !memcmp(talk, good_hello, HELLO_BYTES) &&
		       may_be(talk + HELLO_BYTES);
		rc = meet(&res, talk, all, true, 2000);
		CHECK(rc == (good ? 0 : -EPROTO), "byte %d = %d: %d", at,
		      talk[at], rc);
		CHECK(errors_reported(log) == !good, "byte %d", at);
		CHECK(good || !res.remote.qp_num, "remote was set");
		talk[at] = old;
	}
	memset(talk + HELLO_BYTES + 6, 0, 16);
	{
		struct rdma_resources res = fake_resources();

		CHECK(meet(&res, talk, all, true, 2000) == -EPROTO, "zero GID");
		errors_reported(log);
	}
}

static void test_peer_status(FILE *log)
{
	uint8_t sync[SYNC_BYTES];
	uint8_t mine[SYNC_BYTES];
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		abort();
	/* 我失败了：对端收到我的 errno，而我不等它。*/
	CHECK(sock_sync_step(pair[0], SYNC_READY, -ENOMEM,
			     deadline_in_ms(2000)) == -ENOMEM,
	      "mine");
	CHECK(recv(pair[1], mine, sizeof(mine), 0) == SYNC_BYTES, "told");
	CHECK(be(mine + 8) == ENOMEM, "%u", be(mine + 8));
	CHECK(errors_reported(log) == 0, "it was reported where it failed");
	/* 对端失败了。*/
	memcpy(sync, good_sync, sizeof(sync));
	sync[11] = EINVAL;
	if (write(pair[1], sync, sizeof(sync)) != SYNC_BYTES)
		abort();
	CHECK(sock_sync_step(pair[0], SYNC_READY, 0, deadline_in_ms(2000)) ==
		      -EREMOTEIO,
	      "the peer's");
	CHECK(errors_reported(log) == 1, "the peer's");
	/* 对端在另一个会合点。*/
	sync[7] = 2;
	sync[11] = 0;
	if (write(pair[1], sync, sizeof(sync)) != SYNC_BYTES)
		abort();
	CHECK(sock_sync_step(pair[0], SYNC_READY, 0, deadline_in_ms(2000)) ==
		      -EPROTO,
	      "elsewhere");
	CHECK(errors_reported(log) == 1, "elsewhere");
	close(pair[0]);
	close(pair[1]);
}

/* 只看一眼的一方：消息来了几个字节都不算坏，也一个字节都不拿走。*/
static void test_only_looking(void)
{
	uint8_t left[SYNC_BYTES + 1];

	for (size_t cut = 0; cut <= SYNC_BYTES; cut++) {
		int fds[2], rc;

		socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
		send(fds[1], good_sync, cut, 0);
		rc = sock_check_peer(fds[0], SYNC_READY);
		CHECK(!rc, "%zu bytes are there: %d", cut, rc);
		send(fds[1], good_sync + cut, SYNC_BYTES - cut, 0);
		rc = sock_check_peer(fds[0], SYNC_READY);
		CHECK(!rc, "%zu bytes, then all: %d", cut, rc);
		CHECK(recv(fds[0], left, sizeof(left), 0) == SYNC_BYTES &&
			      !memcmp(left, good_sync, SYNC_BYTES),
		      "after %zu bytes, some were taken", cut);
		close(fds[0]);
		close(fds[1]);
	}
}

static void test_printable_text(void)
{
	static const char escape[] = "\033]0;x\007\r\n\t\x7f\xc2\x9b";
	char out[256];
	char data[64];
	unsigned int seed = 9;

	printable_text(out, sizeof(out), escape, sizeof(escape));
	for (const char *p = out; *p; p++)
		CHECK(*p >= ' ' && *p < 0x7f, "%02x", *p);
	CHECK(strstr(out, "\\x1b]0;x\\x07\\x0d\\x0a"), "%s", out);
	printable_text(out, sizeof(out), "ab\0cd", 5);
	CHECK(!strcmp(out, "ab"), "%s", out);
	printable_text(out, sizeof(out), "\xe4\xbd\xa0\xe5\xa5\xbd", 6);
	CHECK(!strcmp(out, "\xe4\xbd\xa0\xe5\xa5\xbd"), "%s", out);
	printable_text(out, sizeof(out), "\xe4\xbd\xa0\xe5", 4); /* 切断的字 */
	CHECK(!strcmp(out, "\xe4\xbd\xa0\\xe5"), "%s", out);

	for (size_t size = 32; size < 120; size++) {
		memset(out, '#', sizeof(out));
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (char)(rand_r(&seed) % 255 + 1);
		printable_text(out, size, data, sizeof(data));
		CHECK(memchr(out, 0, size), "no NUL in %zu bytes", size);
		for (size_t i = size; i < sizeof(out); i++)
			CHECK(out[i] == '#', "wrote behind %zu bytes", size);
		CHECK(strlen(out) < 3 || !strcmp(out + strlen(out) - 3, "..."),
		      "the cut is not marked in %zu bytes", size);
	}
}

static void test_small_tables(void)
{
	struct rdma_resources res = { 0 };
	char out[256];

	CHECK(mtu_bytes(IBV_MTU_256) == 256, "256");
	CHECK(mtu_bytes(IBV_MTU_4096) == 4096, "4096");
	CHECK(mtu_bytes(0) == 0 && mtu_bytes(6) == 0, "no enum ibv_mtu");
	for (int mine = 1; mine <= 5; mine++) {
		for (int peers = 1; peers <= 5; peers++) {
			res.port_attr.active_mtu = mine;
			res.remote.active_mtu = (uint8_t)peers;
			CHECK((int)path_mtu(&res) ==
				      (mine < peers ? mine : peers),
			      "%d and %d", mine, peers);
		}
	}
	CHECK(!strcmp(qp_state_name(IBV_QPS_RTR), "RTR"), "RTR");
	CHECK(!strcmp(qp_state_name(99), "UNKNOWN"), "99");
	CHECK(!strcmp(wr_opcode_name(IBV_WR_DRIVER1), "DRIVER1"), "11");
	CHECK(!strcmp(wr_opcode_name(IBV_WR_DRIVER1 + 1), "UNKNOWN"), "12");
	CHECK(!strcmp(gid_type_name(IBV_GID_TYPE_ROCE_V2 + 1), "unknown"), "3");
	qp_mask_text(out, sizeof(out),
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU);
	CHECK(!strcmp(out, "STATE|AV|PATH_MTU"), "%s", out);
	for (size_t size = 1; size < 80; size++) {
		memset(out, '#', sizeof(out));
		qp_mask_text(out, size, -1);
		CHECK(strlen(out) < size && out[size] == '#', "%zu", size);
	}
}

/* 长度不必是 8 的倍数；错的那个字节在哪里，就说哪里。*/
static void test_pattern(void)
{
	for (size_t size = 0; size <= 24; size++) {
		char *data = malloc(size);

		pattern_fill(data, size, 7);
		CHECK(pattern_first_wrong(data, size, 7) == size, "%zu", size);
		for (size_t i = 0; i < size; i++) {
			data[i] ^= 1;
			CHECK(pattern_first_wrong(data, size, 7) == i,
			      "byte %zu of %zu", i, size);
			data[i] ^= 1;
		}
		free(data);
	}
}

/* ---- 有两个地址的名字 ------------------------------------------------------- */

static struct sockaddr_in addresses[2];

/* 替身：不问 /etc/hosts。*/
int getaddrinfo(const char *name, const char *service,
		const struct addrinfo *hints, struct addrinfo **list)
{
	static struct addrinfo both[2];

	(void)name, (void)service;
	for (int i = 0; i < 2; i++)
		both[i] = (struct addrinfo){
			.ai_family = AF_INET,
			.ai_socktype = hints->ai_socktype,
			.ai_addr = (struct sockaddr *)&addresses[i],
			.ai_addrlen = sizeof(addresses[i]),
			.ai_next = i ? NULL : &both[1],
		};
	*list = both;
	return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
	(void)list;
}

/* 127.0.0.1 的一个 port 有了主人；@listens 为假时没有人在听，连过去就是 ECONNREFUSED。*/
static int take_port(struct sockaddr_in *address, bool listens)
{
	int sock = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof(*address);

	*address = (struct sockaddr_in){ .sin_family = AF_INET,
					 .sin_addr.s_addr =
						 htonl(INADDR_LOOPBACK) };
	if (bind(sock, (struct sockaddr *)address, size) ||
	    getsockname(sock, (struct sockaddr *)address, &size) ||
	    (listens && listen(sock, 8)))
		abort();
	return sock;
}

static int callers_of(int sock)
{
	int n = 0;

	for (int fd; (fd = accept(sock, NULL, NULL)) >= 0; n++)
		close(fd);
	return n;
}

/* 一个通了就是它，不再试别的；一个不通就试下一个。谁也不多连一次。*/
static void test_two_addresses(FILE *log)
{
	for (int listens = 0; listens < 4; listens++) {
		const int first = listens & 1, second = listens >> 1;
		const int socks[] = { take_port(&addresses[0], first),
				      take_port(&addresses[1], second) };
		int sock = tcp_connect("both", 1,
				       deadline_in_ms(listens ? 5000 : 300));
		int called[] = { callers_of(socks[0]), callers_of(socks[1]) };

		CHECK(listens ? sock >= 0 : sock == -ECONNREFUSED, "%d: %d",
		      listens, sock);
		CHECK(called[0] == first && called[1] == (second && !first),
		      "%d: %d and %d", listens, called[0], called[1]);
		CHECK(errors_reported(log) == !listens, "%d", listens);
		if (sock >= 0)
			close(sock);
		close(socks[0]);
		close(socks[1]);
	}
}

int main(void)
{
	FILE *log = tmpfile();

	if (!log || dup2(fileno(log), STDERR_FILENO) < 0 ||
	    !setlocale(LC_CTYPE, "C.UTF-8"))
		return 77;
	catch_stop_signals();
	test_every_byte_boundary(log);
	test_silence_ends(log);
	test_wire_bytes(log);
	test_bad_values(log);
	test_peer_status(log);
	test_only_looking();
	test_two_addresses(log);
	test_printable_text();
	test_small_tables();
	test_pattern();
	printf("%d failures\n", unit_failures);
	return unit_failures != 0;
}

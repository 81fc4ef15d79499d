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
#include "rdma_common.h"

#include <errno.h>
#include <locale.h>
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

int main(void)
{
	FILE *log = tmpfile();

	if (!log || dup2(fileno(log), STDERR_FILENO) < 0 ||
	    !setlocale(LC_CTYPE, "C.UTF-8"))
		return 77;
	catch_stop_signals();
	test_every_byte_boundary(log);
	test_bad_values(log);
	test_only_looking();
	test_printable_text();
	test_pattern();
	return unit_result("exchange");
}

// SPDX-License-Identifier: MIT
/*
 * peer.c —— 对端：一个说谎、说一半、慢吞吞或一声不吭的 TCP 对端
 *
 *	peer listen PORT ITEM…            等一个连接
 *	peer connect ADDRESS PORT ITEM…   连过去（30 秒内反复尝试）
 *
 * 按次序把 ITEM 拼成要发的字节：
 *	hello[,magic=X][,version=X][,length=X]
 *	con[,qpn=X][,psn=X][,mtu=X][,gid=ADDRESS][,size=X]
 *	sync[,step=X][,status=X]   plan[,mode=X][,size=X][,iters=X]
 *	handles[,magic=X][,version=X][,api=X][,count=X][,length=X]
 *	                         之后用 fill=128 作 handle
 *	deal[,magic=X][,version=X][,mode=X][,size=X][,iters=X][,text=X]
 *	catalog[,magic=X][,version=X][,entry=X][,count=X]
 *	needle[,id=X][,addr=X][,rkey=X][,size=X]
 *	lend[,magic=X][,order=X][,number=X][,cells=X][,bytes=X]
 *	crc[=X]                  之前所有 needle 的 CRC-32C，或 X
 *	text=TEXT（原样）          fill=N（N 个 'A'）
 * 以及怎样发：
 *	cut=N      只发前 N 个字节        trickle=MS  一次一个字节，隔 MS 毫秒
 *	close      发完立即关闭           reset       发完以 RST 关闭
 *	hear=N     关闭之前先收满 N 个字节
 *	record=F   把收到的字节写进文件 F
 * 没有 close 或 reset 时，一直读到对方关闭为止（最多 30 秒）。
 *
 * 数值默认是一个“看起来完全正常”的对端；X 可以是 0x 开头的十六进制。
 */
#include <arpa/inet.h>
#include <errno.h>
#include <isa-l/crc.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIMIT_S 30

struct talk {
	uint8_t bytes[1 << 17];
	size_t size;
	size_t needles; /* 从这里起 */
	size_t cut;
	size_t hear;
	int trickle_ms;
	int close;
	int reset;
	const char *record;
};

static void die(const char *what)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* 网络字节序，width 个字节。*/
static void put(struct talk *t, uint64_t value, int width)
{
	while (width-- > 0)
		t->bytes[t->size++] = (uint8_t)(value >> (8 * width));
}

/* ITEM 里 ",key=" 之后的文字，没有则为 NULL。*/
static const char *field(const char *item, const char *key)
{
	char name[32];
	const char *at;

	snprintf(name, sizeof(name), ",%s=", key);
	at = strstr(item, name);
	return at ? at + strlen(name) : NULL;
}

static uint64_t number(const char *item, const char *key, uint64_t normal)
{
	const char *text = field(item, key);

	return text ? strtoull(text, NULL, 0) : normal;
}

static void put_gid(struct talk *t, const char *item)
{
	const char *text = field(item, "gid");
	char address[64] = "::ffff:10.99.0.2";

	if (text)
		snprintf(address, sizeof(address), "%.*s",
			 (int)strcspn(text, ","), text);
	if (inet_pton(AF_INET6, address, t->bytes + t->size) != 1)
		die(address);
	t->size += 16;
}

static void put_con(struct talk *t, const char *item)
{
	put(t, number(item, "qpn", 0x11), 4);
	put(t, 0, 2);
	put_gid(t, item);
	put(t, number(item, "psn", 1), 4);
	put(t, number(item, "mtu", 3), 1);
	put(t, 0x1000, 8);
	put(t, 0x1234, 4);
	put(t, number(item, "size", 4096), 4);
}

static int is(const char *item, const char *name)
{
	size_t n = strlen(name);

	return !strncmp(item, name, n) && (!item[n] || strchr(",=", item[n]));
}

/* needle/catalog.h 说的那样；全部 needle 都在 volume 9，cookie 是 7。*/
static int put_catalog(struct talk *t, const char *item)
{
	if (is(item, "catalog")) {
		put(t, number(item, "magic", 0x4e44434c), 4);
		put(t, number(item, "version", 1), 2);
		put(t, number(item, "entry", 40), 2);
		put(t, number(item, "count", 1), 8);
		t->needles = t->size;
	} else if (is(item, "needle")) {
		put(t, 9, 4);
		put(t, number(item, "id", 1), 8);
		put(t, 7, 4);
		put(t, number(item, "addr", 0x1000), 8);
		put(t, number(item, "rkey", 0x1234), 4);
		put(t, number(item, "size", 13), 8);
		put(t, 0, 4);
	} else if (is(item, "crc")) {
		const char *wrong = strchr(item, '=');
		uint32_t right = ~crc32_iscsi(t->bytes + t->needles,
					      (int)(t->size - t->needles), ~0u);

		put(t, wrong ? strtoul(wrong + 1, NULL, 0) : right, 4);
	} else {
		return 0;
	}
	return 1;
}

static void add(struct talk *t, const char *item)
{
	const char *value = strchr(item, '=');

	value = value ? value + 1 : "";
	if (is(item, "hello")) {
		put(t, number(item, "magic", 0x52434d45), 4);
		put(t, number(item, "version", 1), 2);
		put(t, number(item, "length", 43), 2);
	} else if (is(item, "con")) {
		put_con(t, item);
	} else if (is(item, "sync")) {
		put(t, 0x53594e43, 4);
		put(t, number(item, "step", 1), 4);
		put(t, number(item, "status", 0), 4);
	} else if (is(item, "plan")) {
		put(t, number(item, "mode", 0), 4);
		put(t, number(item, "size", 0), 4);
		put(t, number(item, "iters", 0), 8);
	} else if (is(item, "lend")) { /* remote/memory.h */
		put(t, number(item, "magic", 0x4d454d32), 4);
		put(t, number(item, "order", 0x04030201), 4);
		put(t, number(item, "number", 1), 4);
		put(t, number(item, "cells", 4), 4);
		put(t, number(item, "bytes", 512), 4);
	} else if (is(item, "handles")) {
		put(t, number(item, "magic", 0x54435058), 4);
		put(t, number(item, "version", 1), 2);
		put(t, number(item, "api", 8), 2);
		put(t, number(item, "count", 1), 2);
		put(t, number(item, "length", 128), 2);
	} else if (is(item, "deal")) {
		put(t, number(item, "magic", 0x504c414e), 4);
		put(t, number(item, "version", 1), 2);
		put(t, number(item, "mode", 0), 2);
		put(t, number(item, "size", 24), 8);
		put(t, number(item, "iters", 1), 8);
		put(t, number(item, "text", 0), 1);
	} else if (put_catalog(t, item)) {
		return;
	} else if (is(item, "text")) {
		memcpy(t->bytes + t->size, value, strlen(value));
		t->size += strlen(value);
	} else if (is(item, "fill")) {
		memset(t->bytes + t->size, 'A', strtoul(value, NULL, 0));
		t->size += strtoul(value, NULL, 0);
	} else if (is(item, "cut")) {
		t->cut = strtoul(value, NULL, 0);
	} else if (is(item, "hear")) {
		t->hear = strtoul(value, NULL, 0);
	} else if (is(item, "trickle")) {
		t->trickle_ms = atoi(value);
	} else if (is(item, "record")) {
		t->record = value;
	} else if (is(item, "close")) {
		t->close = 1;
	} else if (is(item, "reset")) {
		t->reset = 1;
	} else {
		errno = EINVAL;
		die(item);
	}
}

static int listen_once(const char *port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6,
				    .sin6_port = htons((uint16_t)atoi(port)) };
	const int on = 1;
	int sock = socket(AF_INET6, SOCK_STREAM, 0);
	int got;

	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(sock, (struct sockaddr *)&any, sizeof(any)) || listen(sock, 1))
		die("listen");
	got = accept(sock, NULL, NULL);
	if (got < 0)
		die("accept");
	close(sock);
	return got;
}

static int connect_to(const char *address, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)atoi(port)) };

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		die(address);
	for (;;) { /* 期限由 main 里的 alarm 掌管 */
		int sock = socket(AF_INET, SOCK_STREAM, 0);

		if (sock < 0)
			die("socket");
		if (!connect(sock, (struct sockaddr *)&to, sizeof(to)))
			return sock;
		close(sock);
		poll(NULL, 0, 20);
	}
}

static void say(const struct talk *t, int sock)
{
	size_t size = t->size < t->cut ? t->size : t->cut;
	size_t chunk = t->trickle_ms ? 1 : size;

	for (size_t at = 0; at < size; at += chunk) {
		if (send(sock, t->bytes + at, chunk, MSG_NOSIGNAL) < 0)
			return; /* 对方可以随时挂断 */
		if (t->trickle_ms)
			poll(NULL, 0, t->trickle_ms);
	}
}

static void hear(const struct talk *t, int sock)
{
	FILE *to = t->record ? fopen(t->record, "w") : NULL;
	char data[4096];
	ssize_t n;

	for (size_t heard = 0; heard < t->hear || (!t->close && !t->reset);
	     heard += (size_t)n) {
		n = recv(sock, data, sizeof(data), 0);
		if (n <= 0)
			break;
		if (to)
			fwrite(data, 1, (size_t)n, to);
		if (to)
			fflush(to);
	}
	if (to)
		fclose(to);
}

int main(int argc, char *argv[])
{
	static struct talk t = { .cut = SIZE_MAX };
	const struct linger none = { .l_onoff = 1, .l_linger = 0 };
	int first, sock;

	if (argc < 3 || (!strcmp(argv[1], "connect") && argc < 4))
		return 2;
	first = !strcmp(argv[1], "listen") ? 3 : 4;
	for (int i = first; i < argc; i++)
		add(&t, argv[i]);
	alarm(LIMIT_S);
	sock = first == 3 ? listen_once(argv[2]) : connect_to(argv[2], argv[3]);
	say(&t, sock);
	hear(&t, sock);
	if (t.reset)
		setsockopt(sock, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(sock);
	return 0;
}

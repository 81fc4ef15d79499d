// SPDX-License-Identifier: MIT
/*
 * exchange.c —— 把 handle 交给对端：bootstrap 连接上的几条消息
 *
 * 000 号文档之前的做法是把 handle 写进 /tmp/tcpx_handle.dat，再由 client 去读：两台
 * 机器没有共享文件系统，就走不通。这里改走 TCP，用的还是第 4 阶段那几个“精确读写”。
 *
 * handle 在这里只是 128 个字节：不解析、不转字节序、不比较，原样转交。能看懂它的只有
 * 填写它的那个插件、那一版 API。换个插件或换个版本，同样的字节就是别的意思。
 */
#include "exchange.h"

#include "base/report.h"
#include "base/sock.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define HANDLES_MAGIC	 0x54435058u /* "TCPX" */
#define PLAN_MAGIC	 0x504c414eu /* "PLAN" */
#define EXCHANGE_VERSION 1
#define MAX_ITERS	 100000000

struct handles_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t api; /* of the listen that made them */
	uint16_t count;
	uint16_t handle_size; /* bytes of each */
} __attribute__((packed));

struct greeting {
	struct handles_msg head;
	struct tcpx_handle handles[TCPX_MAX_CHANNELS];
} __attribute__((packed));

struct plan_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t mode;
	uint64_t size;
	uint64_t iters;
	uint8_t text;
} __attribute__((packed));

/* 要说的话：头和 handles，连成一片。返回长度。*/
static size_t make_greeting(struct greeting *g, int api,
			    const struct tcpx_handle *handles,
			    unsigned int count)
{
	g->head = (struct handles_msg){
		.magic = htobe32(HANDLES_MAGIC),
		.version = htobe16(EXCHANGE_VERSION),
		.api = htobe16((uint16_t)api),
		.count = htobe16((uint16_t)count),
		.handle_size = htobe16(sizeof(*handles)),
	};
	memcpy(g->handles, handles, count * sizeof(*handles));
	return sizeof(g->head) + count * sizeof(*handles);
}

int tcpx_accept_client(int listen_sock, int api,
		       const struct tcpx_handle *handles, unsigned int count,
		       int64_t deadline)
{
	struct greeting g;
	size_t size = make_greeting(&g, api, handles, count);

	return tcp_accept_client(listen_sock, PLAN_MAGIC, &g, size, deadline);
}

int tcpx_send_handles(int sock, int api, const struct tcpx_handle *handles,
		      unsigned int count, int64_t deadline)
{
	struct greeting g;
	size_t size = make_greeting(&g, api, handles, count);

	return sock_write_exact(sock, &g, size, deadline, "handles");
}

/* 开头的 magic 与 version 两条消息都有，先确认“对面是我们的程序、同一个版本”。*/
static int check_head(const char *what, const void *msg, uint32_t magic,
		      uint16_t version, uint32_t expected)
{
	char text[64];

	if (magic == expected && version == EXCHANGE_VERSION)
		return 0;
	return fail(-EPROTO,
		    magic == expected ? "run the same build on both sides"
				      : "is that port really a "
					"test_connection's bootstrap port?",
		    "the peer's %s begins with magic 0x%08x (\"%s\") version "
		    "%u; expected 0x%08x version %u",
		    what, magic, printable_text(text, sizeof(text), msg, 4),
		    version, expected, EXCHANGE_VERSION);
}

/*
 * 两边各取“最新的一版”，插件却不一样新：版本就悄悄混用了，后果见 001 号报告。handle
 * 里面不能看，那就在外面写明它出自哪一版。
 */
static int check_api(int peers, int mine)
{
	if (!mine || peers == mine)
		return 0;
	return fail(-EPROTO,
		    "give both sides the same plugin, or the same --net-api",
		    "the peer's handle was made by listen of API v%d, this "
		    "side connects through v%d",
		    peers, mine);
}

// region receive-handles
int tcpx_receive_handles(int sock, int api, struct tcpx_handle *handles,
			 unsigned int *count, int64_t deadline)
{
	struct handles_msg msg;
	unsigned int n, size;
	int rc = sock_read_exact(sock, &msg, sizeof(msg), deadline,
				 "handle header");

	if (!rc)
		rc = check_head("handle header", &msg, be32toh(msg.magic),
				be16toh(msg.version), HANDLES_MAGIC);
	if (rc)
		return rc;
	n = be16toh(msg.count);
	size = be16toh(msg.handle_size);
	/* 先检查再读：对端说 65535 个，不等于我们就得准备那么大的 buffer。*/
	if (n < 1 || n > TCPX_MAX_CHANNELS || size != sizeof(*handles))
		return fail(-EPROTO, "run the same build on both sides",
			    "the peer announces %u handles of %u bytes; it "
			    "must be 1 ... %d of %zu",
			    n, size, TCPX_MAX_CHANNELS, sizeof(*handles));
	rc = check_api(be16toh(msg.api), api);
	if (rc)
		return rc;
	rc = sock_read_exact(sock, handles, n * sizeof(*handles), deadline,
			     "handles");
	if (!rc)
		*count = n;
	return rc;
}
// endregion receive-handles

int tcpx_send_plan(int sock, const struct tcpx_plan *plan, int64_t deadline)
{
	struct plan_msg msg = {
		.magic = htobe32(PLAN_MAGIC),
		.version = htobe16(EXCHANGE_VERSION),
		.mode = htobe16((uint16_t)plan->mode),
		.size = htobe64(plan->size),
		.iters = htobe64(plan->iters),
		.text = plan->text,
	};

	return sock_write_exact(sock, &msg, sizeof(msg), deadline, "plan");
}

int tcpx_receive_plan(int sock, struct tcpx_plan *plan, int64_t deadline)
{
	struct plan_msg msg;
	uint64_t size, iters;
	unsigned int mode;
	int rc = sock_read_exact(sock, &msg, sizeof(msg), deadline, "plan");

	if (!rc)
		rc = check_head("plan", &msg, be32toh(msg.magic),
				be16toh(msg.version), PLAN_MAGIC);
	if (rc)
		return rc;
	mode = be16toh(msg.mode);
	size = be64toh(msg.size);
	iters = be64toh(msg.iters);
	if (mode > TCPX_PING_PONG || size > TCPX_MAX_SIZE || iters < 1 ||
	    iters > MAX_ITERS || msg.text > 1 ||
	    (msg.text && (mode != TCPX_CHECK || size != sizeof(TCPX_TEXT))))
		return fail(-EPROTO, "run the same build on both sides",
			    "the peer's plan cannot be: mode %u, %ju "
			    "messages of %ju bytes",
			    mode, iters, size);
	*plan = (struct tcpx_plan){ (enum tcpx_mode)mode, size, iters,
				    msg.text };
	return 0;
}

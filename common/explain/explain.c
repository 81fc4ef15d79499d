// SPDX-License-Identifier: MIT
/*
 * explain.c —— 把 errno 和 wc_status 翻译成“原因 + 下一步 + 证据”
 *
 * 内核对一次错误的 ibv_modify_qp 只回一个 EINVAL；对一次失败的 SEND 只给一个
 * status = 12。这间屋子里的每一句解释都来自内核源码，并且在 rxe 上实测复现过；
 * 凡是有两种可能的，两种都说，并说明怎样区分，绝不猜测。
 *
 * 这个文件是底座。各类调用各有一个文件：
 *
 *	switch.c     RDMA_EXPLAIN=0 关掉解释
 *	net.c        内核的路由表与邻居表怎么看一个地址（netlink）
 *	peer.c       对端的 QP 若就在本机的内核里，看一眼它
 *	path.c       RTR 的地址检查：GID、网卡、路由、邻居
 *	accepted.c   内核收下了、以后却会出事的值；两端说法不一
 *	verbs.c      设备列表、open、reg_mr、create_*、destroy_*
 *	post.c       post_send、post_recv
 *	modify_qp.c  状态机
 *	request.c    从 WR 与 MR 就能证明的原因
 *	wc.c         一个失败的 completion
 *	stall.c      一直没有 completion
 *	cm.c         librdmacm 的调用与事件
 *	grh.c        UD 的消息前面那 40 字节
 *	words.c      从一行原因（causes.def）到一句话，英文或中文
 */
#include "base/call_failed.h"
#include "parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* rxe 在 ibv_query_device 里报的厂商号：三个字节全 1，物理网卡没有这个号。*/
#define RXE_VENDOR_ID 0xffffff

const char *explain_next(char out[EXPLAIN_NEXT_SIZE],
			 const struct explain_words *why)
{
	const char *line = why->seen;
	size_t used;

	if (!why->next[0] && !why->seen[0])
		return NULL;
	used = (size_t)snprintf(out, EXPLAIN_NEXT_SIZE, "%s", why->next);
	while (*line && used < EXPLAIN_NEXT_SIZE) {
		size_t len = strcspn(line, "\n");

		used += (size_t)snprintf(out + used, EXPLAIN_NEXT_SIZE - used,
					 "\n seen: %.*s", (int)len, line);
		line += len + (line[len] == '\n');
	}
	return out;
}

int verb_failed(int err, struct explanation why, const char *fmt, ...)
{
	struct explain_words words;
	char next[EXPLAIN_NEXT_SIZE];
	char call[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(call, sizeof(call), fmt, ap);
	va_end(ap);
	explain_in_words(&words, &why, false);
	return call_failed_for(err, words.cause[0] ? words.cause : NULL,
			       explain_next(next, &words), "%s", call);
}

void restore_errno(const int *kept)
{
	errno = *kept;
}

bool gid_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

bool gid_is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return memcmp(gid->raw, zero.raw, sizeof(zero.raw)) == 0;
}

bool peek_at_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		struct ibv_qp_init_attr *init)
{
	enum ibv_qp_state remembered = qp->state;

	/*
	 * ibv_query_qp 会顺手改写缓存 qp->state。解释器只看不动：被解释的程序（也许
	 * 是别人的）不该因为有人看了一眼就换了一种行为。
	 */
	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));
	if (ibv_query_qp(qp, attr, mask, init))
		return false;
	if (qp->state == attr->qp_state)
		qp->state = remembered;
	return true;
}

bool device_is_rxe(struct ibv_context *context)
{
	struct ibv_device_attr attr;

	return !ibv_query_device(context, &attr) &&
	       attr.vendor_id == RXE_VENDOR_ID;
}

const char *device_of(struct ibv_context *context)
{
	return ibv_get_device_name(context->device);
}

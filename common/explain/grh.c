// SPDX-License-Identifier: MIT
/*
 * grh.c —— UD receive 的前 40 字节：名字叫 GRH，里面却未必是 GRH
 *
 * InfiniBand 上这 40 字节是 GRH，dgid 在最后 16 字节。RoCE v2 把 GRH 换成了 IP
 * 头：IPv6 头也是 40 字节，目的地址恰好落在 dgid 的位置上；IPv4 头只有 20 字节，放在后
 * 一半，前 20 字节没有定义。于是同一段“比较 dgid 与我的 GID”的代码，换到 IPv4 上永
 * 远不相等：completion 是成功的，程序却把每一个包都扔了，而且没有人报错。
 *
 * 怎么知道是哪一种？struct ibv_wc 里没有这一项。mlx5 把包的类型放进 wc.sl（2 是
 * IPv4），rxe 与 irdma 让它保持 0：只能看 GID 的地址族，不能看 sl。
 */
#include "parts.h"

#include <arpa/inet.h>
#include <string.h>

/* GRH 与 IPv6 头里的位置；IPv4 头的位置从它自己的开头算起。*/
#define NEXT_AT	   6
#define DGID_AT	   24
#define IPV4_AT	   20
#define PROTO_AT   9
#define SADDR_AT   12
#define DADDR_AT   16
#define NO_OPTIONS 0x45 /* IPv4，头长 5 个字 */

#define NEXT_UDP  17   /* RoCE v2 */
#define NEXT_BTH  0x1b /* InfiniBand，RoCE v1：GRH 后面直接是 BTH */
#define MAPPED_AT 12   /* ::ffff:a.b.c.d 里的 a */

struct forty {
	const uint8_t *bytes, *ipv4;
	union ibv_gid dgid;   /* 当作 GRH 读 */
	union ibv_gid mapped; /* 当作 IPv4 头读：::ffff:daddr */
};

static struct forty read_forty(const uint8_t *bytes)
{
	struct forty f = { .bytes = bytes,
			   .ipv4 = bytes + IPV4_AT,
			   .mapped.raw = { [10] = 0xff, [11] = 0xff } };

	memcpy(&f.dgid, bytes + DGID_AT, sizeof(f.dgid));
	memcpy(f.mapped.raw + MAPPED_AT, f.ipv4 + DADDR_AT, 4);
	return f;
}

/* 前 20 字节没有定义，可能是上一个包留下的 IPv6 头：所以两种都看，不先入为主。*/
static bool holds_ipv4(const struct forty *f)
{
	return f->ipv4[0] == NO_OPTIONS && f->ipv4[PROTO_AT] == NEXT_UDP;
}

static bool holds_grh(const struct forty *f)
{
	return f->bytes[0] >> 4 == 6 &&
	       (f->bytes[NEXT_AT] == NEXT_UDP || f->bytes[NEXT_AT] == NEXT_BTH);
}

static bool same_gid(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static struct explanation is_ipv4(const struct forty *f,
				  const struct ibv_wc *wc)
{
	char from[INET_ADDRSTRLEN], to[INET_ADDRSTRLEN];
	struct explanation why;

	inet_ntop(AF_INET, f->ipv4 + SADDR_AT, from, sizeof(from));
	inet_ntop(AF_INET, f->ipv4 + DADDR_AT, to, sizeof(to));
	why = because("grh-is-ipv4");
	also_seen(&why, "ipv4-header", "%s\t%s", from, to);
	also_seen(&why, "wc-sl", "%u", wc->sl);
	return why;
}

struct explanation explain_grh(const struct ibv_wc *wc, const void *forty,
			       const union ibv_gid *mine)
{
	const struct forty f = read_forty(forty);

	if (!(wc->wc_flags & IBV_WC_GRH) ||
	    (holds_grh(&f) && same_gid(&f.dgid, mine)) || !holds_ipv4(&f) ||
	    !same_gid(&f.mapped, mine))
		return no_idea();
	return is_ipv4(&f, wc);
}

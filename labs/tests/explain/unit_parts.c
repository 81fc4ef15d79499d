// SPDX-License-Identifier: MIT
/*
 * unit_parts.c —— parts.h 里的零件：证据、GID、看一眼 QP、GRH；以及关掉之后不再打听
 *
 * 替身与 unit_explain.c 的相同。
 */
#include "explain/parts.h"
#include "world.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 半行证据比没有更糟：一行放得下就整行在，放不下就整行不在；前面的不动。*/
static void test_evidence(void)
{
	struct explanation why = because("id", "next", "cause %d", 7),
			   none = { 0 };
	const size_t most = 299, room = sizeof(why.seen) - 1;
	char line[301];

	expect_word("a cause", &why, "id", "cause 7");
	also_seen(&none, "something");
	expect_true("no evidence without a cause", !none.seen[0]);
	also_seen(&why, "%d", 1);
	also_seen(&why, "%d", 2);
	expect_true("a line each", !strcmp(why.seen, "1\n2"));
	memset(line, 'x', sizeof(line));
	line[most] = '\0';
	also_seen(&why, "%s", line);
	expect_true("a long line", strlen(why.seen) == 4 + most);
	line[most] = 'x';
	line[most + 1] = '\0';
	also_seen(&why, "%s", line);
	expect_true("a byte longer", strlen(why.seen) == 4 + most);
	line[most] = '\0';
	while (strlen(why.seen) + 1 + most < room)
		also_seen(&why, "%s", line);
	line[room - strlen(why.seen) - 1] = '\0';
	also_seen(&why, "%sx", line);
	expect_true("a byte more than there is room", strlen(why.seen) < room);
	also_seen(&why, "%s", line);
	expect_true("all the room", strlen(why.seen) == room);
	also_seen(&why, "y");
	expect_true("no room at all", strlen(why.seen) == room);
}

/* 头 12 个字节都对，才是 IPv4；16 个字节都是 0，才是空的。*/
static void test_gids(void)
{
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff } }, zero = { 0 };

	expect_true("IPv4", gid_is_ipv4(&gid) && !gid_is_zero(&gid));
	for (int i = 0; i < 12; i++) {
		gid.raw[i] ^= 1;
		expect_true("one bit off", !gid_is_ipv4(&gid));
		gid.raw[i] ^= 1;
	}
	expect_true("empty", gid_is_zero(&zero));
	for (int i = 0; i < 16; i++) {
		zero.raw[i] = 1;
		expect_true("not empty", !gid_is_zero(&zero));
		zero.raw[i] = 0;
	}
}

static bool all_zero(const void *data, size_t size)
{
	const char *p = data;

	return !*p && !memcmp(p, p + 1, size - 1);
}

static void test_peek(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_RTS);
	expect_true("a QP", peek_at_qp(&qp, &attr, IBV_QP_STATE, &init) &&
				    attr.qp_state == IBV_QPS_RTS);
	world.qp_unknown = true;
	memset(&attr, 0xff, sizeof(attr));
	memset(&init, 0xff, sizeof(init));
	expect_true("a QP that cannot be asked",
		    !peek_at_qp(&qp, &attr, IBV_QP_STATE, &init) &&
			    all_zero(&attr, sizeof(attr)) &&
			    all_zero(&init, sizeof(init)));
}

/* ---- UD 的 40 字节 ----------------------------------------------------------- */

/* 在 @forty 的 20 处放一个 IPv4 头，或者在 0 处放一个 IPv6 头（next：见各处）。*/
static void put_ipv4(uint8_t *forty, const uint8_t daddr[4])
{
	static const uint8_t saddr[4] = { 10, 99, 0, 1 };

	forty[20] = 0x45;
	forty[29] = 17;
	memcpy(forty + 32, saddr, 4);
	memcpy(forty + 36, daddr, 4);
}

static void put_ipv6(uint8_t *forty, const union ibv_gid *dgid, uint8_t next)
{
	forty[0] = 0x60;
	forty[6] = next;
	memcpy(forty + 24, dgid, 16);
}

static void test_grh_over_ipv4(void)
{
	const union ibv_gid mine = {
		.raw = { [10] = 0xff, 0xff, 10, 99, 0, 2 }
	};
	const uint8_t me[4] = { 10, 99, 0, 2 }, other[4] = { 10, 99, 0, 3 };
	const union ibv_gid six = { .raw = { 0xfe, 0x80, [15] = 7 } };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct explanation why;
	uint8_t forty[40] = { 0 };

	put_ipv4(forty, me);
	why = explain_grh(&wc, forty, &mine);
	expect("IPv4, and it is for me", &why, "grh-is-ipv4");
	expect_true("and where it is from",
		    strstr(why.seen, "IPv4, 10.99.0.1 -> 10.99.0.2"));
	/* 前 20 字节没有定义：这里是上一个包的 IPv6 头。*/
	forty[0] = 0x60;
	forty[6] = 17;
	why = explain_grh(&wc, forty, &mine);
	expect("IPv4 after an IPv6 header", &why, "grh-is-ipv4");
	memset(forty, 0, sizeof(forty));
	put_ipv4(forty, me);
	forty[20] = 0x46;
	why = explain_grh(&wc, forty, &mine);
	expect("no 20 bytes of IPv4", &why, NULL);
	put_ipv4(forty, me);
	forty[29] = 6;
	why = explain_grh(&wc, forty, &mine);
	expect("IPv4 without UDP", &why, NULL);
	put_ipv4(forty, other);
	why = explain_grh(&wc, forty, &mine);
	expect("IPv4, for another", &why, "dgid-differs");
	expect_true("both addresses are named",
		    strstr(why.cause, "::ffff:10.99.0.3") &&
			    strstr(why.cause, "::ffff:10.99.0.2"));
	/* 我的 GID 是 IPv6，最后 4 字节碰巧一样：不算。*/
	why = explain_grh(&wc, forty, &six);
	expect("IPv4 for one with an IPv6 GID", &why, "dgid-differs");
	wc.wc_flags = 0;
	why = explain_grh(&wc, forty, &mine);
	expect("no GRH at all", &why, "no-grh");
}

static void test_grh(void)
{
	const union ibv_gid mine = { .raw = { 0xfe, 0x80, [15] = 7 } };
	const union ibv_gid other = { .raw = { 0xff, 0x12, [15] = 1 } };
	const struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	const uint8_t v1_and_v2[] = { 0x1b, 17 };
	struct explanation why;
	uint8_t forty[40];

	for (int i = 0; i < 2; i++) {
		memset(forty, 0, sizeof(forty));
		put_ipv6(forty, &mine, v1_and_v2[i]);
		why = explain_grh(&wc, forty, &mine);
		expect("a GRH for me", &why, NULL);
		put_ipv6(forty, &other, v1_and_v2[i]);
		why = explain_grh(&wc, forty, &mine);
		expect("a GRH for another", &why, "dgid-differs");
	}
	put_ipv6(forty, &other, 6);
	why = explain_grh(&wc, forty, &mine);
	expect("neither UDP nor BTH follows", &why, NULL);
	memset(forty, 0xa5, sizeof(forty));
	why = explain_grh(&wc, forty, &mine);
	expect("garbage", &why, NULL);
}

/* ---- 两端 ------------------------------------------------------------------ */

static struct explain_side side(const char *name, uint32_t mine, uint32_t its)
{
	return (struct explain_side){
		.name = name,
		.qp_num = mine,
		.gid = { .raw = { [15] = (uint8_t)mine } },
		.attr = { .dest_qp_num = its,
			  .ah_attr.grh.dgid.raw = { [15] = (uint8_t)its },
			  .max_rd_atomic = 4,
			  .max_dest_rd_atomic = 4 },
		.attr_mask = IBV_QP_DEST_QPN | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN |
			     IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC |
			     IBV_QP_MAX_DEST_RD_ATOMIC,
	};
}

static void expect_pair(const char *what, const struct explain_side *a,
			const struct explain_side *b, const char *id,
			const char *word)
{
	struct explanation all[EXPLAIN_MOST] = { 0 };

	explain_pair(a, b, all, EXPLAIN_MOST);
	expect_word(what, &all[0], id, word);
}

static void test_pairs(void)
{
	struct explain_side a = side("A", 0x11, 0x12),
			    b = side("B", 0x12, 0x11);

	expect_pair("two that match", &a, &b, NULL, "");
	a.attr.max_rd_atomic = 5;
	expect_pair("a READ too many", &a, &b, "rd-atomic-differs", "A may");
	a.attr_mask &= ~IBV_QP_MAX_QP_RD_ATOMIC;
	expect_pair("which was not asked for", &a, &b, NULL, "");
	b.attr.sq_psn = 0x7fffff;
	expect_pair("half a ring less one", &a, &b, "psn-differs",
		    "B begins with PSN 8388607, but A expects 0: the packets "
		    "are taken for the ones after a gap");
	b.attr.sq_psn = 0x800000;
	expect_pair("half a ring", &a, &b, "psn-differs", "old ones");
	a.gid.raw[0] = 1;
	expect_pair("another GID", &a, &b, "gid-differs", "B sends to GID");
	b.attr_mask &= ~IBV_QP_AV;
	expect_pair("B gave none", &a, &b, "psn-differs", "");
	b.attr.dest_qp_num = 1;
	expect_pair("no QPN", &a, &b, "qpn-not-set", "is 1");
	b.attr.dest_qp_num = 2;
	expect_pair("another QPN", &a, &b, "qpn-differs", "0x2, but A is");
}

/* 记下的只是 mask 里有的，一次一次加起来。*/
static void test_what_a_side_learns(void)
{
	struct explain_side a = { .name = "A", .qp_num = 0x11 };
	struct explain_side b = side("B", 0x12, 0x11);
	struct ibv_qp_attr attr = { .dest_qp_num = 0x13, .sq_psn = 7 };

	explain_side_learn(&a, &attr, IBV_QP_SQ_PSN);
	expect_pair("its PSN", &a, &b, "psn-differs", "with PSN 7");
	attr.sq_psn = 8;
	explain_side_learn(&a, &attr, IBV_QP_DEST_QPN);
	expect_pair("its QPN, too", &a, &b, "qpn-differs", "0x13");
	expect_true("and no more", a.attr.sq_psn == 7);
}

/* ---- 其余 ----------------------------------------------------------------- */

/* 字节颠倒了的 QPN 本身不是 QPN，倒过来才是。*/
static void test_swapped(void)
{
	static const struct {
		uint32_t qpn;
		const char *id;
	} rows[] = {
		{ 0, NULL },
		{ 0x11, NULL },
		{ 0xffffff, NULL },
		{ 0x120000, NULL },
		{ 0x1000001, NULL },
		{ 0x11000000, "qpn-byte-order" },
		{ 0xffffff00, "qpn-byte-order" },
	};
	struct explanation why;

	for (size_t i = 0; i < LENGTH(rows); i++) {
		why = explain_swapped_qpn(rows[i].qpn);
		expect("a QPN", &why, rows[i].id);
	}
}

/* 只有这么多地方放得下：一个也不多写（ASan 看着）。*/
static void test_room_for_findings(void)
{
	struct explain_side a = { .name = "A", .attr_mask = ~0 }, b = a;
	struct ibv_qp_attr attr;

	a.attr.path_mtu = IBV_MTU_256;
	a.attr.sq_psn = a.attr.rq_psn = 1;
	for (size_t most = 0; most < 4; most++) {
		struct explanation *out = calloc(most, sizeof(*out));

		expect_true("differences",
			    explain_pair(&a, &b, out, most) == most);
		free(out);
	}
	ordinary_world(IBV_QPS_RTR);
	attr = good_attr(IBV_QPS_RTR);
	attr.rq_psn = 1 << 24;
	attr.path_mtu = IBV_MTU_4096;
	for (size_t most = 0; most < 3; most++) {
		struct explanation *out = calloc(most, sizeof(*out));

		expect_true("values",
			    explain_accepted(&qp, &attr, rtr_bits, IBV_QPS_INIT,
					     out, most) == most);
		free(out);
	}
}

/* 内核万一不答，也只等一秒。*/
static void test_netlink(void)
{
	int sock = open_netlink(NETLINK_ROUTE);
	struct timeval limit = { 0 };
	socklen_t size = sizeof(limit);

	getsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, &size);
	expect_true("netlink", limit.tv_sec == 1 && !limit.tv_usec &&
				       fcntl(sock, F_GETFD) == FD_CLOEXEC);
	close(sock);
}

/* 0 号 fd 也是一个 fd；一个也没有了，就少说一点，可是照样说。*/
static void test_descriptors(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	const int errs[] = { ENETUNREACH, ETIMEDOUT, ENODEV };
	struct rlimit before, none;
	struct explanation why;
	struct ibv_qp_attr attr;
	union ibv_gid gid;
	int kept = dup(0);

	getrlimit(RLIMIT_NOFILE, &before);
	for (int without = 0; without < 2; without++) {
		close(0);
		none = before;
		none.rlim_cur = 0;
		ordinary_world(IBV_QPS_INIT);
		gid = world.gid.gid;
		net_route_to(&gid, 0);
		if (without)
			setrlimit(RLIMIT_NOFILE, &none);
		/* 上一次的答案还在栈上：不能当成这一次的。*/
		expect_true("the way", (net_route_to(&gid, 0).kind ==
					NET_ROUTE_UNKNOWN) == without);
		world.gid.ndev_ifindex = 1;
		attr = good_attr(IBV_QPS_RTR);
		world.qp.ah_attr = attr.ah_attr;
		for (size_t i = 0; i < LENGTH(errs); i++) {
			why = explain_modify_qp(&qp, &attr, rtr_bits, errs[i]);
			expect_true("a cause", why.cause[0]);
			expect_true("of what could be asked",
				    (strstr(why.seen, "on lo (up, carrier)") !=
				     NULL) == !without);
			expect_true("fd 0 is free", fcntl(0, F_GETFD) < 0);
		}
		why = explain_completion(&qp, &wc, NULL);
		expect_true("a cause", why.cause[0]);
		why = explain_reg_mr_call(&pd, &attr, sizeof(attr), 0, ENOMEM);
		expect_true("memory", without == !why.id);
		why = explain_reg_mr_call(&pd, &attr, sizeof(attr), 0, EFAULT);
		expect("a mapping", &why, without ? NULL : "mr-cannot-pin");
		expect_true("fd 0 is free", fcntl(0, F_GETFD) < 0);
		setrlimit(RLIMIT_NOFILE, &before);
		dup2(kept, 0);
	}
	close(kept);
}

/* 打开 sysfs 要的那几个 fd 没有了，列表就是空的。*/
static void test_too_few_descriptors(void)
{
	struct rlimit before, few;
	struct explanation why;

	getrlimit(RLIMIT_NOFILE, &before);
	few = before;
	few.rlim_cur = 4; /* 0 号已经用掉 */
	setrlimit(RLIMIT_NOFILE, &few);
	why = explain_device_list(0);
	expect("fd 0 is used, and 4 may be", &why, "no-descriptors");
	few.rlim_cur = 1000;
	setrlimit(RLIMIT_NOFILE, &few);
	why = explain_device_list(0);
	expect("1000 may be", &why,
	       strstr(why.seen, "absent") ? "no-rdma-modules" : why.id);
	expect_true("and they are not used up",
		    strcmp(why.id, "no-descriptors") &&
			    !access("/sys/class/infiniband", F_OK) ==
				    !strstr(why.seen, "absent"));
	setrlimit(RLIMIT_NOFILE, &before);
	why = explain_device_list(ENOMEM);
	expect("no memory", &why, "no-memory");
}

static bool may_pin(void)
{
	struct __user_cap_header_struct who = {
		.version = _LINUX_CAPABILITY_VERSION_3
	};
	struct __user_cap_data_struct caps[2] = { 0 };

	syscall(SYS_capget, &who, caps);
	return caps[0].effective >> CAP_IPC_LOCK & 1;
}

/* 没有 CAP_IPC_LOCK 的人，多一个字节也不行；有的，不受限制。*/
static void test_memlock(void)
{
	static char here[4096];
	struct rlimit before, now;
	struct explanation why;
	const bool root = may_pin();
	const int more[] = { -1, 0, 0 };

	getrlimit(RLIMIT_MEMLOCK, &before);
	for (int able = root; able >= 0; able--) {
		/* 只换 euid，CapEff 就清空；换回来又有。*/
		if (root && !able && seteuid(65534))
			continue;
		for (size_t i = 0; i < LENGTH(more); i++) {
			const bool over = !able && more[i] == -1;

			now = before;
			now.rlim_cur = sizeof(here) + (rlim_t)more[i];
			if (i == 2)
				now.rlim_cur = before.rlim_max;
			setrlimit(RLIMIT_MEMLOCK, &now);
			why = explain_reg_mr_call(&pd, here, sizeof(here), 1,
						  ENOMEM);
			expect("memory to pin", &why,
			       over ? "memlock" : "no-memory");
			expect_true("what is pinned",
				    strstr(why.seen, "pinned 0 bytes, "));
			expect_true("who may",
				    !strstr(why.seen, "LOCK held") == !able);
		}
		if (root && seteuid(0))
			abort();
	}
	setrlimit(RLIMIT_MEMLOCK, &before);
}

/* 关掉了，就连问也不问。*/
static void test_off_asks_nobody(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	struct ibv_cq cq;
	const struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					       .send_cq = &cq,
					       .recv_cq = &cq };
	struct ibv_send_wr send = { .num_sge = 0 };
	struct ibv_recv_wr recv = { .num_sge = 0 };
	struct explanation all[EXPLAIN_MOST];
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_RTR);
	attr = good_attr(IBV_QPS_RTR);
	setenv("RDMA_EXPLAIN", "0", 1);
	explain_modify_qp(&qp, &attr, rtr_bits, EINVAL);
	explain_create_ah(&pd, &attr.ah_attr, EINVAL);
	explain_accepted(&qp, &attr, rtr_bits, IBV_QPS_INIT, all, EXPLAIN_MOST);
	explain_completion(&qp, &wc, NULL);
	explain_stall(&qp, NULL, 30);
	explain_create_qp_call(&pd, &init, EINVAL);
	explain_create_cq_call(&context, 1, 0, EINVAL);
	explain_reg_mr_call(&pd, &attr, sizeof(attr), 0, EINVAL);
	explain_post_send(&qp, &send, EINVAL);
	explain_post_recv(&qp, &recv, EINVAL);
	expect_true("nobody is asked", !world.asked);
	unsetenv("RDMA_EXPLAIN");
	explain_modify_qp(&qp, &attr, rtr_bits, EINVAL);
	expect_true("but for that", world.asked);
}

int main(void)
{
	test_evidence();
	test_gids();
	test_peek();
	test_grh_over_ipv4();
	test_grh();
	test_pairs();
	test_what_a_side_learns();
	test_swapped();
	test_room_for_findings();
	test_netlink();
	test_descriptors();
	test_too_few_descriptors();
	test_memlock();
	test_off_asks_nobody();
	return failures ? 1 : 0;
}

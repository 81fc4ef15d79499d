// SPDX-License-Identifier: MIT
/*
 * unit_network.c —— 解释器问内核的那些：路由、网卡、本机的 QP
 *
 *	unit_network             问得到 lo 就够的
 *	unit_network routes      在 test_catalogue.sh 搭的 network namespace 里
 *	unit_network DEVICE GID  本机的一个设备和它的 GID
 *
 * libibverbs 的回答仍是替身的（world.h）；网络是真的。
 */
#include "explain/parts.h"
#include "world.h"

#include <net/if.h>

static int own_device = 1; /* lo */

static struct explanation reach(const char *gid, int err)
{
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_INIT);
	world.gid.ndev_ifindex = (uint32_t)own_device;
	attr = good_attr(IBV_QPS_RTR);
	inet_pton(AF_INET6, gid, &attr.ah_attr.grh.dgid);
	return explain_modify_qp(&qp, &attr, rtr_bits, err);
}

static void expect_reach(const char *gid, int err, const char *id,
			 const char *word, const char *seen)
{
	struct explanation why = reach(gid, err);

	expect_word(gid, &why, id, word);
	if (strstr(why.seen, seen))
		return;
	failures++;
	printf("not ok %s: \"%s\" is not in: %s\n", gid, seen, why.seen);
}

static void test_no_device(void)
{
	expect_reach("fd00::1", EINVAL, "gid-families-differ", "IPv4-mapped",
		     "my GID: slot 0, ::ffff:0.0.0.1\n"
		     "the peer's GID: fd00::1");
	expect_reach("::ffff:127.0.0.2", ENODEV, "peer-on-loopback",
		     "::ffff:127.0.0.2", "");
	expect_reach("::ffff:0.0.0.0", ENODEV, "gid-zero-ipv4", "nobody", "");
	expect_reach("::ffff:0.0.0.1", ENODEV, "peer-on-loopback", "", "");
	own_device = 0;
	expect_reach("::ffff:127.0.0.2", ENODEV, "gid-without-netdev", "slot 0",
		     "on no network device (down, no carrier)");
	own_device = 1;
}

/* 选了空的槽位：满的是哪些，至多说八个，而且只说这个 port 的。*/
static void test_slots(void)
{
	struct ibv_qp_attr attr;
	struct explanation why;

	ordinary_world(IBV_QPS_INIT);
	attr = good_attr(IBV_QPS_RTR);
	world.slots = -1;
	why = explain_modify_qp(&qp, &attr, rtr_bits, ENODATA);
	expect_word("no table", &why, "gid-slot-empty", "slot 0");
	expect_true("and no slots", !strstr(why.seen, "slot"));
	world.slots = LENGTH(world.table);
	for (uint32_t i = 0; i < LENGTH(world.table); i++)
		world.table[i] = (struct ibv_gid_entry){
			.gid_index = 20 + i,
			.port_num = i == 3 ? 2 : 1,
			.gid_type = IBV_GID_TYPE_ROCE_V2,
		};
	why = explain_modify_qp(&qp, &attr, rtr_bits, ENODATA);
	expect("a table", &why, "gid-slot-empty");
	for (uint32_t i = 0; i < LENGTH(world.table); i++) {
		char slot[32];

		snprintf(slot, sizeof(slot), "slot %u: ::, RoCE v2", 20 + i);
		expect_true(slot,
			    !strstr(why.seen, slot) == (i == 3 || i >= 8));
	}
}

/* 去 198.51.100.0/24 有网关，却不经过 lo：问的是经 lo 怎么走，不是随便怎么走。*/
static void test_routes(void)
{
	expect_reach("::ffff:198.51.100.1", ETIMEDOUT, "no-route", "by lo",
		     "slot 0, ::ffff:0.0.0.1, on lo (up, carrier)\n"
		     "the peer's GID: ::ffff:198.51.100.1");
	/* 问路由时，内核把这三种都当作错误码来回答，各是一个。*/
	expect_reach("::ffff:203.0.113.1", ETIMEDOUT, "route-refused", "", "");
	expect_reach("::ffff:203.0.113.2", ETIMEDOUT, "route-refused", "", "");
	expect_reach("::ffff:203.0.113.3", ETIMEDOUT, "route-refused", "", "");
	expect_reach("fd00:4::1", ETIMEDOUT, "route-refused", "", "");
	expect_reach("fd00:4::2", ETIMEDOUT, "route-refused", "", "");
	expect_reach("fd00:4::3", ETIMEDOUT, "route-refused", "", "");
	own_device = (int)if_nametoindex("near");
	expect_reach("::ffff:198.18.0.1", ETIMEDOUT, "no-route", "by near", "");
	own_device = (int)if_nametoindex("far");
	expect_reach("::ffff:192.0.2.9", ETIMEDOUT, "no-route", "by far", "");
	own_device = (int)if_nametoindex("near");
	expect_reach("::ffff:192.0.2.1", ETIMEDOUT, "peer-is-local-address",
		     "not of near", "");
	expect_reach("::ffff:127.0.0.1", ETIMEDOUT, "peer-is-local-address", "",
		     "");
	expect_reach("fd00:2::9", ENETUNREACH, "no-ipv6-route",
		     "fd00:2::9 from near", "");
}

static const uint8_t *mac_of(const char *address)
{
	static uint8_t mac[6];
	union ibv_gid gid;

	inet_pton(AF_INET6, address, &gid);
	memset(mac, 0xff, sizeof(mac));
	net_neighbour(&gid, own_device, mac);
	return mac;
}

/* 同一条链路上，或者去网关：没有应答的是谁，邻居表里怎么写的？*/
static void test_neighbours(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	struct explanation why;

	own_device = (int)if_nametoindex("near");
	expect_reach("::ffff:192.0.2.9", ETIMEDOUT, "no-neighbour",
		     "resolved: ::ffff:192.0.2.9 on near did not answer ARP",
		     "neighbour ::ffff:192.0.2.9 on near: no entry");
	expect_reach("::ffff:192.0.2.10", ETIMEDOUT, "neighbour-late",
		     "::ffff:192.0.2.10 came", "on near: known now");
	expect_reach("::ffff:192.0.2.11", ETIMEDOUT, "no-neighbour", "ARP",
		     "on near: FAILED");
	expect_reach("::ffff:192.0.2.12", ETIMEDOUT, "no-neighbour", "ARP",
		     "on near: INCOMPLETE");
	expect_reach("::ffff:198.51.100.1", ETIMEDOUT, "gateway-silent",
		     "the gateway ::ffff:192.0.2.2 on near", "no entry");
	expect_reach("fd00:1::9", ETIMEDOUT, "no-neighbour",
		     "fd00:1::9 on near did not answer neighbour discovery",
		     "on near: no entry");
	expect_reach("fd00:1::10", ETIMEDOUT, "neighbour-late", "fd00:1::10",
		     "known now");
	expect_reach("fd00:3::9", ETIMEDOUT, "gateway-silent",
		     "the gateway fd00:1::2 on near", "no entry");
	expect_true("a MAC",
		    !memcmp(mac_of("::ffff:192.0.2.10"), "\2\0\0\0\0\x10", 6));
	expect_true("none",
		    !memcmp(mac_of("::ffff:192.0.2.9"), "\0\0\0\0\0", 6));
	/* 对端不在本机，核对不了它的 MAC。*/
	world.qp.ah_attr.grh.dgid.raw[0] = 1;
	why = explain_completion(&qp, &wc, NULL);
	expect("a peer elsewhere", &why, "RETRY_EXC_ERR");
}

/* 网卡 down 了，或者网线另一头 down 了。*/
static void test_links(void)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	static const struct {
		const char *name, *id, *word;
	} rows[] = {
		{ "off", "netdev-down", "off behind my GID is down" },
		{ "bare", "netdev-down", "bare behind my GID has no carrier" },
		{ "near", "RETRY_EXC_ERR", "no ACK" },
	};
	struct explanation why;

	for (size_t i = 0; i < LENGTH(rows); i++) {
		ordinary_world(IBV_QPS_RTS);
		world.gid.ndev_ifindex = if_nametoindex(rows[i].name);
		why = explain_completion(&qp, &wc, NULL);
		expect_word(rows[i].name, &why, rows[i].id, rows[i].word);
		why = explain_stall(&qp, NULL, 30);
		expect_word("and nothing comes", &why,
			    i < 2 ? rows[i].id : "no-completion",
			    i < 2 ? rows[i].word : "");
	}
	world.gid.ndev_ifindex = if_nametoindex("off");
	why = explain_port(&context, 1);
	expect_word("a port that is not active", &why, "netdev-down", "off");
	world.gid.ndev_ifindex = if_nametoindex("bare");
	why = explain_port(&context, 1);
	expect_word("a port that nobody is at", &why, "no-carrier", "none0");
	own_device = (int)if_nametoindex("off");
	expect_reach("fd00:2::9", ENETUNREACH, "netdev-down", "off", "");
	own_device = (int)if_nametoindex("bare");
	expect_reach("::ffff:192.0.2.9", ETIMEDOUT, "no-carrier", "bare", "");
}

/* 一千个 QP，内核要用几条消息才列得完；最后一个也找得到。*/
static void test_many_qps(const char *own_gid)
{
	enum {
		MANY = 1000
	};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device **d = list;
	struct ibv_context *real;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qps[MANY];
	struct local_peer peer;
	union ibv_gid gid;
	struct ibv_pd *of;

	while (*d && strcmp((*d)->name, device_name))
		d++;
	real = ibv_open_device(*d);
	of = ibv_alloc_pd(real);
	init.send_cq = init.recv_cq = ibv_create_cq(real, 1, NULL, NULL, 0);
	for (int i = 0; i < MANY; i++)
		qps[i] = ibv_create_qp(of, &init);
	inet_pton(AF_INET6, own_gid, &gid);
	peer = find_local_peer(&gid, qps[0]->qp_num);
	expect_true("the first of many QPs", peer.found);
	peer = find_local_peer(&gid, qps[MANY - 1]->qp_num);
	expect_true("the last of many QPs", peer.found);
	for (int i = 0; i < MANY; i++)
		ibv_destroy_qp(qps[i]);
	ibv_destroy_cq(init.send_cq);
	ibv_dealloc_pd(of);
	ibv_close_device(real);
	ibv_free_device_list(list);
}

/* 本机有这个 GID 的设备上，对端的 QP 在不在、是什么样。*/
static void test_local_peers(const char *own_gid)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	union ibv_gid gid, nobodys = { .raw = { 1 } };
	struct local_peer peer;
	struct explanation why;
	uint8_t mac[6];

	inet_pton(AF_INET6, own_gid, &gid);
	peer = find_local_peer(&gid, 1); /* GSI：没有对端 */
	expect_true("QP 1", peer.found && peer.sees_all && !peer.dest_qp_num &&
				    !strcmp(peer.device, device_name));
	peer = find_local_peer(&gid, 0xfffffe);
	expect_true("no such QP", !peer.found && peer.sees_all);
	peer = find_local_peer(&nobodys, 1);
	expect_true("no such GID",
		    !peer.found && !peer.sees_all && !peer.device[0]);
	expect_true("the MAC address",
		    device_mac(device_name, mac) && !device_mac("none0", mac));
	expect_true("counters", hw_counter(device_name, "sent_pkts") >= 0 &&
					hw_counter(device_name, "none") == -1 &&
					hw_counter("none0", "sent_pkts") == -1);
	ordinary_world(IBV_QPS_RTS);
	world.qp.dest_qp_num = 0xfffffe;
	why = explain_completion(&qp, &wc, NULL);
	expect("a peer without a GID", &why, "RETRY_EXC_ERR");
	world.qp.ah_attr.grh.dgid = gid;
	why = explain_completion(&qp, &wc, NULL);
	expect_word("a peer that is gone", &why, "peer-qp-absent", "0xfffffe");
	qp.qp_type = IBV_QPT_UD;
	why = explain_completion(&qp, &wc, NULL);
	expect("UD has none", &why, "RETRY_EXC_ERR");
}

int main(int argc, char **argv)
{
	if (argc > 2) {
		device_name = argv[1];
		test_local_peers(argv[2]);
		test_many_qps(argv[2]);
	} else if (argc > 1) {
		test_no_device();
		test_routes();
		test_neighbours();
		test_links();
	} else {
		test_no_device();
		test_slots();
	}
	return failures ? 1 : 0;
}

// SPDX-License-Identifier: MIT
/*
 * unit_network.c —— 解释器问内核的那些：路由、网卡、本机的 QP
 *
 *	unit_network             问得到 lo 就够的
 *	unit_network routes      在 test_catalogue.sh 搭的 network namespace 里
 *	unit_network alone       连 lo 也没有 up
 *	unit_network mac GID [ID]  去 GID 的 MAC 对不对（ID 是不对时的原因）
 *	unit_network DEVICE GID  本机的一个设备和它的 GID
 *
 * libibverbs 的回答仍是替身的（world.h）；网络是真的。
 */
#include "explain/parts.h"
#include "world.h"

#include <net/if.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int own_device = 1; /* lo */
static bool answers_lost;

/* 替身：内核的回答放不下，丢了。*/
ssize_t recv(int sock, void *data, size_t size, int flags)
{
	if (!answers_lost)
		return recvfrom(sock, data, size, flags, NULL, NULL);
	errno = ENOBUFS;
	return -1;
}

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
	for (uint32_t i = 0; i < 11; i++) {
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

/* 路由表里什么也没有：127.0.0.1 与 ::1 照样不是别人的地址。*/
static void test_alone(void)
{
	own_device = 0;
	expect_reach("::ffff:127.0.0.1", ETIMEDOUT, "peer-is-local-address", "",
		     "");
	expect_reach("::1", ETIMEDOUT, "peer-is-local-address", "", "");
	expect_reach("::ffff:126.0.0.1", ETIMEDOUT, "no-route", "", "");
	expect_reach("::ffff:128.0.0.1", ETIMEDOUT, "no-route", "", "");
	expect_reach("::2", ETIMEDOUT, "no-route", "", "");
	expect_reach("::101", ETIMEDOUT, "no-route", "", "");
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

	ordinary_world(IBV_QPS_RTS);
	world.gid.ndev_ifindex = if_nametoindex("off");
	world.qp_unknown = true;
	why = explain_completion(&qp, &wc, NULL);
	expect("which link, is not known", &why, "RETRY_EXC_ERR");
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

/* ---- 真的设备 --------------------------------------------------------------- */

static struct real {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_qp_init_attr init;
	union ibv_gid gid;
} real;

static void open_real(const char *own_gid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_device **d = list;

	while (*d && strcmp((*d)->name, device_name))
		d++;
	real.context = ibv_open_device(*d);
	real.pd = ibv_alloc_pd(real.context);
	real.init = (struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC,
					       .cap = { 1, 1, 1, 1, 0 } };
	real.init.send_cq = real.init.recv_cq =
		ibv_create_cq(real.context, 1, NULL, NULL, 0);
	inet_pton(AF_INET6, own_gid, &real.gid);
	ibv_free_device_list(list);
}

static void close_real(void)
{
	ibv_destroy_cq(real.init.send_cq);
	ibv_dealloc_pd(real.pd);
	ibv_close_device(real.context);
}

/* 下一步：INIT、RTR（只收 QP 0x11 的，从 PSN 1000 起）、RTS。*/
static void step(struct ibv_qp *peer, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = good_attr(to);

	attr.dest_qp_num = 0x11;
	attr.rq_psn = 1000;
	attr.sq_psn = 500;
	attr.ah_attr.grh.dgid = real.gid;
	attr.ah_attr.grh.sgid_index = 1;
	if (ibv_modify_qp(peer, &attr,
			  to == IBV_QPS_INIT
				  ? IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
			  : to == IBV_QPS_RTR ? rtr_bits
			  : to == IBV_QPS_RTS ? rts_bits
					      : IBV_QP_STATE))
		abort();
}

/* 我这一端是替身：在 RTS，连着 @peer，下一个要发的是 @psn。*/
static void my_side(const struct ibv_qp *peer, uint32_t psn)
{
	ordinary_world(IBV_QPS_RTS);
	world.device.vendor_id = 0xffffff; /* rxe */
	world.qp.dest_qp_num = peer->qp_num;
	world.qp.ah_attr.grh.dgid = real.gid;
	world.qp.sq_psn = psn & 0xffffff;
}

static void expect_peer(const char *what, const struct explain_request *request,
			const char *id, const char *word)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	struct explanation why = explain_completion(&qp, &wc, request);

	expect_word(what, &why, id, word);
	expect_true("both ends are shown",
		    strstr(why.seen, "my QP 1") &&
			    strstr(why.seen, "the peer, in this kernel: QP "));
	if (explained_as(&why, "acks-lost") ||
	    explained_as(&why, "lost-on-the-way") ||
	    explained_as(&why, "nothing-arrives"))
		expect_true("and what has been counted",
			    strstr(why.seen, ": rcvd_pkts ") &&
				    strstr(why.seen, ", rcvd_rnr_err "));
}

static void test_states_of_a_peer(struct ibv_qp *peer)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	struct explanation why;

	my_side(peer, 1000);
	expect_peer("in RESET", NULL, "peer-not-ready", "RESET");
	step(peer, IBV_QPS_INIT);
	expect_peer("in INIT", NULL, "peer-not-ready", "INIT");
	step(peer, IBV_QPS_RTR);
	step(peer, IBV_QPS_RTS);
	why = explain_completion(&qp, &wc, NULL);
	expect_true("its numbers",
		    strstr(why.seen, "RTS, to QP 17, sq_psn 500, "
				     "rq_psn 1000"));
	qp.qp_num = 0x12;
	expect_peer("connected to another", NULL, "peer-expects-another",
		    "packets of QP 17, and I am QP 18");
	qp.qp_num = 0x11;
}

/* 对端从 1000 起收；差 256 个以上，就不会是还在路上的。*/
static void test_psns_of_a_peer(const struct ibv_qp *peer, const char *wire)
{
	const struct explain_side told = { .name = "B" };
	const struct explain_request request = { .peer = &told };
	const struct {
		int psn;
		const char *id;
	} rows[] = {
		{ 1000, wire ? wire : "acks-lost" },
		{ 999, wire ? wire : "acks-lost" },
		{ 1000 - 256, wire ? wire : "acks-lost" },
		{ 1000 - 257, "psn-differs" },
		{ 1001, wire ? wire : "lost-on-the-way" },
		{ 1000 + 257, wire ? wire : "lost-on-the-way" },
		{ 1000 + 258, "psn-differs" },
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		my_side(peer, (uint32_t)rows[i].psn);
		expect_peer("a PSN", NULL, rows[i].id, "");
	}
	expect_peer("what the peer told decides", &request,
		    wire ? wire : "lost-on-the-way", "");
	/* 别的设备：差多远都可能，半圈之内算“超过”。*/
	my_side(peer, 1000 + 0x7fffff);
	world.device.vendor_id = 0x2c9;
	expect_peer("half a ring", NULL, wire ? wire : "lost-on-the-way", "");
	my_side(peer, 1000 + 0x800000);
	world.device.vendor_id = 0x2c9;
	expect_peer("and one more", NULL, wire ? wire : "acks-lost",
		    wire ? "" : "up to PSN 999,");
	my_side(peer, 1000);
	world.psn_step = 1;
	expect_peer("it goes on", NULL, wire ? wire : "lost-on-the-way", "");
}

/* 收到过 RNR NAK，而且 rnr_retry 是 7：等的也许是对端的 receive。*/
static void test_receives_of_a_peer(const struct ibv_qp *peer, bool naks)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		bool wants;
	} rows[] = {
		{ IBV_WR_SEND, true },
		{ IBV_WR_SEND_WITH_IMM, true },
		{ IBV_WR_SEND_WITH_INV, true },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, true },
		{ IBV_WR_RDMA_WRITE, false },
		{ IBV_WR_RDMA_READ, false },
	};
	struct ibv_send_wr send = { .send_flags = IBV_SEND_SIGNALED };
	const struct explain_request request = { .send = &send };

	for (size_t i = 0; i < LENGTH(rows); i++) {
		my_side(peer, 1001);
		world.qp.rnr_retry = 7;
		send.opcode = rows[i].opcode;
		expect_peer("a request", &request,
			    naks && rows[i].wants ? "no-receive-posted"
						  : "lost-on-the-way",
			    "");
		world.qp.rnr_retry = 6;
		expect_peer("with an end", &request, "lost-on-the-way", "");
	}
}

static void expect_wait(const char *what, const struct explain_request *request,
			const char *id)
{
	struct explanation why = explain_stall(&qp, request, 10000);

	expect(what, &why, id);
	if (!strcmp(id, "acks-lost") || !strcmp(id, "peer-in-error"))
		expect_true("both ends are shown",
			    strstr(why.seen, "my QP 1") &&
				    strstr(why.seen, "the peer, in this"));
}

/* 一直没有 completion，对端却看不见：RNR NAK 是唯一的线索。*/
static void test_waits(struct ibv_qp *peer, bool naks)
{
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr recv = { .num_sge = 0 };
	const struct explain_request sends = { .send = &send },
				     receives = { .recv = &recv };

	my_side(peer, 1000);
	world.qp.timeout = 1;
	world.qp.rnr_retry = 7;
	world.qp.ah_attr.grh.dgid = (union ibv_gid){ 0 };
	expect_wait("a send", &sends, naks ? "rnr-forever" : "no-completion");
	expect_wait("a receive", &receives, "nothing-came");
	world.qp.rnr_retry = 6;
	expect_wait("a send with an end", &sends, "no-completion");
	world.qp.rnr_retry = 7;
	qp.qp_type = IBV_QPT_UC;
	expect_wait("a send of UC", &sends, "no-completion");
	/* 对端看得见，好好的：谁在等自己的 send，才说 ACK 丢了。*/
	my_side(peer, 1000);
	world.qp.timeout = 1;
	expect_wait("a receive, with a good peer", &receives, "nothing-came");
	expect_wait("a send, with a good peer", &sends, "acks-lost");
	step(peer, IBV_QPS_ERR);
	expect_wait("a receive, with a bad one", &receives, "peer-in-error");
}

static void test_a_peer(void)
{
	struct ibv_qp *peer = ibv_create_qp(real.pd, &real.init);
	const bool heard = hw_counter(device_name, "rcvd_pkts") > 0;
	const bool naks = hw_counter(device_name, "rcvd_rnr_err") > 0;

	printf("# packets: %d, RNR NAKs: %d\n", heard, naks);
	test_states_of_a_peer(peer);
	test_psns_of_a_peer(peer, heard ? NULL : "nothing-arrives");
	if (heard) {
		test_receives_of_a_peer(peer, naks);
		test_waits(peer, naks);
	}
	step(peer, IBV_QPS_ERR);
	my_side(peer, 1000);
	expect_peer("in ERR", NULL, "peer-in-error", "ERR");
	ibv_destroy_qp(peer);
}

/* 一千个 QP，内核要用几条消息才列得完；最后一个也找得到。*/
static void test_many_qps(void)
{
	enum {
		MANY = 1000
	};
	struct ibv_qp *qps[MANY];
	struct local_peer peer;

	for (int i = 0; i < MANY; i++)
		qps[i] = ibv_create_qp(real.pd, &real.init);
	peer = find_local_peer(&real.gid, qps[0]->qp_num);
	expect_true("the first of many QPs", peer.found);
	peer = find_local_peer(&real.gid, qps[MANY - 1]->qp_num);
	expect_true("the last of many QPs", peer.found);
	for (int i = 0; i < MANY; i++)
		ibv_destroy_qp(qps[i]);
}

/* 本机有这个 GID 的设备上，对端的 QP 在不在、是什么样。*/
static void test_local_peers(const char *own_gid)
{
	const struct ibv_wc wc = { .status = IBV_WC_RETRY_EXC_ERR };
	union ibv_gid gid, nobodys = { .raw = { 1 } };
	struct local_peer peer;
	struct explanation why;
	char name[64] = "before";
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
	answers_lost = true;
	peer = find_local_peer(&gid, 1);
	expect_true("no answer", !peer.found && !peer.sees_all);
	answers_lost = false;
	nobodys = gid;
	nobodys.raw[15] ^= 0x40;
	device_with_gid(name, sizeof(name), &nobodys);
	expect_true("nor one that is nearly the same", !name[0]);
	device_with_gid(name, sizeof(name), &gid);
	expect_true("the device", !strcmp(name, device_name));
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

/* 打不开节点时，libibverbs 报的是 ENOENT：看节点的权限。*/
static void test_closed_nodes(void)
{
	static const char *const nodes[] = { "/dev/infiniband/uverbs0",
					     "/dev/infiniband/uverbs1" };
	struct explanation why;

	chmod(nodes[0], 0600);
	chmod(nodes[1], 0600);
	if (setresuid(65534, 65534, 0))
		abort();
	why = explain_open_device(ENOENT);
	expect_word("both are root's", &why, "node-not-permitted", nodes[0]);
	if (setresuid(0, 0, 0))
		abort();
	chmod(nodes[1], 0666);
	if (setresuid(65534, 65534, 0))
		abort();
	why = explain_open_device(ENOENT);
	expect("one is anybody's", &why, "node-missing");
	if (setresuid(0, 0, 0))
		abort();
	chmod(nodes[0], 0666);
	why = explain_open_device(ENOENT);
	expect("both are", &why, "node-missing");
}

static void test_mac(const char *address, const char *id)
{
	struct explanation why;
	union ibv_gid gid;

	inet_pton(AF_INET6, address, &gid);
	why = explain_neighbour(&gid);
	expect("the MAC of a neighbour", &why, id);
}

int main(int argc, char **argv)
{
	alarm(120); /* 问内核的，没有一个会等到那时 */
	if (argc > 2 && !strcmp(argv[1], "mac")) {
		test_mac(argv[2], argv[3]);
	} else if (argc > 2) {
		device_name = argv[1];
		test_local_peers(argv[2]);
		open_real(argv[2]);
		test_a_peer();
		test_many_qps();
		close_real();
		test_closed_nodes();
	} else if (argc > 1 && !strcmp(argv[1], "alone")) {
		test_alone();
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

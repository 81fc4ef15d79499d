// SPDX-License-Identifier: MIT
/*
 * unit_network.c —— 解释器问内核的那些：路由、网卡、本机的 QP
 *
 *	unit_network             问得到 lo 就够的
 *	unit_network routes      去 198.51.100.0/24 有网关，不经过 lo；去 203.0.113.1、
 *	                         .2 与 .3 的路由是 unreachable、prohibit 与 blackhole
 *	unit_network DEVICE GID  本机的一个设备和它的 GID
 *
 * libibverbs 的回答仍是替身的（world.h）；网络是真的。
 */
#include "explain/parts.h"
#include "world.h"

static struct explanation reach(const char *gid, int err)
{
	struct ibv_qp_attr attr;

	ordinary_world(IBV_QPS_INIT);
	world.gid.ndev_ifindex = 1; /* lo */
	attr = good_attr(IBV_QPS_RTR);
	inet_pton(AF_INET6, gid, &attr.ah_attr.grh.dgid);
	return explain_modify_qp(&qp, &attr, rtr_bits, err);
}

static void test_no_device(void)
{
	struct explanation why = reach("::ffff:127.0.0.2", ENODEV);

	expect("my GID has a network device, its has none", &why,
	       "peer-on-loopback");
}

/* 去 198.51.100.0/24 有网关，却不经过 lo：问的是经 lo 怎么走，不是随便怎么走。*/
static void test_routes(void)
{
	struct explanation why = reach("::ffff:198.51.100.1", ETIMEDOUT);

	expect("a route, by another device than my GID's", &why, "no-route");
	/* 问路由时，内核把这三种都当作错误码来回答，各是一个。*/
	why = reach("::ffff:203.0.113.1", ETIMEDOUT);
	expect("a route of type unreachable", &why, "route-refused");
	why = reach("::ffff:203.0.113.2", ETIMEDOUT);
	expect("a route of type prohibit", &why, "route-refused");
	why = reach("::ffff:203.0.113.3", ETIMEDOUT);
	expect("a route of type blackhole", &why, "route-refused");
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

int main(int argc, char **argv)
{
	if (argc > 2) {
		device_name = argv[1];
		test_many_qps(argv[2]);
	} else if (argc > 1) {
		test_routes();
	} else {
		test_no_device();
	}
	return failures ? 1 : 0;
}

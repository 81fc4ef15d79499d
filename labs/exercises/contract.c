// SPDX-License-Identifier: MIT
/*
 * contract.c —— 直接调用某一阶段的函数，照着契约问：rdma_server 与 rdma_client 问不到的
 *
 *	contract device NAME [WORLD]  第 1 阶段：返回值、选了什么、关两次；NAME 为空：不点名；WORLD：
 *	                              two 两个 ACTIVE 的 port，second 只有第 2 个是，init 没有一个是；
 *	                              rxe0 它的 port 不是 ACTIVE
 *	contract objects [SIZE]  第 2 阶段：建、拆两遍，打印 buf 是怎样分的、返回值
 *	contract psns [none]     第 3 阶段：24 次 INIT，各次的 PSN 合起来是什么；none：没有随机数
 *	contract reads N [few]   第 3 阶段：max_reads 为 N，port 与 LID 都少见时，走到 RTS
 *	contract query 0 [moved] 第 3 阶段：query_qp() 说 QP 在什么状态，PSN 是几
 *	contract remote PORT     第 4 阶段：对端的数据被拒之后，res->remote 还是原来的吗
 *	contract sync            第 4 阶段：同步点的返回值，告诉对端什么
 *	contract transfer        第 5 阶段：一条空消息，它的 event 与两个 completion
 *	contract one_sided       第 8 阶段：自己连自己，对自己的内存操作
 *	contract datagram        第 10 阶段：四种头，都答给谁
 *
 * 这里的 ibv_… 挡在 libibverbs 前面：学生的函数看到的设备可以与众不同。
 */
#include "base/deadline.h"
#include "rdma_common.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#undef ibv_query_port

#define NEXT(name)                                     \
	static __typeof__(&name) next;                 \
	do {                                           \
		void *found = dlsym(RTLD_NEXT, #name); \
		memcpy(&next, &found, sizeof(next));   \
	} while (0)

static const char *world = "";
static struct verbs_context device; /* 它本来的调用 */

static bool in_world(const char *name)
{
	return !strcmp(world, name);
}

/* ---- 设备 ----------------------------------------------------------------- */

static bool two_ports(void)
{
	return in_world("two") || in_world("second") || in_world("init");
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct ibv_port_attr *attr, size_t size)
{
	int err;

	if (!two_ports()) {
		err = device.query_port(context, port, attr, size);
		if (in_world(ibv_get_device_name(context->device)))
			attr->state = IBV_PORT_DOWN;
		return err;
	}
	err = port < 1 || port > 2 ? EINVAL
				   : device.query_port(context, 1, attr, size);
	if (err)
		return err;
	attr->lid = port;
	if (in_world("init") || (in_world("second") && port == 1))
		attr->state = IBV_PORT_INIT;
	return 0;
}

/* few：一次只应付 3 个 READ，只发起 5 个 */
static void change_device(struct ibv_device_attr *attr)
{
	if (two_ports())
		attr->phys_port_cnt = 2;
	if (!in_world("few"))
		return;
	attr->max_qp_rd_atom = 3;
	attr->max_qp_init_rd_atom = 5;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	int err = device.query_device_ex(context, input, attr, size);

	if (!err)
		change_device(&attr->orig_attr);
	return err;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	NEXT(ibv_query_device);
	int err = next(context, attr);

	if (!err)
		change_device(attr);
	return err;
}

struct ibv_context *ibv_open_device(struct ibv_device *name)
{
	NEXT(ibv_open_device);
	struct ibv_context *context = next(name);
	struct verbs_context *calls;

	if (!context)
		return NULL;
	calls = verbs_get_ctx(context);
	device.query_port = calls->query_port;
	device.query_device_ex = calls->query_device_ex;
	calls->query_port = query_port;
	calls->query_device_ex = query_device_ex;
	return context;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
		      uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t size)
{
	NEXT(_ibv_query_gid_ex);
	/* 槽 257 装不进 8 位，255 是 RoCE v1：看起来都有人用 */
	bool far = index == 257 || index == 255;
	int err = next(context, two_ports() ? 1 : port, far ? 1 : index, entry,
		       flags, size);

	if (err)
		return err;
	entry->port_num = port;
	entry->gid_index = index;
	if (index == 255)
		entry->gid_type = IBV_GID_TYPE_ROCE_V1;
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t most,
			     uint32_t flags, size_t size)
{
	NEXT(_ibv_query_gid_table);
	/* 内核的答案至多 64 KiB */
	size_t room = most > 1024 ? 1024 : most;
	ssize_t n = next(context, entries, room, flags, size);

	for (ssize_t i = 0; i < n && in_world("second"); i++)
		entries[i].port_num = 2;
	return n;
}

static int open_close(const struct rdma_config *config)
{
	struct rdma_resources res = { 0 }, before;
	int rc = open_device(&res, config);

	printf("open %d port %u lid %u\n", rc, res.ib_port, res.port_attr.lid);
	if (rc)
		return rc;
	fprintf(stderr, "device %s\n",
		ibv_get_device_name(res.context->device));
	before = res;
	for (int slot = 257; slot >= 255; slot -= 2) {
		rc = choose_gid(&res, slot);
		printf("slot %d: %d, %s\n", slot, rc,
		       memcmp(&before, &res, sizeof(res)) ? "changed"
							  : "as before");
	}
	rc = close_device(&res);
	printf("closed %d\n", rc);
	rc = close_device(&res);
	printf("closed again %d\n", rc);
	return rc;
}

/* ---- PD、MR、CQ、QP --------------------------------------------------------- */

static bool zero(const void *p, size_t size)
{
	const char *byte = p;

	return !size || (!byte[0] && !memcmp(byte, byte + 1, size - 1));
}

static void show_buffer(const struct rdma_resources *r)
{
	const char *mr = r->mr->addr, *end = mr + r->mr->length;
	const char *last = send_slot(r, r->send_slots - 1);

	printf("slots %u %u apart %d covered %d state %d zero %d channel %d\n",
	       r->recv_slots, r->send_slots,
	       send_slot(r, 0) - recv_slot(r, 0) >= r->msg_size,
	       mr <= r->buf && last + r->msg_size <= end, r->qp->state,
	       zero(r->buf, r->buf_size), r->channel != NULL);
}

static int objects(struct rdma_config *config)
{
	int rc = 0;

	for (int i = 0; i < 2 && !rc; i++) {
		struct rdma_resources res = { 0 };

		rc = init_rdma_resources(&res, config);
		if (rc) {
			printf("made %d\n", rc);
			break;
		}
		show_buffer(&res);
		if (i)
			rc = destroy_objects(&res);
		if (!rc)
			rc = destroy_rdma_resources(&res);
		printf("taken down %d, pointers %s\n", rc,
		       res.qp || res.cq || res.channel || res.mr || res.buf ||
				       res.pd || res.context
			       ? "left"
			       : "none");
		config->recv_slots = config->send_slots = 0;
		config->events = false;
	}
	return rc;
}

/* ---- QP 的状态 --------------------------------------------------------------- */

ssize_t getrandom(void *data, size_t size, unsigned int flags)
{
	NEXT(getrandom);
	if (!in_world("none"))
		return next(data, size, flags);
	errno = ENOSYS;
	return -1;
}

int getentropy(void *data, size_t size)
{
	return getrandom(data, size, 0) == (ssize_t)size ? 0 : -1;
}

/* 说的是哪个 port 都行。*/
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	NEXT(ibv_modify_qp);
	struct ibv_qp_attr given = *attr;

	if (mask & IBV_QP_PORT)
		printf("INIT port %u\n", attr->port_num);
	if (mask & IBV_QP_AV)
		printf("RTR ah_port %u dlid %u\n", attr->ah_attr.port_num,
		       attr->ah_attr.dlid);
	given.port_num = given.ah_attr.port_num = 1;
	return next(qp, &given, mask);
}

/* 没有问的，可以是任何值。moved：内核里的 QP 在 ERR，库还不知道；broken：问不到。*/
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	NEXT(ibv_query_qp);
	int err = in_world("broken") ? EIO : next(qp, attr, mask, init);

	if (!err && !(mask & IBV_QP_SQ_PSN))
		attr->sq_psn = ~0u;
	if (!err && in_world("moved"))
		attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
	return err;
}

static int psns(struct rdma_resources *res)
{
	uint32_t seen[24], any = 0, all = ~0u;
	int rc = 0, same = 0;

	for (int i = 0; i < 24 && !rc; i++) {
		rc = modify_qp_to_init(res);
		seen[i] = res->psn;
		any |= res->psn;
		all &= res->psn;
		for (int j = 0; j < i; j++)
			same += seen[j] == seen[i];
		if (!rc)
			rc = modify_qp_to_reset(res);
	}
	printf("bits that were ever 1: 0x%06x, always 1: 0x%06x, the same: "
	       "%d\n",
	       any, all, same);
	return rc;
}

/* 自己连自己；权限是 INIT 时定的。*/
static int connect_to_self(struct rdma_resources *res, unsigned int access)
{
	int rc = modify_qp_to_init(res);

	if (!rc)
		rc = allow_remote(res, access);
	res->remote = (struct cm_con_data_t){
		.qp_num = res->qp->qp_num,
		.lid = 77,
		.psn = res->psn,
		.active_mtu = (uint8_t)res->port_attr.active_mtu,
	};
	memcpy(res->remote.gid, res->gid.raw, sizeof(res->remote.gid));
	if (!rc)
		rc = modify_qp_to_rtr(res);
	return rc ? rc : modify_qp_to_rts(res);
}

static unsigned int rights(struct rdma_resources *res)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(res->qp, &attr, IBV_QP_ACCESS_FLAGS, &init))
		return ~0u;
	return attr.qp_access_flags & (unsigned int)~IBV_ACCESS_LOCAL_WRITE;
}

static int reads(struct rdma_resources *res, int most)
{
	int rc;

	res->max_reads = (uint8_t)most;
	res->ib_port = 2;
	rc = connect_to_self(res, IBV_ACCESS_REMOTE_READ);
	if (!rc)
		printf("rights %u\n", rights(res));
	return rc;
}

static int query(struct rdma_resources *res)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_UNKNOWN };
	int rc = reads(res, 0);

	if (!rc)
		rc = query_qp(res, &attr);
	if (!rc)
		printf("state %s, sq_psn %s\n",
		       attr.qp_state == IBV_QPS_ERR   ? "ERR"
		       : attr.qp_state == IBV_QPS_RTS ? "RTS"
						      : "?",
		       attr.sq_psn == res->psn ? "as set" : "another");
	world = "broken";
	printf("refused: %d\n", query_qp(res, &attr));
	return rc;
}

/* ---- TCP -------------------------------------------------------------------- */

static int remote(struct rdma_resources *res, int port)
{
	const int64_t deadline = deadline_in_ms(2000);
	struct cm_con_data_t before;
	int rc = modify_qp_to_init(res);
	int sock = tcp_connect("127.0.0.1", (uint16_t)port, deadline);

	memset(&res->remote, 0x11, sizeof(res->remote));
	before = res->remote;
	if (!rc && sock >= 0)
		rc = exchange_cm_con_data(res, sock, deadline);
	printf("refused %d, remote %s\n", rc < 0,
	       memcmp(&before, &res->remote, sizeof(before)) ? "changed"
							     : "as before");
	sock_close(&sock);
	return rc;
}

/* 对端的话已经在路上：step 与 status；0 就是什么也没说。*/
static void sync_with(const char *how, int status, uint32_t peers_step,
		      uint32_t peers_status)
{
	const uint32_t said[3] = { htonl(0x53594e43), htonl(peers_step),
				   htonl(peers_status) };
	int64_t begin = deadline_in_ms(0);
	uint32_t heard[3] = { 0 };
	int sv[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) ||
	    (peers_step && write(sv[1], said, sizeof(said)) < 0))
		return;
	rc = sock_sync_step(sv[0], SYNC_DONE, status, deadline_in_ms(800));
	if (recv(sv[1], heard, sizeof(heard), MSG_DONTWAIT) < 0)
		heard[0] = 0;
	printf("%s: %d %s, heard step %u status %u\n", how, rc,
	       deadline_in_ms(0) - begin < 400000000 ? "at once" : "late",
	       ntohl(heard[1]), ntohl(heard[2]));
	close(sv[0]);
	close(sv[1]);
}

/* rkey 不是 lkey，active_mtu 不是 max_mtu，一个 slot 不是整个 buf。*/
static int sync_points(struct rdma_resources *res)
{
	struct ibv_mr *mr = res->mr, other = *mr;
	struct cm_con_data_t told;
	int sv[2];

	sync_with("together", 0, SYNC_DONE, 0);
	sync_with("mine", -5, 0, 0);
	sync_with("theirs", 0, SYNC_DONE, 5);
	sync_with("elsewhere", 0, SYNC_READY, 0);
	other.rkey = 0x12345678;
	res->mr = &other;
	res->port_attr.active_mtu = IBV_MTU_1024;
	res->port_attr.max_mtu = IBV_MTU_4096;
	told = cm_con_data_of(res);
	res->mr = mr;
	printf("told: rkey %x mtu %u size %u\n", told.rkey, told.active_mtu,
	       told.size);
	if (!socketpair(AF_UNIX, SOCK_STREAM, 0, sv)) {
		close(sv[1]);
		printf("gone: %d\n", sock_sync_step(sv[0], SYNC_DONE, -5,
						    deadline_in_ms(800)));
		close(sv[0]);
	}
	return 0;
}

/* ---- 收发 -------------------------------------------------------------------- */

static unsigned int acked;

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	NEXT(ibv_ack_cq_events);
	acked = n;
	next(cq, n > 999 ? n - 999 : n);
}

/* 失败的 completion 只有 wr_id：凭它还要找得到请求。*/
static int remembered(const struct rdma_resources *res, uint64_t wr_id)
{
	int n = 0;

	for (uint32_t i = 0; i < res->recv_slots + res->send_slots; i++)
		n += (res->posted[i].is_receive
			      ? res->posted[i].recv.wr_id
			      : res->posted[i].send.wr_id) == wr_id;
	return n;
}

static int transfer(struct rdma_resources *res)
{
	struct ibv_sge into = { (uintptr_t)recv_slot(res, 1), 8, 0 };
	struct ibv_send_wr read = { .wr_id = WR_ID_READ(0),
				    .sg_list = &into,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_READ,
				    .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;
	int rc = connect_to_self(res, 0), again;

	rc = rc ? rc : post_receive(res, 1);
	res->event_debt = 999; /* 该一并确认了 */
	rc = rc ? rc : arm_cq(res);
	rc = rc ? rc : post_send(res, 1, 0, true);
	printf("remembered: receive %d, send %d\n",
	       remembered(res, WR_ID_RECV(1)), remembered(res, WR_ID_SEND(1)));
	rc = rc ? rc : take_cq_event(res);
	printf("event: %d, %s\n", rc,
	       res->event_debt + acked == 1000
		       ? "debt and acknowledged are 1000"
		       : "debt and acknowledged differ");
	res->event_debt = acked ? 0 : 1;
	rc = poll_completion(res, WR_ID_SEND(1), NULL, 1000);
	again = poll_completion(res, WR_ID_RECV(1), &wc, 1000);
	printf("of no bytes: %d, %d, %u bytes\n", rc, again, wc.byte_len);
	rc = poll_completion(res, WR_ID_RECV(1), &wc, 100);
	printf("and no more: %d\n", rc);
	into.lkey = res->mr->lkey;
	read.wr.rdma.remote_addr = (uintptr_t)res->buf;
	read.wr.rdma.rkey = res->mr->rkey;
	rc = post_request(res, &read);
	printf("READ: %d\n", rc);
	return 0;
}

/* ---- 单边操作 ----------------------------------------------------------------- */

static int done(struct rdma_resources *res, int rc, uint64_t wr_id)
{
	return rc ? rc : poll_completion(res, wr_id, NULL, 1000);
}

static int one_sided(struct rdma_resources *res)
{
	static uint64_t word[8] = { 40, 0x1122334455667788 };
	const uint64_t at = (uintptr_t)word, big = 0x99aabbccddeeff00;
	const int all = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = (struct ibv_mr *)word, *old = mr;
	struct ibv_sge into;
	int rc = connect_to_self(res, (unsigned int)all);

	if (rc)
		return rc;
	rc = expose_memory(res, (void *)64, 64, all, &mr);
	printf("no memory: %d, mr %s\n", rc,
	       mr == old ? "as before" : "changed");
	rc = allow_remote(res, 0);
	printf("no rights: %d, %u\n", rc, rights(res));
	rc = allow_remote(res, (unsigned int)all);
	rc = rc ? rc : expose_memory(res, word, sizeof(word), all, &mr);
	if (rc)
		return rc;
	rc = done(res, post_fetch_add(res, 1, at, mr->rkey, ~0ull),
		  WR_ID_ADD(1));
	printf("add -1: %d, %lu, before %lu\n", rc, word[0],
	       atomic_result(res, 1));
	rc = done(res,
		  post_compare_swap(res, 0, at + 8, mr->rkey, word[1], big),
		  WR_ID_SWAP(0));
	printf("swap: %d, %lx, before %lx\n", rc, word[1],
	       atomic_result(res, 0));
	memcpy(send_slot(res, 1), "abcdefgh", 8);
	rc = done(res,
		  post_write(res, 1, 3, at + 17, mr->rkey, IBV_SEND_SIGNALED),
		  WR_ID_WRITE(1));
	printf("write: %d, %lx %lx\n", rc, word[2], word[3]);
	into = (struct ibv_sge){ at + 32, 8, mr->lkey };
	rc = done(res, post_read(res, 1, &into, at + 8, mr->rkey),
		  WR_ID_READ(1));
	printf("read: %d, %s\n", rc,
	       word[4] == word[1] ? "there" : "not there");
	rc = done(res, post_fetch_add(res, 1, at + 44, mr->rkey, 1),
		  WR_ID_ADD(1));
	printf("unaligned: %s, %lx %lx\n", rc ? "refused" : "done", word[5],
	       word[6]);
	ibv_dereg_mr(mr);
	return 0;
}

/* ---- datagram ----------------------------------------------------------------- */

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	static struct ibv_ah ah;
	char gid[INET6_ADDRSTRLEN];

	(void)pd;
	inet_ntop(AF_INET6, attr->grh.dgid.raw, gid, sizeof(gid));
	printf("to %s, global %u, index %s, port %u\n", gid, attr->is_global,
	       attr->grh.sgid_index == 1 ? "right" : "wrong", attr->port_num);
	return &ah;
}

/* 头里写的是 @from 发来的；@old 是那 40 个字节里原来的。*/
static void answer_to(struct rdma_resources *res, const char *from, int old)
{
	struct ibv_wc wc = { .wr_id = WR_ID_RECV(1),
			     .byte_len = GRH_BYTES + 5,
			     .src_qp = 17 };
	uint8_t *head = (uint8_t *)recv_slot(res, 1), *ip = head + 20;
	struct ibv_ah *ah = NULL;
	uint32_t sum = 0, length = 0;
	const char *data;

	memset(recv_slot(res, 0), old, GRH_BYTES);
	memset(head, old, GRH_BYTES);
	if (inet_pton(AF_INET, from, ip + 12) == 1) {
		memcpy(ip, "\x45\0\0\x3d\0\1\0\0\x40\x11\0\0", 12);
		memcpy(ip + 16, "\x0a\x63\0\1", 4);
		for (int i = 0; i < 20; i += 2)
			sum += (uint32_t)ip[i] << 8 | ip[i + 1];
		sum = ~((sum & 0xffff) + (sum >> 16));
		ip[10] = (uint8_t)(sum >> 8);
		ip[11] = (uint8_t)sum;
	} else {
		memset(head, 0, GRH_BYTES);
		memcpy(head, "\x60\0\0\0\0\x1d\x11\x40", 8);
		inet_pton(AF_INET6, from, head + 8);
		inet_pton(AF_INET6, "fe80::1", head + 24);
	}
	data = datagram_of(res, &wc, &length);
	printf("from %s: %s, %u bytes, answer %d\n", from,
	       data == (char *)head + 40 ? "behind the 40" : "elsewhere",
	       length, answer_datagram(res, &wc, &ah));
}

static int datagram(struct rdma_resources *res)
{
	answer_to(res, "10.99.0.2", 0);
	answer_to(res, "10.99.0.3", 0x60);
	answer_to(res, "fe80::2", 0);
	answer_to(res, "fe80::45ab:2", 0);
	return 0;
}

int main(int argc, char *argv[])
{
	const char *what = argc > 1 ? argv[1] : "";
	const int n = argc > 2 ? atoi(argv[2]) : 5000;
	struct rdma_config config = {
		.device_name = "rxe0",
		.gid_index = GID_INDEX_AUTO,
		.msg_size = (uint32_t)n,
		.recv_slots = 3,
		.send_slots = 2,
		.events = true,
	};
	struct rdma_resources res = { 0 };
	int rc, undo;

	setlinebuf(stdout);
	world = argc > 3 ? argv[3] : what[0] == 'p' && argc > 2 ? argv[2] : "";
	if (!strcmp(what, "device")) {
		config.device_name = argv[2] && *argv[2] ? argv[2] : NULL;
		return open_close(&config) ? 1 : 0;
	}
	if (!strcmp(what, "objects"))
		return objects(&config) ? 1 : 0;
	config.msg_size = 100; /* 不是一个 slot 的大小 */
	rc = init_rdma_resources(&res, &config);
	if (!rc)
		rc = !strcmp(what, "psns")	  ? psns(&res)
		     : !strcmp(what, "reads")	  ? reads(&res, n)
		     : !strcmp(what, "query")	  ? query(&res)
		     : !strcmp(what, "sync")	  ? sync_points(&res)
		     : !strcmp(what, "transfer")  ? transfer(&res)
		     : !strcmp(what, "one_sided") ? one_sided(&res)
		     : !strcmp(what, "datagram")  ? datagram(&res)
						  : remote(&res, n);
	undo = destroy_rdma_resources(&res);
	return rc || undo ? 1 : 0;
}
